"""Ends that others pay for: offered to the market, which puts many adapters' into one transaction.

The market is believed in nothing. What it proposes is judged by
:mod:`marketplace.chain.settlement.consent` against what this adapter's own door to the chain shows
and what its journal says is due. A signature that was given lies in the journal first, as a
transaction in flight: until a block holds it or its time to live is over, the adapter sends nothing
of its own for that output of the channel. No such transaction may live longer
than the adapter waits; then it ends the channel by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
import structlog

from adapter.core.state import Channel
from adapter.money.journal_log import JournalLog
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.node.at_once import at_once
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import CONSENT, TxRecord
from marketplace.chain.settlement.consent import (
    ConsentRefused,
    Ending,
    Known,
    check,
    consent,
    to_resolve,
)
from marketplace.chain.settlement.next_step import (
    Due,
    Policy,
    batch_until_ms,
    batched_end,
    next_step,
)
from marketplace.chain.transaction.scripts import unit_of
from marketplace.chain.transaction.snapshot import Scripts, Snapshot
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import Finish
from marketplace.domain.protocol import codec, wire

AGAIN_MS: Final = 60_000
"""An offer is said again: the market's process may be another one by now."""
MOST_INPUTS: Final = 64
"""Of a proposal: each is asked of our own door."""
MOST_ROUNDS: Final = 12
ROUNDS_MS: Final = 600_000
"""So many proposals are looked at in so long: a market cannot fill the journal with them."""

_log = structlog.get_logger("adapter.ends")


class Door(Protocol):
    """The way to the market."""

    def can(self, capability: str) -> bool:
        """Whether the market that last welcomed us has it."""
        ...

    def send(self, message: wire.Message, number: int | None = None) -> None:
        """Now, or after the next welcome."""
        ...


@dataclass(frozen=True)
class _Offer:
    ending: Ending
    signed: int
    until_ms: int
    message: wire.EndOffered


class SharedEnds:
    """The ends that one adapter has on offer. *signing* is held by whoever of it signs anything
    that spends a channel; *channel* reads the daemon's state.
    """

    def __init__(
        self,
        chain: ChainReader,
        scripts: Scripts,
        asset: str,
        end: Signer,
        log: JournalLog,
        market: Door | None,
        signing: anyio.Lock,
        channel: Callable[[bytes], Channel | None],
    ) -> None:
        self._chain = chain
        self._scripts = scripts
        self._unit = unit_of(asset)
        self._end = end
        self._log = log
        self._market = market
        self._signing = signing
        self._channel = channel
        self._since: dict[bytes, int] | None = None  # as the journal has it; None: not read yet
        self._offers: dict[bytes, _Offer] = {}
        self._told: dict[bytes, int] = {}
        self._alone: set[bytes] = set()
        self._looked_at: deque[int] = deque(maxlen=MOST_ROUNDS)

    def waits(self, session_vk: bytes) -> bool:
        """Whether its end is on offer."""
        return session_vk in self._offers

    async def forget(self, session_vk: bytes) -> None:
        """It has ended, or goes on."""
        for kept in (self._offers, self._told):
            kept.pop(session_vk, None)
        self._alone.discard(session_vk)
        known = await self._waiting()
        if known.pop(session_vk, None) is not None:
            await self._log.put_waiting_ends(known)

    async def _waiting(self) -> dict[bytes, int]:
        """Since when each end waits: over a restart it waits no longer than it would have."""
        if self._since is None:
            self._since = await self._log.waiting_ends()
        return self._since

    async def _since_when(self, session_vk: bytes, now_ms: int) -> int:
        known = await self._waiting()
        if session_vk not in known:
            known[session_vk] = now_ms
            await self._log.put_waiting_ends(known)
        return known[session_vk]

    def declined(self, message: wire.EndDeclined) -> None:
        """The market leaves this one to us."""
        if message.session_vk in self._offers:
            _log.info("end_declined", code=message.code, cause=message.message[:200])
            self._alone.add(message.session_vk)

    async def offer(self, due: Due, snapshot: Snapshot, policy: Policy) -> int:
        """Until when (the chain's clock) its end waits for others', offered to the market; 0: it is
        ended alone, now.
        """
        vk, now = due.view.session_vk, snapshot.tip.time_ms
        if self._market is None or vk in self._alone or not self._market.can(codec.ENDS):
            return self._withdrawn(vk)
        since = await self._since_when(vk, now)
        until = batch_until_ms(due, snapshot, policy, since)
        step = next_step(due, snapshot, policy, self._end.key_hash)
        if now >= until or not isinstance(step, Finish):
            return self._withdrawn(vk)
        took = batched_end(due, snapshot, policy, since).claim
        ending = Ending(
            due.view.utxo, due.voucher if took else None, took.take_to if took else due.view.claimed
        )
        ref = due.view.utxo.ref
        message = wire.EndOffered(
            vk, ref.tx_id, ref.index, took.cum if took else 0, took.take_to if took else 0,
            took.signature if took else b"", until,
        )  # fmt: skip
        known = self._offers.get(vk)
        self._offers[vk] = _Offer(ending, _due_of(self._channel(vk)), until, message)
        if known is None or known.message != message or now >= self._told[vk] + AGAIN_MS:
            self._told[vk] = now
            self._market.send(message)
        return until

    def _withdrawn(self, session_vk: bytes) -> int:
        self._offers.pop(session_vk, None)
        return 0

    async def answer(self, asked: wire.EndsProposed) -> None:
        """Sign what was proposed, or say why not."""
        assert self._market is not None
        try:
            self._market.send(await self._consent(asked))
        except Halt:
            raise
        except ConsentRefused as no:
            rule = str(no.fields.get("rule", no.code))
            _log.warning("ends_refused", rule=rule, cause=no.message[:200])
            self._market.send(wire.EndsRefused(asked.round, rule, no.message))
        except TallyError as error:  # the chain is away: signed is only what was looked at
            self._market.send(wire.EndsRefused(asked.round, error.code, error.message))

    async def _consent(self, asked: wire.EndsProposed) -> wire.EndsSigned:
        snapshot = await self._chain.snapshot(self._scripts)
        self._spend_round(snapshot.tip.time_ms)
        if len(asked.tx) > snapshot.params.max_tx_size:
            raise ConsentRefused("it is no transaction of this chain", rule="BYTES")
        refs = to_resolve(asked.tx)
        if len(refs) > MOST_INPUTS:
            raise ConsentRefused(f"more than {MOST_INPUTS} inputs", rule="INPUTS")
        resolved = await self._resolve(refs)
        async with self._signing:
            mine = await self._standing(refs)
            until = min((o.until_ms for o in mine), default=0)
            known = Known(
                self._end.key_hash, {o.ending.utxo.ref: o.ending for o in mine}, resolved, snapshot,
                self._unit, snapshot.slot_at(until) if mine else None,
            )  # fmt: skip
            tx_id = check(asked.tx, known)
            await self._log.put(TxRecord(tx_id, asked.tx, CONSENT))
            given = consent(asked.tx, known, self._end)
        _log.info("ends_signed", tx=tx_id.hex(), channels=len(mine), inputs=len(refs))
        return wire.EndsSigned(asked.round, given.verify_key, given.signature)

    async def _standing(self, refs: frozenset[OutRef]) -> list[_Offer]:
        """Our offers among *refs* that are still what we want: nothing more is due by now, and
        nothing of our own is on its way.
        """
        ours = {r for t in await self._log.pending() if t.purpose != CONSENT for r in t.inputs}
        return [
            offer
            for vk, offer in self._offers.items()
            if offer.ending.utxo.ref in refs - ours
            and vk not in self._alone
            and offer.signed == _due_of(self._channel(vk))
        ]

    async def _resolve(self, refs: frozenset[OutRef]) -> dict[OutRef, Utxo]:
        """Those that our own door shows unspent."""
        found: dict[OutRef, Utxo] = {}

        async def look(ref: OutRef) -> None:
            output = await self._chain.output(ref)
            if output is not None and output.spent_by is None:
                found[ref] = output.utxo

        await at_once(look, refs)
        return found

    def _spend_round(self, now_ms: int) -> None:
        full = len(self._looked_at) == MOST_ROUNDS
        if not self._offers or (full and now_ms < self._looked_at[0] + ROUNDS_MS):
            raise ConsentRefused("nothing is on offer, or too much was asked", rule="ROUNDS")
        self._looked_at.append(now_ms)


def _due_of(known: Channel | None) -> int:
    """What was paid for and delivered."""
    return 0 if known is None else min(known.paid, known.owed)
