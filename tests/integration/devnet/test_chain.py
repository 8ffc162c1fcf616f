"""The devnet's chain: blocks, time, mempool, rollbacks, lag, restarts, and that no lovelace is made
or lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from contracts.devnet import Devnet, DevnetRefusal, LedgerRefusal
from contracts.devnet.addresses import decode, stake_address
from contracts.devnet.index.views import Page
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import ADA, Draft, FrozenClock, Party, blake2b, out, pay, ref
from tests.requires import need_devnet

ALICE, BOB = Party("alice"), Party("bob")
# Long enough never to make a block by itself while a test runs: blocks come from mint().
NEVER = 10**9


@pytest.fixture(autouse=True)
def _ledger_there() -> None:
    need_devnet()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def devnet(clock: FrozenClock) -> Iterator[Devnet]:
    with Devnet(clock=clock, block_ms=NEVER) as one:
        yield one


def held(devnet: Devnet, party: Party) -> int:
    """What the index says a party holds."""
    with devnet.reading() as view:
        return sum(row["lovelace"] for row in view.unspent("address", party.address))


def by_ledger(devnet: Devnet) -> dict[tuple[bytes, int], Any]:
    return cbor2.loads(devnet.ledger_utxos())


def lovelace(output: Any) -> int:
    value = output[1]
    return value if isinstance(value, int) else value[0]


def assert_conserved(devnet: Devnet) -> None:
    """Index and ledger agree, and every lovelace of genesis and rewards is accounted for."""
    sums = devnet.status()["lovelace"]
    assert sums["unspent"] == sum(map(lovelace, by_ledger(devnet).values()))
    total = sums["unspent"] + sums["fees"] + sums["deposits"] + sums["accounts"]
    assert sums["genesis"] + sums["rewards"] == total
    outside = sums["wallets"] + sums["other_fees"] + sums["deposits"] + sums["accounts"]
    assert sums["faucet_paid"] + sums["rewards"] == outside + sums["returned"]


def payment(devnet: Devnet, source: OutRef, amount: int, **fields: int) -> Draft:
    draft = pay(source, ALICE, amount, [out(BOB.raw, 2 * ADA)])
    return draft.set(3, fields["end"]) if "end" in fields else draft


def test_a_transaction_waits_for_its_block(devnet: Devnet) -> None:
    paid = devnet.faucet(ALICE.address, 10 * ADA)
    assert held(devnet, ALICE) == 0
    assert devnet.status()["mempool"] == [paid.tx]
    block = devnet.mint()
    assert held(devnet, ALICE) == 10 * ADA
    with devnet.reading() as view:
        assert view.block_txs(block.height, Page()) == [paid.tx]


def test_waiting_transactions_build_on_each_other(devnet: Devnet) -> None:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    first = payment(devnet, source, 10 * ADA)
    second = pay(OutRef(devnet.submit(first.signed()), 0), BOB, 2 * ADA, [out(ALICE.raw, 900_000)])
    devnet.submit(second.signed())
    block = devnet.mint()
    with devnet.reading() as view:
        assert len(view.block_txs(block.height, Page())) == 3
    assert held(devnet, ALICE) == 10 * ADA - 2 * ADA - 200_000 + 900_000
    assert_conserved(devnet)


def test_what_expires_in_the_mempool_is_dropped_with_what_built_on_it(
    devnet: Devnet, clock: FrozenClock
) -> None:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    devnet.mint()
    expiring = payment(devnet, source, 10 * ADA, end=devnet.slot() + 5)
    child = pay(
        OutRef(devnet.submit(expiring.signed()), 0), BOB, 2 * ADA, [out(ALICE.raw, 900_000)]
    )
    devnet.submit(child.signed())
    clock.now += 5_000
    devnet.mint()
    assert devnet.status()["mempool"] == []
    assert (held(devnet, ALICE), held(devnet, BOB)) == (10 * ADA, 0)


class TickingClock(FrozenClock):
    """A second passes whenever somebody looks, once it is let go."""

    tick = 0

    def __call__(self) -> int:
        self.now += self.tick
        return self.now


def _until(devnet: Devnet, end: int) -> Draft:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    return pay(source, ALICE, 10 * ADA, [out(BOB.raw, 2 * ADA)]).set(3, end)


def test_a_last_second_that_passes_meanwhile_loses_nothing_acknowledged() -> None:
    """Judged in the last second in which it holds: the block that is made of it has that second's
    slot.
    """
    clock = TickingClock()
    with Devnet(clock=clock) as devnet:
        draft = _until(devnet, devnet.slot() + 2)
        clock.tick = 1000
        name = devnet.submit(draft.signed())
        with devnet.reading() as view:
            found = view.tx(name)
        assert found is not None and found.block["slot"] == draft.body[3] - 1


def test_no_block_holds_what_its_own_slot_forbids() -> None:
    clock = TickingClock()
    with Devnet(clock=clock, block_ms=NEVER) as devnet:
        draft = _until(devnet, devnet.slot() + 2)
        name = devnet.submit(draft.signed())
        clock.tick = 1000
        devnet.mint()
        with devnet.reading() as view:
            found = view.tx(name)
        assert found is not None and found.block["slot"] < draft.body[3]


def test_a_full_block_leaves_the_rest_for_the_next(devnet: Devnet) -> None:
    """Twelve transactions of 8 kB do not fit into one block of 90,112 bytes."""
    sources = [devnet.faucet(ALICE.address, 10 * ADA) for _ in range(12)]
    devnet.mint()
    names: list[str] = []
    for source in sources:
        metadata = {0: [b"m" * 64] * 120}
        draft = pay(source, ALICE, 10 * ADA, [], fee=ADA).set(7, blake2b(cbor2.dumps(metadata)))
        names.append(devnet.submit(draft.put(auxiliary=metadata).signed()))
    first, second = devnet.mint(), devnet.mint()
    with devnet.reading() as view:
        taken = view.block_txs(first.height, Page()) + view.block_txs(second.height, Page())
        assert 0 < len(view.block_txs(first.height, Page())) < 12
    assert taken == names


def test_slots_and_time_agree(clock: FrozenClock) -> None:
    with Devnet(clock=clock) as devnet:
        start = devnet.system_start
        assert start * 1000 == clock.now
        assert devnet.slot() == 0
        clock.now += 999
        assert devnet.slot() == 0
        clock.now += 1
        assert devnet.slot() == 1
        assert devnet.advance(60_000).slot == 61
        assert devnet.status()["now_ms"] == (start + 61) * 1000


def test_rolled_back_transactions_return_to_the_mempool(devnet: Devnet) -> None:
    paid = devnet.faucet(ALICE.address, 10 * ADA)
    old = devnet.mint()
    devnet.mint(2)
    assert devnet.rollback(3) == [paid.tx]
    assert devnet.status()["height"] == 0
    assert devnet.status()["mempool"] == [paid.tx]
    assert held(devnet, ALICE) == 0
    assert_conserved(devnet)
    new = devnet.mint()
    assert held(devnet, ALICE) == 10 * ADA
    assert new.height == old.height and new.hash != old.hash
    assert_conserved(devnet)


def test_rolled_back_transactions_can_be_dropped(devnet: Devnet) -> None:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    devnet.mint()
    draft = payment(devnet, source, 10 * ADA)
    gone = devnet.submit(draft.signed())
    devnet.mint()
    assert devnet.rollback(1, drop=True) == [gone]
    assert devnet.status()["mempool"] == []
    assert (held(devnet, ALICE), held(devnet, BOB)) == (10 * ADA, 0)
    # The spent output lives again, so the same bytes are good once more.
    assert devnet.submit(draft.signed()) == gone
    devnet.mint()
    assert held(devnet, BOB) == 2 * ADA
    assert_conserved(devnet)


def test_a_dropped_parent_takes_its_waiting_child_along(devnet: Devnet) -> None:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    devnet.mint()
    devnet.submit(payment(devnet, source, 10 * ADA).signed())
    devnet.rollback(1, drop=True)
    assert devnet.status()["mempool"] == []
    assert_conserved(devnet)


@pytest.mark.parametrize("blocks", [0, -1, 4])
def test_no_rollback_beyond_genesis(devnet: Devnet, blocks: int) -> None:
    devnet.mint(3)
    with pytest.raises(DevnetRefusal):
        devnet.rollback(blocks)
    devnet.rollback(3)


def test_accounts_roll_back_too(devnet: Devnet) -> None:
    account = register(devnet, ALICE)
    devnet.reward(account, 5 * ADA)
    source = devnet.faucet(ALICE.address, 10 * ADA)
    devnet.mint()
    draft = payment(devnet, source, 10 * ADA)
    whole = draft.set(5, {ALICE.stake: 5 * ADA}).output(1, draft.body[1][1][1] + 5 * ADA)
    devnet.submit(whole.signed())
    devnet.mint()
    assert devnet.status()["lovelace"]["accounts"] == 0
    assert_conserved(devnet)
    devnet.rollback(1, drop=True)
    assert devnet.status()["lovelace"]["accounts"] == 5 * ADA
    assert_conserved(devnet)
    devnet.submit(whole.signed())
    devnet.rollback(2, drop=True)
    with pytest.raises(LedgerRefusal, match="Missing inputs"):
        devnet.submit(whole.signed())


def test_a_reward_is_paid_once(devnet: Devnet) -> None:
    """Scalus alone would pay it again and again."""
    account = register(devnet, ALICE)
    devnet.reward(account, 5 * ADA)
    coins = [devnet.faucet(ALICE.address, 10 * ADA) for _ in range(2)]
    first, again = (payment(devnet, coin, 10 * ADA) for coin in coins)
    change = first.body[1][1][1]
    devnet.submit(first.set(5, {ALICE.stake: 5 * ADA}).output(1, change + 5 * ADA).signed())
    for _ in ("in the mempool", "in a block"):
        with pytest.raises(LedgerRefusal, match="do not drain"):
            devnet.submit(again.set(5, {ALICE.stake: 5 * ADA}).output(1, change + 5 * ADA).signed())
        devnet.mint()
    devnet.submit(again.set(5, {ALICE.stake: 0}).signed())
    devnet.mint()
    assert_conserved(devnet)


def register(devnet: Devnet, owner: Party) -> str:
    source = devnet.faucet(owner.address, 10 * ADA)
    draft = pay(source, owner, 10 * ADA, [], fee=200_000 + 2 * ADA).set(2, 200_000)
    # With a vote for nobody: without one, a key's rewards stay where they are.
    devnet.submit(draft.set(4, [[12, [0, owner.vkh], [2], 2 * ADA]]).signed())
    devnet.mint()
    return stake_address(owner.vkh, is_script=False)


def test_lag_hides_new_blocks_from_readers_only(devnet: Devnet) -> None:
    devnet.set_lag(2)
    source = devnet.faucet(ALICE.address, 10 * ADA)
    devnet.mint()
    assert held(devnet, ALICE) == 0
    devnet.submit(payment(devnet, source, 10 * ADA).signed())
    devnet.mint()
    assert held(devnet, ALICE) == 0
    devnet.mint()
    assert (held(devnet, ALICE), held(devnet, BOB)) == (10 * ADA, 0)
    devnet.set_lag(0)
    assert held(devnet, BOB) == 2 * ADA


def test_a_restart_continues_the_same_chain(tmp_path: Path, clock: FrozenClock) -> None:
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        account = register(devnet, ALICE)
        devnet.reward(account, 3 * ADA)
        source = devnet.faucet(ALICE.address, 10 * ADA)
        devnet.advance(5_000)
        waiting = devnet.submit(payment(devnet, source, 10 * ADA).signed())
        before, ledger = devnet.status(), by_ledger(devnet)
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        assert devnet.status() == before
        assert by_ledger(devnet) == ledger
        assert devnet.status()["mempool"] == [waiting]
        devnet.mint()
        assert held(devnet, BOB) == 2 * ADA
        # The rebuilt ledger knows the account, its reward and its deposit: it gives both back.
        coin = devnet.faucet(ALICE.address, 10 * ADA)
        draw = pay(coin, ALICE, 10 * ADA, []).set(5, {ALICE.stake: 3 * ADA})
        drawn = OutRef(devnet.submit(draw.output(0, 13 * ADA - 200_000).signed()), 0)
        leave = pay(drawn, ALICE, 13 * ADA - 200_000, []).set(4, [[8, [0, ALICE.vkh], 2 * ADA]])
        devnet.submit(leave.output(0, 15 * ADA - 400_000).signed())
        devnet.mint()
        assert devnet.status()["lovelace"]["deposits"] == 0
        assert_conserved(devnet)


def test_pools_and_delegations_survive_a_restart_by_replay(
    tmp_path: Path, clock: FrozenClock
) -> None:
    with Devnet(tmp_path, clock=clock) as devnet:
        register(devnet, ALICE)
        source = devnet.faucet(ALICE.address, 10 * ADA)
        abstain = [9, [0, ALICE.vkh], [2]]
        devnet.submit(pay(source, ALICE, 10 * ADA, []).set(4, [abstain]).signed())
        devnet.faucet(BOB.address, 3 * ADA)
        ledger = by_ledger(devnet)
    with Devnet(tmp_path, clock=clock) as devnet:
        assert by_ledger(devnet) == ledger
        assert held(devnet, BOB) == 3 * ADA
        assert_conserved(devnet)


def test_one_folder_has_one_owner(tmp_path: Path) -> None:
    with Devnet(tmp_path), pytest.raises(DevnetRefusal, match="another devnet"):
        Devnet(tmp_path)
    Devnet(tmp_path).close()


def test_money_is_conserved_over_everything(devnet: Devnet) -> None:
    """Payments, money sent back to the faucet, a registration, rewards and rollbacks of both
    kinds.
    """
    account = register(devnet, BOB)
    coins = [devnet.faucet(ALICE.address, (10 + i) * ADA) for i in range(6)]
    devnet.mint()
    for i, coin in enumerate(coins):
        devnet.submit(payment(devnet, coin, (10 + i) * ADA).signed())
        if i % 2:
            devnet.mint()
            assert_conserved(devnet)
    devnet.reward(account, 7 * ADA)
    home = devnet.status()["faucet_address"]
    coin = devnet.faucet(ALICE.address, 20 * ADA)
    back = pay(coin, ALICE, 20 * ADA, [out(decode(home, "addr_test"), 4 * ADA)])
    devnet.submit(back.signed())
    devnet.mint()
    assert devnet.status()["lovelace"]["returned"] == 4 * ADA
    assert_conserved(devnet)
    devnet.rollback(2)
    assert_conserved(devnet)
    devnet.mint()
    assert devnet.status()["lovelace"]["returned"] == 4 * ADA
    devnet.rollback(3, drop=True)
    assert_conserved(devnet)


def test_the_index_refuses_what_the_ledger_refuses_twice(devnet: Devnet) -> None:
    source = devnet.faucet(ALICE.address, 10 * ADA)
    raw = payment(devnet, source, 10 * ADA).signed()
    devnet.submit(raw)
    with pytest.raises(LedgerRefusal, match="Missing inputs"):
        devnet.submit(raw)
    devnet.mint()
    with pytest.raises(LedgerRefusal, match="Missing inputs"):
        devnet.submit(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x84\xa0\xa0\xf5\xf6", b"\xff" * 40, b"\x9f" * 5000]
)
def test_bytes_that_are_no_transaction_are_refused(devnet: Devnet, raw: bytes) -> None:
    with pytest.raises(LedgerRefusal):
        devnet.submit(raw)
    devnet.faucet(ALICE.address, 2 * ADA)


def test_collateral_and_references_are_listed(devnet: Devnet) -> None:
    source, other = devnet.faucet(ALICE.address, 10 * ADA), devnet.faucet(ALICE.address, 3 * ADA)
    draft = payment(devnet, source, 10 * ADA).set(18, [ref(other)])
    name = devnet.submit(draft.signed())
    devnet.mint()
    with devnet.reading() as view:
        found = view.tx(name)
        assert found is not None and found.tx.references == [other]
