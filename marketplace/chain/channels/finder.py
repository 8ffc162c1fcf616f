"""A channel from the chain alone: which output it is now, and whether it is what the terms say.

The channel is the output that descends from its open transaction, step by step; copies of its datum
elsewhere are ignored. What binds is what the ledger holds: stage, claimed and top-ups follow from
addresses, datums and values of the channel's own outputs
(:mod:`marketplace.chain.channels.descent`), and at every look what was put in less what was claimed
is what the output holds. An unmoved channel costs one request a look: its last known output is
asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from marketplace.chain.build.plans import reserve
from marketplace.chain.channels import capacity, descent
from marketplace.chain.channels.capacity import Capacity, Funding
from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.chain.node.answers import Moves
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.snapshot import Scripts, Snapshot
from marketplace.domain.errors import Malformed
from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.channel import Channel, Closing, Consts, Open, Stage
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.transaction import FINAL_DEPTH, depth

_MOST_STEPS: Final = 10_000


@dataclass(frozen=True)
class ChannelView:
    """A living channel as the chain shows it at *height*.

    *fundings* are what open and top-ups put in, with their depths; *first* its output when opened;
    *claimed_by* the transaction that claimed from it last, empty before the first.
    """

    session_vk: bytes
    utxo: Utxo
    stage: Stage
    first: Utxo
    fundings: tuple[Funding, ...]
    height: int
    unit: bytes = b""
    claimed_by: bytes = b""

    @property
    def consts(self) -> Consts:
        """What it keeps for life."""
        return self.stage.consts

    @property
    def claimed(self) -> int:
        """What the provider has on chain."""
        return self.stage.claimed

    @property
    def closing(self) -> bool:
        """Whether the consumer wants out: take no work, claim at once."""
        return isinstance(self.stage, Closing)

    @property
    def amount(self) -> int:
        """What it holds of its asset."""
        return self.utxo.quantity(self.unit)

    @property
    def channel(self) -> Channel:
        """As the twin sees it."""
        return datum.read_channel(self.utxo, self.unit)

    @property
    def depth(self) -> int:
        """Blocks over its youngest money."""
        return min(f.depth for f in self.fundings)


@dataclass(frozen=True)
class ChannelEnded:
    """A finished channel: what was claimed over its life, where, and at which block; *funded* is
    what open and top-ups had put in; *claimed_by* the transaction that took from it last, if one
    did.
    """

    session_vk: bytes
    claimed: int
    refunded: int
    finished_by: bytes
    height: int
    funded: int = 0
    claimed_by: bytes = b""


@dataclass
class _Trail:
    """What is known of one channel: its output now, and each transaction that put money in."""

    at: OutRef
    funded: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    heights: dict[bytes, int] = field(default_factory=dict[bytes, int])
    first: Utxo | None = None
    claimed_by: bytes = b""


class ChannelFinder:
    """Finds channels of one instance; remembers where each was last seen."""

    def __init__(self, chain: ChainReader, scripts: Scripts, unit: bytes = b"") -> None:
        self._chain = chain
        self._scripts = scripts
        self._unit = unit
        self._trails: dict[bytes, _Trail] = {}

    async def standing(self) -> dict[OutRef, Utxo]:
        """Every output of the instance's channels, anybody's, that is unspent now: one question."""
        found = await self._chain.utxos_of_script(self._scripts.stub_hash)
        return {utxo.ref: utxo for utxo in found}

    async def claimable(self, session_vk: bytes, payout: bytes) -> list[ChannelView]:
        """Every unspent output of the instance that names this key and pays this provider (its
        payout hash), whatever led to it. For claims alone, where the channel itself cannot be read:
        its voucher is good for each of them.
        """
        found: list[ChannelView] = []
        for utxo in (await self.standing()).values():
            alone = utxo.script_hash is None and all(u == self._unit for u, _ in utxo.assets)
            if not alone or not self._is_channel(utxo, session_vk):
                continue  # settle never makes the other
            stage = datum.read_stage(utxo.datum or b"")
            funding = Funding(stage.claimed + utxo.quantity(self._unit), 0)
            view = ChannelView(session_vk, utxo, stage, utxo, (funding,), 0, self._unit)
            found += [view] if stage.consts.payout == payout and stage.claimed >= 0 else []
        return found

    async def find(
        self,
        session_vk: bytes,
        origin: OutRef,
        height: int | None = None,
        standing: Mapping[OutRef, Utxo] = MappingProxyType({}),
    ) -> ChannelView | ChannelEnded:
        """The channel that *origin* opened. *height* is the tip's, where the caller knows it; a
        channel whose last known output is in *standing* has not moved and is not asked for.

        :class:`ChannelUnknown` if the open transaction is in no block or opened something else.
        """
        if height is None:
            height = (await self._chain.tip()).height
        trail = self._trails.get(session_vk)
        if trail is not None and (still := standing.get(trail.at)) is not None:
            return await self._view(session_vk, trail, still, height)
        if trail is not None:
            moves = await self._chain.moves(trail.at.tx_id)
            if moves is not None:
                return await self._walk(session_vk, trail, moves, height)
            self._trails.pop(session_vk)  # rolled back: descend from the open transaction again
        moves = await self._chain.moves(origin.tx_id)
        if moves is None:
            raise ChannelUnknown(f"no block holds the open transaction {origin}")
        trail = self._begin(session_vk, origin, moves)
        return await self._walk(session_vk, trail, moves, height)

    def _begin(self, session_vk: bytes, origin: OutRef, moves: Moves) -> _Trail:
        output = next((o for o in moves.outputs if o.utxo.ref == origin), None)
        if output is None or not self._is_channel(output.utxo, session_vk):
            whose = f"session key {session_vk.hex()[:16]}"
            raise ChannelUnknown(f"{origin} is no channel of {whose}", in_block=True)
        trail = _Trail(origin, [(origin.tx_id, output.utxo.quantity(self._unit))])
        trail.first = output.utxo
        return trail

    def _is_channel(self, utxo: Utxo, session_vk: bytes) -> bool:
        try:
            found = datum.read_channel(utxo, self._unit)
        except Malformed:
            return False
        payment = found.address.payment
        ours = payment.is_script and payment.hash == self._scripts.stub_hash
        return ours and found.stage.consts.session_vk == session_vk

    async def _walk(
        self, session_vk: bytes, trail: _Trail, moves: Moves, height: int
    ) -> ChannelView | ChannelEnded:
        for _ in range(_MOST_STEPS):
            output = next((o for o in moves.outputs if o.utxo.ref == trail.at), None)
            if output is None:
                raise ChainFault("the indexer forgot an output of a transaction that it knows")
            if output.spent_by is None:
                self._trails[session_vk] = trail
                return await self._view(session_vk, trail, output.utxo, height)
            onward = await self._chain.moves(output.spent_by)
            if onward is None:
                raise ChainFault(
                    "the indexer names a spending transaction that it does not know yet"
                )
            landing = await self._landing(output.utxo, onward, output.spent_by)
            landed = onward.outputs[landing.position].utxo
            if landing.ended:
                return await self._ended(trail, output.utxo, landed, output.spent_by)
            added = self._added(output.utxo, landed)
            if added:
                trail.funded.append((output.spent_by, added))
            if _claimed(landed) > _claimed(output.utxo):
                trail.claimed_by = output.spent_by
            trail.at, moves = landed.ref, onward
        raise ChainFault("the channel's history does not end")

    async def _landing(self, utxo: Utxo, moves: Moves, tx_id: bytes) -> descent.Landing:
        """Where the rest of *utxo* is after this transaction."""
        try:
            outputs = [o.utxo for o in moves.outputs]
            possible = descent.landings(utxo.ref, moves.inputs, outputs, self._unit)
            if len(possible) == 1:
                return next(iter(possible))
            raw = await self._chain.transaction_bytes(tx_id) if possible else None
            told = txbytes.settle_redeemers(raw) if raw is not None else ()
            if told:
                landing = descent.landing_told(told[-1], utxo.ref, moves.inputs)
                if landing in possible:
                    return landing
        except Malformed as error:
            raise ChainFault(f"transaction {tx_id.hex()} cannot be read: {error}") from error
        readings = f"{len(possible)} readings" if possible else "no reading"
        raise ChainFault(f"transaction {tx_id.hex()} spends a channel and has {readings}")

    def _added(self, before: Utxo, after: Utxo) -> int:
        """What a top-up put in between two outputs of the channel; 0 for a claim or a Close."""
        old, new = datum.read_stage(before.datum or b""), datum.read_stage(after.datum or b"")
        if new.consts != old.consts:
            raise ChainFault(f"the channel's constants changed at {after.ref}")
        grown = after.quantity(self._unit) - before.quantity(self._unit)
        return grown + new.claimed - old.claimed

    async def _ended(
        self, trail: _Trail, utxo: Utxo, refund: Utxo, finished_by: bytes
    ) -> ChannelEnded:
        stage = datum.read_stage(utxo.datum or b"")
        refunded = refund.quantity(self._unit)
        claimed = stage.claimed + utxo.quantity(self._unit) - refunded
        included = await self._chain.transaction(finished_by)
        height = included.height if included else 0
        funded = sum(amount for _, amount in trail.funded)
        by = finished_by if claimed > stage.claimed else trail.claimed_by
        return ChannelEnded(
            stage.consts.session_vk, claimed, refunded, finished_by, height, funded, by
        )

    async def _view(self, session_vk: bytes, trail: _Trail, utxo: Utxo, height: int) -> ChannelView:
        fundings: list[Funding] = []
        for tx_id, amount in trail.funded:
            known = trail.heights.get(tx_id)
            if known is None or depth(height, known) < FINAL_DEPTH:  # a rollback may move it
                included = await self._chain.transaction(tx_id)
                known = included.height if included else height + 1
                trail.heights[tx_id] = known
            fundings.append(Funding(amount, depth(height, known), tx_id))
        assert trail.first is not None
        stage = datum.read_stage(utxo.datum or b"")
        funded = sum(f.amount for f in fundings)
        claimed = stage.claimed - datum.read_stage(trail.first.datum or b"").claimed
        if funded - claimed != utxo.quantity(self._unit):
            raise ChainFault(
                f"{utxo.ref} holds {utxo.quantity(self._unit)}, but {funded} were put in and"
                f" {claimed} claimed: the chain's door does not tell all of its history"
            )
        return ChannelView(
            session_vk, utxo, stage, trail.first, tuple(fundings), height, self._unit,
            trail.claimed_by,
        )  # fmt: skip

    async def at_address(self, address: bytes) -> list[Utxo]:
        """Every output at *address* that reads as a channel (a consumer's own; copies included)."""
        found = await self._chain.utxos(address)
        return [u for u in found if _reads(lambda u=u: datum.read_channel(u, self._unit))]


def _claimed(utxo: Utxo) -> int:
    return datum.read_stage(utxo.datum or b"").claimed


def _reads(read: Callable[[], object]) -> bool:
    try:
        read()
    except Malformed:
        return False
    return True


def channel_capacity(snapshot: Snapshot, view: ChannelView) -> Capacity:
    """What *view* can pay, beside the reserve that Close and the refund need (a token channel's
    reserve is lovelace of its own, so none of the token is held back).
    """
    kept = reserve(snapshot, _out(view.utxo), view.unit)
    return capacity.capacity(view.fundings, 0 if view.unit else kept)


def takeable(snapshot: Snapshot, view: ChannelView, signed: int) -> int:
    """What a voucher over *signed* takes from the output of *view* now."""
    if view.unit and view.utxo.lovelace < reserve(snapshot, _out(view.utxo), view.unit):
        return 0
    return max(
        0,
        min(
            signed - view.claimed, channel_capacity(snapshot, view).most - view.claimed, view.amount
        ),
    )


def check_channel(agreed: Agreed, view: ChannelView, snapshot: Snapshot) -> Capacity:
    """What adapter and payer both demand before they serve or sign, and how much to rely on.

    :class:`~marketplace.domain.money.channel_refusals.ChannelUnfit` says which fact differs from
    what was *agreed*.
    """
    facts = (
        (agreed.magic == snapshot.magic, "it was agreed for another network"),
        (agreed.session_vk == view.session_vk, "it is another session key's"),
        (bytes.fromhex(agreed.asset) == view.unit, "it holds another asset"),
        (all(unit == view.unit for unit, _ in view.utxo.assets), "it holds foreign tokens"),
        (view.utxo.script_hash is None, "it carries a reference script"),
        (not view.closing, "it is closing"),
    )
    for holds, why in facts:
        if not holds:
            raise ChannelUnfit(f"channel {view.session_vk.hex()[:16]}: {why}")
    opened = datum.read_channel(view.first, view.unit)
    stake = opened.address.stake
    at = Address(Credential(snapshot.scripts.stub_hash, True), stake)
    twin.check_channel(opened, at, agreed.consts(), 0)
    if not isinstance(view.stage, Open) or view.consts != agreed.consts():
        raise ChannelUnfit(f"channel {view.session_vk.hex()[:16]}: its stage or constants differ")
    kept = reserve(snapshot, _out(view.utxo), view.unit)
    if view.unit and view.utxo.lovelace < kept:
        raise ChannelUnfit(
            f"channel {view.session_vk.hex()[:16]}: it lacks the lovelace to be closed"
        )
    return channel_capacity(snapshot, view)


def _out(utxo: Utxo) -> Out:
    return Out(utxo.address, utxo.lovelace, utxo.assets, utxo.datum)


def at_depth(view: ChannelView, depth: int) -> ChannelView:
    """*view* as if every funding lay *depth* blocks deep: for a quote before the open
    transaction.
    """
    return replace(view, fundings=tuple(replace(f, depth=depth) for f in view.fundings))
