"""A volume at its provider: who may mount it, what it costs, and what becomes of what mounts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.events import LinkDown, Measured, Passed
from adapter.core.state import Own, PauseCause
from adapter.core.volumes import NotMovable, require_movable
from marketplace.domain.keys import Signer
from marketplace.domain.metering.kinds import DISK
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.parts import Range, Resources
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.volume_move import Move, MoveUnsigned, Way
from tests.unit.support.adapter import (
    ADAPTER,
    OTHER_SESSION,
    SESSION,
    Bench,
    core_job,
    offer,
    terms_for,
    volume_job,
)
from tests.unit.support.hop_out import Over

HOUR_MS = 3_600_000
KEEP_MS = 72 * HOUR_MS
SUPPLY = offer(disk_rate=1_000_000_000, volume_keep_ms=KEEP_MS)


def bench() -> Bench:
    return Bench(Own(SUPPLY, ADAPTER))


def rented() -> Bench:
    """A volume that runs, and was paid for."""
    at = bench().running(volume_job())
    at.tick()
    return at


def mounting(*volumes: str) -> JobSpec:
    mounts = tuple(Mount(name, f"/data{n}") for n, name in enumerate(volumes or ("lease_1",)))
    return core_job(volumes=mounts)


def answer(
    at: Bench, job: JobSpec, lease: str = "lease_2", session: Signer = SESSION, **changes: object
) -> str:
    at.propose(job, lease, session, **changes)
    said = [m for m in at.sent() if isinstance(m, wire.LeaseDeclined | wire.LeaseAccepted)][-1]
    return said.code if isinstance(said, wire.LeaseDeclined) else "ACCEPTED"


def test_disk_is_metered_by_the_gb_second() -> None:
    at = rented()
    at.tick()
    last = at.receipts()[-1]
    assert (last.resource, last.unit_ms_total) == (DISK.name, 2 * 2000)  # 2 s of 2 GB
    assert last.lease_owed == 4000


def test_no_volume_is_rented_where_none_is_offered() -> None:
    assert answer(Bench(), volume_job()) == "VOLUMES_REFUSED"


def test_what_runs_is_not_had_for_the_price_of_disk() -> None:
    """A workload without cores would have its memory for nothing."""
    idle = Resources(Range(0), Range(16_384), Range(64))
    assert answer(bench(), core_job(resources=(idle,))) == "TERMS_DIFFER"
    assert answer(bench(), volume_job(), resource="core") == "TERMS_DIFFER"


def test_it_is_no_larger_than_the_disk_that_is_left() -> None:
    disk_mib = SUPPLY.host.disk_mib
    at = bench()
    assert answer(at, volume_job(disk_mib + 1)) == "NO_ROOM"
    assert answer(at, volume_job(disk_mib), "lease_3") == "ACCEPTED"
    assert answer(at, volume_job(64), "lease_4") == "NO_ROOM"


def test_the_key_that_pays_for_it_mounts_it_and_one_lease_at_a_time() -> None:
    at = rented()
    assert answer(at, mounting()) == "ACCEPTED"
    assert answer(at, mounting(), "lease_3") == "VOLUME_BUSY"


def test_nobody_else_does_whatever_name_and_refund_he_claims() -> None:
    """The terms of a stranger may name the owner as whom the rest goes to; the key is not his."""
    at = rented()
    terms = terms_for(SUPPLY, mounting(), "lease_2", OTHER_SESSION)
    assert terms.consumer_vkh == at.lease().terms.consumer_vkh
    assert answer(at, mounting(), session=OTHER_SESSION) == "VOLUME_UNKNOWN"


@pytest.mark.parametrize("name", ["lease_9", "lease_2", "x" * 80])
def test_what_is_no_volume_is_not_mounted(name: str) -> None:
    at = rented()
    assert answer(at, core_job(), "lease_2") == "ACCEPTED"
    assert answer(at, mounting("lease_1", name), "lease_3") == "VOLUME_UNKNOWN"


def test_a_volume_is_not_paid_over_a_route_nor_mounted_by_what_is() -> None:
    """A routed lease has a key of its own, which opens no volume."""
    for job in (volume_job(), mounting()):
        at = Over(Own(SUPPLY, ADAPTER)).opened()
        assert at.declined(at.asked(job=job)) == "VOLUME_ROUTED"


def test_what_mounts_it_ends_with_it() -> None:
    at = rented()
    assert answer(at, mounting()) == "ACCEPTED"
    at.sign("lease_2")
    at.start("lease_2")
    at.hear(wire.StopAsked("lease_1", "CANCELLED"))
    assert at.lease("lease_1").state is LeaseState.ENDING
    assert at.lease("lease_2").reason is EndReason.VOLUME_ENDED


def test_one_that_ends_is_mounted_by_nobody_new() -> None:
    at = rented()
    at.hear(wire.StopAsked("lease_1", "CANCELLED"))
    assert answer(at, mounting()) == "VOLUME_AWAY"


def test_unpaid_it_is_kept_for_as_long_as_the_offer_says_and_no_longer_in_all() -> None:
    """Who pays a second now and then has no disk for it: pauses are counted together."""
    at = rented()
    while at.lease().state is LeaseState.ACTIVE:
        at.tick(pay=False)
    assert at.lease().pause is PauseCause.UNPAID
    at.boot_ms += KEEP_MS - HOUR_MS
    at.do(Passed())
    assert at.lease().state is LeaseState.PAUSED
    at.sight()
    at.pay()
    assert at.lease().state is LeaseState.ACTIVE
    while at.lease().state is LeaseState.ACTIVE:
        at.tick(pay=False)
    at.boot_ms += 2 * HOUR_MS
    at.do(Passed())
    assert at.lease().reason is EndReason.UNPAID


def test_a_market_that_is_away_does_not_end_it_before() -> None:
    at = rented()
    at.do(LinkDown())
    at.boot_ms += KEEP_MS - HOUR_MS
    at.do(Passed())
    assert at.lease().reason is None
    at.boot_ms += 2 * HOUR_MS
    at.do(Passed())
    assert at.lease().reason is EndReason.PROVIDER_LOST


def test_an_adapter_that_was_away_bills_what_the_file_system_proves() -> None:
    at = rented()
    before = at.receipts()[-1].unit_ms_total
    at.tick(ms=600_000)
    assert at.receipts()[-1].unit_ms_total == before + 2 * 600_000
    at.boot_ms += 600_000
    other = at.reading("lease_1")
    fresh = replace(other, evidence=replace(other.evidence, written_kib=0))
    at.do(Measured("lease_1", (fresh,), True))
    assert usage_ms(at) == before + 2 * 600_000


def usage_ms(at: Bench) -> int:
    [meter] = at.lease().meters
    return meter.unit_ms


def test_its_content_moves_at_its_owners_word_alone_and_while_it_stands_still() -> None:
    at = rented()
    asked = Move.sign(SESSION, "lease_1", Way.EXPORT, b"age1owner")

    def allowed(move: Move) -> None:
        state = at.state
        require_movable(state.leases["lease_1"], state.leases.values(), move.words())

    allowed(asked)
    for forged in (
        Move.sign(OTHER_SESSION, "lease_1", Way.EXPORT, b"age1market"),
        replace(asked, key=b"age1market"),
        replace(asked, way=Way.IMPORT),
        Move.sign(SESSION, "lease_9", Way.EXPORT, b"age1owner"),  # of another volume of the key's
    ):
        with pytest.raises(MoveUnsigned):
            allowed(forged)
    assert answer(at, mounting()) == "ACCEPTED"
    with pytest.raises(NotMovable, match="mounted by lease_2"):
        allowed(asked)


def test_a_volume_that_waits_for_money_moves_nothing() -> None:
    at = rented()
    volume = at.state.leases["lease_1"]
    asked = Move.sign(SESSION, "lease_1", Way.EXPORT, b"age1owner")
    for changes in ({"state": LeaseState.PAUSED}, {"reason": EndReason.COMPLETED}):
        with pytest.raises(NotMovable, match="not ACTIVE"):
            require_movable(replace(volume, **changes), [volume], asked.words())
