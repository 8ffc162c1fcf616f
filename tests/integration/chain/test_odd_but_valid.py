"""Whatever a ledger accepts, both readers see the same channel, and nobody loses what was signed.

Settlements in every encoding and shape (:mod:`tests.integration.support.odd_stream`) over at least
twenty channels, with blocks, chains within a block, time, rewards and rollbacks. After each block
the reader of adapter, payer and market, fresh and following, is compared with a second one written
from ``contracts/README.md`` and with the ledger's own unspent outputs. The provider signs no more
than the reader shows, and at the end has every lovelace of it.

A failing run names its seed, a failing transaction its hex.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import cbor2
import pytest

from contracts.devnet import cbor
from contracts.devnet.decoding import output
from contracts.devnet.transaction import OutRef
from marketplace.chain.actions.explain import explain
from marketplace.chain.actions.session import claim
from marketplace.chain.channels.capacity import relied_on
from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    channel_capacity,
    check_channel,
)
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import OutRef as Ref
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.errors import ChannelUnknown, TxRefused
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.channel_refusals import ChannelUnfit
from tests.integration.chain.test_channels import _terms  # pyright: ignore[reportPrivateUsage] (the same facts)
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.integration.support.odd_stream import PERIOD_MS, Chan, Stream
from tests.integration.support.second_reader import (
    CLOSING,
    History,
    Life,
    by_first_row,
    by_looks,
    data,
    life,
    place,
)

_CHANNELS = 20
_DEEPEST = 4  # blocks that a rollback takes: the provider serves for deeper money alone
_BEGINNING_MS = 1_800_000_000_000  # time is the stream's: the same in every run of a seed
_OVER = 8  # blocks after which an end is certain here


@dataclass
class Channel:
    """A channel that is served, as the test follows it."""

    chan: Chan
    live: Live
    last: Life | None = None
    view: ChannelView | None = None
    ended_for: int = 0


@dataclass
class Watch:
    """Every reader of *world*, and what they saw."""

    world: World
    stream: Stream
    snapshot: Snapshot
    market: ChainLedger
    history: History = field(default_factory=History)
    living: dict[OutRef, Channel] = field(default_factory=dict[OutRef, Channel])
    over: list[Channel] = field(default_factory=list[Channel])
    counts: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        scripts = self.world.desk("x").scripts
        self.adapter = ChannelFinder(self.world.chain, scripts)
        self.payer = ChannelFinder(self.world.chain, scripts)

    def add(self, ref: OutRef, chan: Chan) -> None:
        """A channel that was opened."""
        session = chan.owner.session
        assert session is not None
        live = Live(session, Consts(*chan.consts), _ref(ref), chan.amount)
        self.living[ref] = Channel(chan, live)

    async def look(self) -> None:
        """Compares all readers after a block or a rollback."""
        devnet = self.world.devnet
        with devnet.reading() as view:
            self.history.follow(view)
        unspent = {
            OutRef(tx.hex(), ix): raw
            for key, raw in cbor.pairs(devnet.ledger_utxos())
            for tx, ix in [cbor2.loads(key)]
        }
        standing = await self.adapter.standing()
        self._standing(unspent, standing)
        height = (await self.world.chain.tip()).height
        waiting = {tx.id for tx in devnet.waiting()}
        for origin, channel in list(self.living.items()):
            if origin not in self.history.outputs and origin.tx not in waiting:
                del self.living[origin]  # taken back for good, before anybody served
                assert not self.stream.served.get(origin)
                continue
            await self._compare(origin, channel, unspent, standing, height)
            if channel.ended_for > _OVER:
                self.over.append(self.living.pop(origin))
        self.counts["looks"] += 1

    def _standing(self, unspent: dict[OutRef, bytes], standing: dict[Ref, Utxo]) -> None:
        """What the door lists at the stub is what the ledger holds there."""
        stub = self.snapshot.scripts.stub_hash
        held = {r: o for r, raw in unspent.items() if (o := output(raw)).address[1:29] == stub}
        assert {_ref(r) for r in held} == standing.keys()
        for ref, out in held.items():
            seen = standing[_ref(ref)]
            same = place(seen.address) == place(out.address)
            assert same and seen.lovelace == out.lovelace, (seen, out)
            # The ledger keeps a datum's value and writes it in its own form.
            assert (seen.datum is None) == (out.inline_datum is None)
            assert not seen.datum or data(seen.datum) == data(out.inline_datum or b"")

    async def _compare(
        self, origin: OutRef, channel: Channel, unspent: dict[OutRef, bytes],
        standing: dict[Ref, Utxo], height: int,
    ) -> None:  # fmt: skip
        key, ref = channel.live.session.verify_key, channel.live.ref
        fresh = ChannelFinder(self.world.chain, self.snapshot.scripts)
        if origin not in self.history.outputs:
            channel.last, channel.view = None, None
            for finder in (self.adapter, fresh):
                with pytest.raises(ChannelUnknown):
                    await finder.find(key, ref, height)
            return
        second, twice = life(self.history, origin, self.stream.ran)
        self.counts["read in two ways"] += twice
        moved = second != channel.last
        if second.ended and not moved:
            channel.ended_for += 1  # compared when it ended, and no rollback took that back
            return
        found = [await self.adapter.find(key, ref, height, standing)]
        if moved:
            found += [await self.payer.find(key, ref), await fresh.find(key, ref, height)]
            await self._as_market(origin, channel, second)
            self._careless(origin, second)
        for seen in found:
            self._same(origin, channel, second, seen)
        channel.last = second
        channel.view = found[0] if isinstance(found[0], ChannelView) else None
        channel.ended_for = 0
        if second.ended:
            assert second.claimed >= self.stream.served.get(origin, 0), self._blame(second)
            return
        held = output(unspent[second.ref])
        assert held.inline_datum is not None
        state = data(held.inline_datum)
        assert (state.number, state.fields[1], held.lovelace) == (
            second.stage, second.claimed, second.amount,
        ), self._blame(second)  # fmt: skip

    def _same(
        self, origin: OutRef, channel: Channel, second: Life, seen: ChannelView | ChannelEnded
    ) -> None:
        self.counts["compared"] += 1
        blame = self._blame(second)
        if isinstance(seen, ChannelEnded):
            told = (second.ended, second.claimed, second.amount, second.funded, second.ref.tx)
            assert told == (
                True,
                seen.claimed,
                seen.refunded,
                seen.funded,
                seen.finished_by.hex(),
            ), blame
            return
        assert not second.ended, blame
        told = (second.stage == CLOSING, second.claimed, second.amount, _ref(second.ref))
        assert told == (seen.closing, seen.claimed, seen.amount, seen.utxo.ref), blame
        can = channel_capacity(self.snapshot, seen)
        assert can.most == max(0, second.funded - can.reserve), blame
        assert can.most <= max(0, second.amount + second.claimed - can.reserve), blame
        assert can.now <= can.most and self.stream.served.get(origin, 0) <= can.most, blame
        adapter = channel.chan.owner.adapter
        assert adapter is not None
        terms = _terms(channel.live, Provider("odd"), adapter_vk=adapter.verify_key)
        if seen.closing:
            with pytest.raises(ChannelUnfit):
                check_channel(terms, seen, self.snapshot)
        else:
            assert check_channel(terms, seen, self.snapshot) == can, blame

    async def _as_market(self, origin: OutRef, channel: Channel, second: Life) -> None:
        seen = await self.market.channel(_terms(channel.live, Provider("odd")), origin.tx)
        assert seen is not None
        if second.ended:
            assert (seen.state, seen.claimed) == ("ENDED", second.claimed), self._blame(second)
            return
        state = "CLOSING" if second.stage == CLOSING else "OPEN"
        told = (state, second.amount, second.claimed, str(_ref(second.ref)))
        assert told == (seen.state, seen.value, seen.claimed, seen.ref), self._blame(second)

    def _careless(self, origin: OutRef, second: Life) -> None:
        """Readers that must be caught on this very stream."""
        if by_first_row(self.history, origin) != second:
            self.counts["first row: caught"] += 1
        looks = by_looks(self.history, origin)
        if (looks is None) != second.ended or (looks and looks.ref != second.ref):
            self.counts["by its looks: caught"] += 1

    def serve(self) -> None:
        """The provider signs for what it sees, and for deep money alone."""
        for origin, channel in self.living.items():
            view = channel.view
            if view is None or view.closing:
                continue
            deep = [f for f in view.fundings if f.depth > _DEEPEST]
            most = relied_on(deep) - channel_capacity(self.snapshot, view).reserve
            now = self.stream.served.get(origin, 0)
            if most > now:
                self.stream.served[origin] = self.stream.rng.randint(now, most)

    def rescue(self) -> None:
        """The provider claims whatever it sees closing, in time."""
        for origin, channel in self.living.items():
            if channel.view is not None and channel.view.closing:
                book = self.stream.book.chans.values()
                now = next((c for c in book if c.origin == origin), None)
                if now is not None and now.claimed < self.stream.served.get(origin, 0):
                    self.stream.claim(now)

    def _blame(self, second: Life) -> str:
        made = self.stream.made.get(second.ref.tx)
        return f"{second}; its last transaction: {made.raw.hex() if made else 'none'}"


def _ref(ref: OutRef) -> Ref:
    return Ref(bytes.fromhex(ref.tx), ref.ix)


async def _explained(world: World, stream: Stream, tx_id: str) -> bool:
    """Whoever is asked to sign is shown what settle ran, or nothing."""
    raw = stream.made[tx_id].raw
    try:
        shown = await explain(world.chain, raw, [])
    except TxRefused:
        return False
    assert len(txbytes.settle_redeemers(raw)) == 1, raw.hex()
    words = ("pay the", "end ch", "end ch", "top up", "close ")
    assert [step.line[:6] for step in shown.steps] == [words[k][:6] for k in stream.ran[tx_id]]
    return True


async def _settle_at_the_end(world: World, watch: Watch) -> None:
    """Anybody submits: everything that was signed and is not claimed yet is."""
    world.fund("settler", 500 * ADA)
    watch.stream.mint()
    await watch.look()
    for channel in list(watch.living.values()):
        origin = next(o for o, c in watch.living.items() if c is channel)
        signed = watch.stream.served.get(origin, 0)
        view = channel.view
        if view is not None and view.claimed < signed:
            payouts = {view.consts.payout: channel.chan.owner.payout_address}
            await claim(world.desk("settler"), [(view, channel.live.voucher(signed))], payouts)
            world.devnet.mint()
            watch.stream.kinds["claimed at the end by a stranger"] += 1
    await watch.look()
    for channel in (*watch.living.values(), *watch.over):
        signed = watch.stream.served.get(_origin(channel), 0)
        assert channel.last is not None and channel.last.claimed >= signed, channel
    watch.counts["signed, in lovelace"] = sum(watch.stream.served.values())


def _origin(channel: Channel) -> OutRef:
    return OutRef(channel.live.ref.tx_id.hex(), channel.live.ref.index)


async def _go(world: World, seed: int, count: int) -> tuple[Watch, Stream]:
    rng = Random(seed)
    scripts = world.desk("x").scripts
    snapshot = await world.chain.snapshot(scripts)
    deployed, _ = snapshot.deployed
    reference = [OutRef(one.tx_id.hex(), one.index) for one in (deployed.settle, deployed.stub)]
    stream = Stream(world.devnet, rng, snapshot.params, (reference[0], reference[1]))
    watch = Watch(world, stream, snapshot, ChainLedger(world.chain, None))
    stream.fund(6)
    for ref, chan in [one for _ in range(4) for one in stream.open(5)]:
        watch.add(ref, chan)
    for _ in range(_DEEPEST + 1):
        stream.mint()
    await watch.look()
    watch.serve()
    highest = 0
    while stream.sent < count:
        watch.rescue()
        while len(watch.living) < _CHANNELS:
            for ref, chan in stream.open(min(5, _CHANNELS - len(watch.living))):
                watch.add(ref, chan)
        if not stream.kinds["made to be read in two ways"] or rng.random() < 0.15:
            for ref, chan in stream.read_in_two_ways():
                watch.add(ref, chan)
        last = [stream.settle() for _ in range(rng.randint(1, 6))]
        stream.mint()
        await watch.look()
        for made in [one for one in last if one is not None][:1]:
            tx_id = next(i for i, one in stream.made.items() if one is made)
            watch.counts[
                "explained" if await _explained(world, stream, tx_id) else "not explained"
            ] += 1
        watch.serve()
        event = rng.random()
        highest = max(highest, *stream.heights)
        if event < 0.12:
            room = max(stream.heights) - highest + _DEEPEST  # several in a row are no deeper
            blocks = min(rng.randint(1, _DEEPEST), room)
            if blocks > 0:
                stream.rollback(blocks, drop=rng.random() < 0.4)
                await watch.look()
        elif event < 0.2:
            watch.rescue()
            stream.advance(rng.choice((PERIOD_MS // 2, PERIOD_MS + 700_000)))
            await watch.look()
        elif event < 0.25:
            stream.mint()
            stream.reward(rng.randint(1, 3 * ADA))
            await watch.look()
    await _settle_at_the_end(world, watch)
    return watch, stream


def _check(seed: int, count: int) -> None:
    async def story(world: World) -> None:
        print(f"seed {seed}")
        watch, stream = await _go(world, seed, count)
        print(dict(watch.counts), dict(sorted(stream.kinds.items())))
        assert stream.sent >= count
        assert count < 100 or stream.kinds["pointer"]
        assert watch.counts["read in two ways"] and watch.counts["signed, in lovelace"]
        assert watch.counts["first row: caught"] and watch.counts["by its looks: caught"]

    run(story, block_ms=BY_HAND, clock=lambda: _BEGINNING_MS)


def test_both_readers_agree_on_whatever_the_ledger_takes() -> None:
    _check(7, 20)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3, 8))
def test_five_thousand_odd_settlements(seed: int) -> None:
    """On five ledgers, a thousand each: what a rollback costs grows with all that is on one."""
    _check(seed, 1_000)
