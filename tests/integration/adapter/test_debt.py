"""Two ticks are owed for a consumer's key: not for each lease, channel or session key of it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from adapter.core.debt import FORGOTTEN_MS, WAIT_MS
from adapter.core.events import Expected, Passed
from adapter.core.state import Limits
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed
from marketplace.domain.work.parts import Range, Resources
from tests.integration.support.rig import RATE, Adapter, Rig
from tests.unit.support.adapter import SESSION, Bench, core_job

TICK = owed(2000, RATE)
LIMITS = Limits(final_wait_ms=5000)


def key(number: int) -> Signer:
    return Signer(number.to_bytes(32))


def served(rig: Rig) -> int:
    return sum(owed(ms * 2, RATE) for ms in rig.ran_ms.values())


def paid(adapter: Adapter) -> int:
    return sum(channel.paid for channel in adapter.daemon.state.channels.values())


def declines(rig: Rig) -> list[str]:
    return [m.code for m in rig.market.heard if isinstance(m, wire.LeaseDeclined)]


async def ask(rig: Rig, adapter: Adapter, number: int, many_keys: bool) -> str:
    if many_keys:
        rig.market.session = key(number)
    rig.propose(f"lease_{number}", core_job())
    await adapter.ask(f"lease_{number}")
    return f"lease_{number}"


@pytest.mark.parametrize("many_keys", [False, True])
@pytest.mark.parametrize("at_once", [1, 4])
def test_twenty_unpaid_leases_cost_two_ticks_together(
    tmp_path: Path, many_keys: bool, at_once: int
) -> None:
    """One after the other or as many as fit, over one channel or each over one of its own."""
    rig = Rig(tmp_path, limits=LIMITS)
    rig.market.pays = False
    held: dict[str, int] = {}

    async def body(adapter: Adapter) -> None:
        for first in range(1, 21, at_once):
            names = [await ask(rig, adapter, first + n, many_keys) for n in range(at_once)]
            for _ in range(20):
                await adapter.eye.look()
                await adapter.second()
                for name in names:
                    lease = adapter.daemon.lease(name)
                    held[name] = held.get(name, 0) + (lease is not None and lease.occupies)
        assert paid(adapter) == 0

    anyio.run(rig.live, body)
    assert 0 < served(rig) <= 2 * TICK
    assert max(held.values()) <= 10
    assert set(declines(rig)) == {"PAYMENT_OWED"}


def test_a_channel_that_paid_keeps_its_pause_limit(tmp_path: Path) -> None:
    rig = Rig(tmp_path, limits=LIMITS)

    async def body(adapter: Adapter) -> None:
        await ask(rig, adapter, 1, False)
        for _ in range(3):
            await adapter.second()
        rig.market.pays = False
        for _ in range(50):
            await adapter.second()
        lease = adapter.daemon.lease("lease_1")
        assert lease is not None and lease.pause is not None
        rig.market.pays = True
        vk = SESSION.verify_key
        await adapter.hear(adapter.link.voucher("lease_1", rig.market.owed[vk]))
        lease = adapter.daemon.lease("lease_1")
        assert lease is not None and lease.pause is None

    anyio.run(rig.live, body)


def test_a_new_consumers_further_leases_begin_once_it_pays(tmp_path: Path) -> None:
    """Four leases of two cores each at once: the honest payer has all of them within seconds."""
    rig = Rig(tmp_path, limits=LIMITS)

    async def body(adapter: Adapter) -> None:
        names = [await ask(rig, adapter, n, False) for n in range(1, 5)]
        await adapter.eye.look()
        running: list[int] = []
        for _ in range(15):
            await adapter.second()
            running.append(sum(1 for x in adapter.daemon.state.leases.values() if x.runs))
        assert running[0] == 1 and running[-1] == len(names)
        pauses = [m for m in rig.market.heard if getattr(m, "stage", "") == "PAUSED"]
        assert not pauses

    anyio.run(rig.live, body)


def test_a_dear_lease_begins_beside_a_cheap_one_that_paid_two_ticks(tmp_path: Path) -> None:
    """It could have been the first: what stands against it is only what runs beside it."""
    rig = Rig(tmp_path, limits=LIMITS)

    async def body(adapter: Adapter) -> None:
        for lease, milli in (("lease_1", 100), ("lease_2", 4000)):
            need = Resources(cpu=Range(milli, milli))
            rig.propose(lease, core_job(resources=(need,)))
            await adapter.ask(lease)
        await adapter.eye.look()
        for _ in range(6):
            await adapter.second()
        assert all(one.runs for one in adapter.daemon.state.leases.values())

    anyio.run(rig.live, body)


def test_the_wait_after_an_unpaid_end_outlives_a_restart_and_the_debts_payment(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, limits=LIMITS)
    rig.market.pays = False

    async def unpaid(adapter: Adapter) -> None:
        await ask(rig, adapter, 1, False)
        for _ in range(15):
            await adapter.second()

    async def back(adapter: Adapter) -> None:
        await ask(rig, adapter, 2, False)
        vk = SESSION.verify_key
        await adapter.hear(adapter.link.voucher("lease_1", rig.market.owed[vk]))
        await ask(rig, adapter, 3, False)
        rig.pass_ms(WAIT_MS)
        await ask(rig, adapter, 4, False)
        assert adapter.daemon.lease("lease_4") is not None

    anyio.run(rig.live, unpaid)
    anyio.run(rig.live, back)
    assert declines(rig) == ["PAYMENT_OWED", "UNPAID_WAIT"]


def unpaid_end(bench: Bench, number: int) -> int:
    """One lease that nobody pays for, then its debt paid; how long its consumer has to wait."""
    lease, session = f"lease_{number}", key(number)
    bench.propose(core_job(), lease, session, expires_at_ms=bench.now.wall_ms + 60_000)
    bench.sign(lease, session)
    bench.sight(session)
    bench.start(lease)
    for _ in range(2):
        bench.tick(lease, pay=False)
    for _ in range(6):
        bench.boot_ms += 1000
        bench.do(Passed())
    assert bench.lease(lease).reason == "UNPAID"
    bench.exit(lease)
    bench.clear(lease)
    bench.pay(session=session)
    ended = next(iter(bench.state.debtors.values())).at_wall_ms
    while True:
        name, fresh = f"try_{bench.boot_ms}", key(100 + number)
        bench.propose(core_job(), name, fresh, expires_at_ms=bench.now.wall_ms + 60_000)
        last = bench.sent()[-1]
        if isinstance(last, wire.LeaseAccepted):
            bench.hear(wire.LeaseCancelled(name, "QUOTE_EXPIRED"))
            return bench.now.wall_ms - ended
        assert isinstance(last, wire.LeaseDeclined) and last.code == "UNPAID_WAIT"
        bench.boot_ms += 1000


def test_the_wait_doubles_and_is_forgotten_with_time() -> None:
    bench = Bench()
    assert [unpaid_end(bench, n) for n in range(1, 5)] == [WAIT_MS * 2**n for n in range(4)]
    bench.boot_ms += 4 * FORGOTTEN_MS
    assert unpaid_end(bench, 5) == WAIT_MS


def test_what_is_signed_and_never_funded_is_dropped_in_ten_seconds() -> None:
    bench = Bench()
    bench.propose(core_job())
    bench.sign()
    bench.boot_ms += 10_000
    bench.do(Passed())
    assert "lease_1" in bench.state.leases
    bench.boot_ms += 1_001
    bench.do(Passed())
    assert "lease_1" not in bench.state.leases


def test_one_whose_open_transaction_was_seen_waits_for_its_block() -> None:
    bench = Bench()
    bench.propose(core_job())
    bench.sign()
    bench.do(Expected(SESSION.verify_key))
    bench.boot_ms += 250_000
    bench.do(Passed())
    bench.sight(stage=ChannelStage.OPEN)
    assert bench.lease().signed_for
