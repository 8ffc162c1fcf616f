"""A provider that cannot see the chain does not rely for ever on what it saw: a Close may run."""

from __future__ import annotations

from collections.abc import Callable

from adapter.core.decide import wake
from adapter.core.events import Alarm, Passed, Unread
from adapter.core.state import PauseCause
from marketplace.domain.keys import Signer
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import Policy
from tests.unit.support.adapter import SESSION, Bench, core_job, gpu_job

CLOSE_MS = 86_400_000
OTHER = Signer(b"\x66" * 32)
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


def two_leases() -> Bench:
    """Two paid leases on two channels of two consumers."""
    bench = Bench().running(LONG, close_period_ms=CLOSE_MS)
    bench.propose(core_job(policy=LONG.policy), "lease_2", OTHER, close_period_ms=CLOSE_MS)
    bench.sign("lease_2", OTHER, "cd" * 32)
    bench.sight(OTHER)
    bench.start("lease_2")
    return bench


def pass_minutes(bench: Bench, minutes: int, step: Callable[[], object]) -> None:
    """Both serve and are paid, tick by tick; *step* is what the chain shows meanwhile."""
    for _ in range(minutes * 6):
        bench.boot_ms += 10_000
        step()
        for lease, session in (("lease_1", SESSION), ("lease_2", OTHER)):
            bench.measure(lease)
            bench.pay(session=session)
        bench.do(Passed())


def test_a_channel_that_cannot_be_read_pauses_whatever_other_channels_do() -> None:
    bench = two_leases()

    def step() -> None:
        bench.do(Unread(SESSION.verify_key, "CHAIN", "no reading"))
        bench.sight(OTHER)

    pass_minutes(bench, 2, step)
    assert bench.lease().state is LeaseState.ACTIVE and alarms(bench) == []
    pass_minutes(bench, 1, step)
    assert bench.lease("lease_1").pause is PauseCause.BLIND
    assert bench.lease("lease_2").state is LeaseState.ACTIVE
    assert {"CHANNEL_UNREAD", "CHAIN_UNSEEN"} == set(alarms(bench))
    bench.sight()
    assert bench.lease().state is LeaseState.ACTIVE


def test_another_channels_look_does_not_stand_for_this_ones() -> None:
    bench = two_leases()
    bench.boot_ms += CLOSE_MS // 2 + 1_000
    bench.sight(OTHER)
    for lease, session in (("lease_1", SESSION), ("lease_2", OTHER)):
        bench.measure(lease)
        bench.pay(session=session)
        bench.measure(lease)
    assert bench.lease("lease_1").pause is PauseCause.BLIND
    assert bench.lease("lease_2").state is LeaseState.ACTIVE


def test_a_channel_that_reads_again_in_time_pauses_nothing() -> None:
    bench = two_leases()
    for _ in range(6):
        pass_minutes(bench, 1, lambda: bench.do(Unread(SESSION.verify_key, "CHAIN", "late")))
        bench.sight()
        bench.sight(OTHER)
    assert alarms(bench) == []
    assert bench.lease().state is LeaseState.ACTIVE
