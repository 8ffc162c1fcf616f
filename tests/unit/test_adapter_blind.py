"""A provider that cannot see the chain does not rely for ever on what it saw: a Close may run."""

from __future__ import annotations

from adapter.decide import wake
from adapter.events import Alarm, Passed
from adapter.state import PauseCause
from marketplace.domain.job import Policy
from marketplace.domain.lease import LeaseState
from tests.unit.support_adapter import Bench, gpu_job

CLOSE_MS = 86_400_000
LONG = gpu_job(policy=Policy(max_duration_ms=3 * CLOSE_MS))


def alarms(bench: Bench) -> list[str]:
    return [e.code for o in bench.outcomes for e in o.effects if isinstance(e, Alarm)]


def blind(ms: int) -> Bench:
    """A paid lease, whose chain was last seen so long ago."""
    bench = Bench().running(LONG, close_period_ms=CLOSE_MS)
    bench.tick()
    bench.boot_ms += ms
    bench.do(Passed())
    bench.measure()
    bench.pay()
    bench.measure()
    return bench


def test_half_a_close_period_is_borne() -> None:
    bench = blind(CLOSE_MS // 2 - 10_000)
    assert bench.lease().state is LeaseState.ACTIVE
    assert alarms(bench) == []


def test_beyond_it_leases_pause_and_are_kept_until_the_chain_is_seen() -> None:
    bench = blind(CLOSE_MS // 2 + 1_000)
    assert bench.lease().pause is PauseCause.BLIND
    assert set(alarms(bench)) == {"CHAIN_UNSEEN"}
    bench.boot_ms += 3_600_000
    bench.do(Passed())
    assert bench.lease().state is LeaseState.PAUSED
    bench.sight()
    assert bench.lease().state is LeaseState.ACTIVE


def test_a_restart_gives_the_chain_its_time_again() -> None:
    bench = Bench().running(LONG, close_period_ms=CLOSE_MS)
    bench.boot_ms += CLOSE_MS
    bench.state = wake(bench.state, bench.now)
    bench.do(Passed())
    assert alarms(bench) == []
