"""What a provider bears of a relay that is not at the tip, and what nobody gets out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.debt import waits_ms
from adapter.core.events import Measured
from adapter.core.state import Limits, Own
from marketplace.domain.metering.reading import Cause
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Port
from marketplace.domain.work.relay import RelayNeed
from tests.unit.support.adapter import ADAPTER, Bench, core_job, gpu_job, offer

FREE_MS = 60_000
NEED = RelayNeed("preprod", 3001)


def relay_job() -> JobSpec:
    policy = Policy(max_duration_ms=3_600_000)
    return gpu_job(ports=(Port(3001),), relay=NEED, policy=policy)


def bench(free_ms: int = FREE_MS) -> Bench:
    known = Limits(relay_free_ms=free_ms, fault_grace_ms=10_000)
    return Bench(Own(offer(relay_free_ms=free_ms), ADAPTER, known))


def look(at: Bench, cause: Cause | None) -> None:
    """A second later, the relay stands so."""
    at.boot_ms += 1000
    at.do(Measured("lease_1", (replace(at.reading("lease_1"), fault=cause),), tick=True))
    at.pay()


def seconds(at: Bench, count: int, cause: Cause | None) -> int:
    """So many, or until it ends; how many it ran."""
    for ran in range(count):
        if at.lease().reason is not None:
            return ran
        look(at, cause)
    return count


def stages(at: Bench) -> list[tuple[str, object]]:
    told = [one for one in at.sent() if isinstance(one, wire.LeaseProgress)]
    return [(m.stage, m.detail.get("code")) for m in told if m.stage.endswith("_TIP")]


@pytest.mark.parametrize(("free_ms", "code"), [(0, "RELAYS_REFUSED"), (FREE_MS, "ACCEPTED")])
def test_only_who_says_what_he_bears_takes_a_relay(free_ms: int, code: str) -> None:
    at = bench(free_ms)
    at.propose(relay_job())
    codes = [m.code for m in at.sent() if isinstance(m, wire.LeaseDeclined)] or ["ACCEPTED"]
    assert codes == [code]


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause.off_tip])
def test_a_relay_that_never_serves_ends_when_the_free_time_is_over(cause: Cause) -> None:
    """Whatever it is that it does instead, and though its device is well."""
    at = bench().running(relay_job())
    assert FREE_MS <= seconds(at, 1000, cause) * 1000 <= FREE_MS + 2000
    assert at.lease().reason == "OFF_TIP"
    assert at.receipts() == []
    assert waits_ms(at.state, at.lease().terms.consumer_vkh, at.now) > 0  # before it comes again


def test_a_relay_that_serves_now_and_then_gets_no_machine_for_it() -> None:
    """A tenth of what was billed is borne beside the free time, so nine of ten hours are paid."""
    at = bench().running(relay_job())
    off = 0
    while at.lease().reason is None:
        seconds(at, 5, None)
        off += seconds(at, 15, Cause.LAGGING)
    assert at.lease().reason == "OFF_TIP"
    billed_ms = at.receipts()[-1].unit_ms_total
    assert off * 1000 <= FREE_MS + billed_ms / 10 + 20_000


def test_a_relay_that_serves_well_runs_on_for_ever() -> None:
    at = bench(free_ms=30_000).running(relay_job())
    for _ in range(50):
        seconds(at, 30, None)
        seconds(at, 2, Cause.LAGGING)
    assert at.lease().reason is None
    last = at.receipts()[-1]
    assert last.lease_owed > 0 and last.t1_ms > 1_500_000


def test_its_story_has_a_line_for_each_change() -> None:
    at = bench().running(relay_job())
    for cause in (Cause.SYNCING, Cause.SYNCING, None, None, Cause.LAGGING, Cause.UNREACHABLE, None):
        look(at, cause)
    assert stages(at)[-5:] == [
        ("OFF_TIP", "syncing"), ("AT_TIP", None), ("OFF_TIP", "lagging"), ("OFF_TIP", "unreachable"),
        ("AT_TIP", None),
    ]  # fmt: skip


def test_what_is_no_relay_has_no_such_lines() -> None:
    at = Bench().running(core_job())
    seconds(at, 3, None)
    assert stages(at) == []
