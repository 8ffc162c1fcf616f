"""Every kind of transaction that this product makes, through the doors that its users take, on one
devnet and in one asset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import cbor2
import pytest

from marketplace.chain.actions import external_wallet
from marketplace.chain.actions.mint import mint_token
from marketplace.chain.actions.session import (
    claim,
    close_channel,
    deploy,
    finish_channels,
    pay,
    settle,
    top_up,
)
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.chain.settlement import fitting
from marketplace.chain.settlement.next_step import Policy
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.settlement.watchtower import Watchtower
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.signing import Unsigned
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts, TopUp
from tests.integration.support.chain import ADA, Live, Provider, World, key
from tests.integration.support.second_ledger import PREVIEW_START_MS, Recorded, Recorder
from tests.requires import need_devnet

_SINCE_MS = 110_000_000_000  # so that slots are as wide as preview's are today
_MANY = 10
_HOUR_MS = 3_600_000


def recorded(token: bool, home: Path) -> Recorder:
    """All of them, taken by a devnet whose slots are preview's."""
    need_devnet()
    from contracts.devnet.server import serve

    with (
        pytest.MonkeyPatch.context() as patch,
        serve(block_ms=0, clock=lambda: PREVIEW_START_MS) as served,
    ):
        served.devnet.advance(_SINCE_MS)
        recorder = Recorder(served.devnet)

        async def main() -> None:
            world = World(served, await connect(served.url))
            if token:
                world.fund("consumer", 3_000 * ADA)
                with recorder.kind("mint"):
                    unit = await mint_token(
                        world.desk("consumer"), b"tUSD", 10**13, world.wallet("consumer").address
                    )
                world = World(served, world.chain, unit.hex())
            await _Story(world, recorder).everything(home)

        with recorder.listening(patch):
            anyio.run(main)
        return recorder


class _Story:
    def __init__(self, world: World, recorder: Recorder) -> None:
        self.world, self.rec = world, recorder
        self.one = Provider("one")
        self.each = [Provider(f"each {n}") for n in range(_MANY)]
        self.payouts = {p.payout: p.payout_address for p in (self.one, *self.each)}

    async def everything(self, home: Path) -> None:
        for name in ("deployer", "consumer", "settler", "tower", "stranger", "wallet"):
            self.world.fund(name, 20_000 * ADA)
        with self.rec.kind("deploy"):
            await deploy(self.world.desk("deployer"))
        await self.payments(home)
        await self.opens_and_top_ups()
        await self.claims()
        await self.batches()
        await self.ends()

    # ---- plain ones ----
    async def payments(self, home: Path) -> None:
        to = self.world.wallet("wallet").address
        with self.rec.kind("payment"):
            await pay(self.world.desk("consumer"), [Out(to, 40 * ADA)])
            await pay(self.world.desk("consumer"), [Out(to, 5 * ADA), Out(to, 7 * ADA)])
        purse = Purse.create(home, passphrase="a long one for a test")
        till = Till(purse, self.world.chain)
        self.world.devnet.faucet(till.address, 60 * ADA)
        with self.rec.kind("purse: pay, sweep"):
            await till.pay(to, 3 * ADA)
            await till.sweep(to)

    # ---- the consumer's ----
    async def opens_and_top_ups(self) -> None:
        [self.first] = await self.open(self.one, 1)
        self.many = await self.open(self.one, _MANY)
        [self.bounty] = await self.open(self.one, 1, fee_bps=50)
        with self.rec.kind("top-up of one"):
            await top_up(self.world.desk("consumer"), await self.world.view(self.first), 5 * ADA)
        await self.consumers(self.many, "top-up of many", TopUp(5 * ADA))
        if not self.world.asset:
            await self.by_a_wallet()

    async def open(self, provider: Provider, count: int, fee_bps: int = 0) -> list[Live]:
        kind = "open with a bounty" if fee_bps else "open of one" if count == 1 else "open of many"
        with self.rec.kind(kind):
            amounts = [40 * ADA] * count
            return await self.world.open("consumer", provider, amounts, fee_bps=fee_bps)

    async def consumers(self, lives: Sequence[Live], kind: str, step: TopUp) -> None:
        me = self.world.wallet("consumer").signer
        views = await self.views(lives)
        batch = Batch(
            tuple(Move(v.utxo, step) for v in views), {}, (me.key_hash,), unit=views[0].unit
        )
        with self.rec.kind(kind):
            await settle(self.world.desk("consumer"), batch, "top up")

    async def by_a_wallet(self) -> None:
        """A CIP-30 wallet: what is built for it, signed elsewhere."""
        me = self.world.wallet("wallet")
        session = key("session of the wallet")
        assert me.stake is not None
        consts = Consts(
            session.verify_key, self.one.adapter.key_hash, self.one.payout,
            me.signer.key_hash, 24 * _HOUR_MS, 0,
        )  # fmt: skip
        opening = Opening(30 * ADA, lambda _r, _i: consts, Credential(me.stake))
        made = await external_wallet.unsigned_open(self.world.chain, await self.wallet(), [opening])
        [utxo, *_] = await self.signed_elsewhere(made, "open by a wallet")
        live = Live(session, consts, utxo.ref, 30 * ADA)
        view = await self.world.view(live)
        more = await external_wallet.unsigned_top_up(
            self.world.chain, await self.wallet(), view, 4 * ADA
        )
        await self.signed_elsewhere(more, "top-up by a wallet")
        view = await self.world.view(live)
        close = await external_wallet.unsigned_close(self.world.chain, await self.wallet(), view)
        await self.signed_elsewhere(close, "close by a wallet")

    async def wallet(self) -> external_wallet.ForeignWallet:
        at = self.world.wallet("wallet").address
        return external_wallet.ForeignWallet(at, tuple(await self.world.chain.utxos(at)))

    async def signed_elsewhere(self, unsigned: Unsigned, kind: str) -> tuple[Utxo, ...]:
        me = self.world.wallet("wallet").signer
        self.rec.keys[me.key_hash] = me
        witness = cbor2.dumps({0: [[me.verify_key, me.sign(unsigned.tx_id)]]})
        with self.rec.kind(kind):
            signed = external_wallet.signed_by_wallet(unsigned, witness)
            sent = await send(self.world.chain, MemoryLog(), signed, kind)
        return sent.made

    # ---- claims ----
    async def claims(self) -> None:
        await self.claim("claim of one", [self.first], 3 * ADA)
        await self.claim("claim again, down to the reserve", [self.first], None)
        await self.claim("claim with a bounty", [self.bounty], 4 * ADA)
        await self.claim("claim of many, one payee", self.many, 3 * ADA)
        each = [live for p in self.each for live in await self.open(p, 1)]
        await self.claim("claim of many, a payee each", each, 3 * ADA)
        account = addresses.stake_account(self.world.desk("x").scripts.settle_hash, False)
        self.rec.reward(account, 1_234_567)
        await self.claim("claim that takes settle's rewards", [self.bounty], 9 * ADA)
        await self.most("claim, the most", 50)

    async def claim(self, kind: str, lives: Sequence[Live], due: int | None) -> None:
        views = await self.views(lives)
        claims = [
            (v, live.voucher(due if due is not None else v.claimed + v.amount - 5 * ADA))
            for v, live in zip(views, lives, strict=True)
        ]
        with self.rec.kind(kind):
            await claim(self.world.desk("settler"), claims, self.payouts)

    async def most(self, kind: str, count: int) -> None:
        """As many claims as one transaction holds."""
        lives = [x for _ in range(2) for x in await self.open(self.one, count // 2)]
        desk = self.world.desk("settler")
        snapshot, funds, fresh = await desk.look()
        views = await self.views(lives)
        moves = tuple(
            Move(v.utxo, plans.claim_step(live.voucher(3 * ADA)))
            for v, live in zip(views, lives, strict=True)
        )
        batch = Batch(moves, self.payouts, unit=views[0].unit, reserve_collateral=True)
        planned = fitting.fit(snapshot, funds, batch)
        assert len(planned.moves) < count
        with self.rec.kind(kind):
            await desk.send(await desk.finish(planned.draft, fresh), "claim")

    async def views(self, lives: Sequence[Live]) -> list[ChannelView]:
        return [await self.world.view(live) for live in lives]

    # ---- several parties at once ----
    async def batches(self) -> None:
        a, b, c = await self.open(self.one, 3)
        [d] = await self.open(self.each[0], 1)
        views = await self.views((a, b, c, d))
        steps = [
            plans.claim_step(a.voucher(4 * ADA)), plans.finish_step(b.voucher(3 * ADA), 0),
            TopUp(5 * ADA), plans.claim_step(d.voucher(9 * ADA), take_to=6 * ADA),
        ]  # fmt: skip
        me = self.world.wallet("consumer").signer
        batch = Batch(
            tuple(Move(v.utxo, s) for v, s in zip(views, steps, strict=True)),
            self.payouts, (me.key_hash, self.one.adapter.key_hash), unit=views[0].unit,
        )  # fmt: skip
        with self.rec.kind("mixed batch"):
            await settle(self.world.desk("consumer"), batch, "mixed", self.one.adapter)
        drained = [await self.open(p, 1) for p in self.each[:4]]
        wanted = [
            Wanted(live.session.verify_key, live.ref, live.voucher(4 * ADA),
                   provider.payout_address, drain=True)
            for provider, [live] in zip(self.each, drained, strict=False)
        ]  # fmt: skip
        gifts = Policy(gift_most=2 * ADA)
        with self.rec.kind("settler's round"):
            done = await Settler(self.world.desk("settler", MemoryLog()), gifts).round(wanted)
            assert done.sent and not done.refused
        ended = await self.open(self.one, 3)
        wanted = [
            Wanted(x.session.verify_key, x.ref, x.voucher(4 * ADA), self.one.payout_address, end=True)
            for x in ended
        ]  # fmt: skip
        own = Policy(own_payouts=frozenset({self.one.payout}))
        adapters = Settler(self.world.desk("settler", MemoryLog()), own, adapter=self.one.adapter)
        with self.rec.kind("settler's round of an adapter"):
            done = await adapters.round(wanted)
            assert done.sent and not done.refused

    # ---- ends ----
    async def ends(self) -> None:
        closing = await self.open(self.one, 4)
        for live in closing:
            with self.rec.kind("close of one"):
                await close_channel(self.world.desk("consumer"), await self.world.view(live))
        await self.close_many()
        rescued, from_closing, unclaimed, empty = closing
        entry = Wanted(
            rescued.session.verify_key, rescued.ref, rescued.voucher(9 * ADA),
            self.one.payout_address,
        )  # fmt: skip
        with self.rec.kind("claim from Closing by a watchtower"):
            tower = Watchtower(self.world.desk("tower"), gift_most=2 * ADA)
            [done], _ = await tower.look({self.world.asset: [entry]})
            assert done.sent and not done.refused
        await self.finish("finish by the adapter from Closing", [from_closing], 3 * ADA)
        await self.finish("finish by the adapter, with a voucher", await self.open(self.one, 1), 3 * ADA)  # fmt: skip
        await self.finish("finish by the adapter, without", await self.open(self.one, 1), None)
        await self.finish("finish by the adapter of many", await self.open(self.one, _MANY), 3 * ADA)  # fmt: skip
        self.world.devnet.advance(25 * _HOUR_MS)
        payouts = self.payouts
        desk = self.world.desk("stranger")
        with self.rec.kind("finish by a stranger, with a voucher"):
            view = await self.world.view(unclaimed)
            await finish_channels(desk, [(view, unclaimed.voucher(4 * ADA))], payouts)
        with self.rec.kind("finish by a stranger, without"):
            await finish_channels(desk, [(await self.world.view(empty), None)], {})
        with self.rec.kind("finish by a stranger of many"):
            left = [(v, None) for v in await self.views(self.closed)]
            await finish_channels(desk, left, {})

    async def close_many(self) -> None:
        self.closed = await self.open(self.one, _MANY)
        views = await self.views(self.closed)
        me = self.world.wallet("consumer").signer
        until_ms = (await self.world.chain.tip()).time_ms + 300_000
        moves = tuple(m for v in views for m in plans.closing_batch(v.utxo, me.key_hash, 0).moves)
        batch = Batch(moves, {}, (me.key_hash,), until_ms=until_ms, unit=views[0].unit)
        with self.rec.kind("close of many"):
            await settle(self.world.desk("consumer"), batch, "close")

    async def finish(self, kind: str, lives: Sequence[Live], due: int | None) -> None:
        views = await self.views(lives)
        ends = [
            (v, live.voucher(due) if due is not None else None)
            for v, live in zip(views, lives, strict=True)
        ]
        with self.rec.kind(kind):
            await finish_channels(self.world.desk("settler"), ends, self.payouts, self.one.adapter)


def kinds(recorder: Recorder) -> dict[str, list[Recorded]]:
    """By kind, in the order in which they came."""
    found: dict[str, list[Recorded]] = {}
    for one in recorder.taken:
        found.setdefault(one.kind, []).append(one)
    return found
