"""Where a channel's money went in a transaction, read from what the ledger holds: its outputs.

Settle consumes outputs by position: a run's payout, then one output for each channel, in ledger
order of the inputs (``contracts/README.md``).  A step leaves its mark on its output: the same
address with more claimed, with more value, or Closing; or the refund's address.  So the steps
follow from addresses, datums and values, which bind, and not from the redeemer, which a ledger
takes in encodings (duplicates among them) that a reader may take for something else.

Only in a transaction made for it can outputs be read in two ways: the provider's and the consumer's
address of a neighbour are the same, so that a refund looks like a payout. There, and there only,
the redeemer says which of the possible readings it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import lenient
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.domain.errors import Malformed
from marketplace.domain.money.channel import bounty

_OPEN, _CLOSING = range(2)  # contracts/README.md
_SCRIPT: Final = 0x10  # CIP-19: the header's bit for a payment part by script
_POINTERS: Final = (4, 5)
_PAYMENT: Final = slice(0, 29)  # CIP-19: an address's header and its payment part
_MOST_READINGS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a channel's rest is: output number *position*, the channel still or, if *ended*, its
    refund.
    """

    position: int
    ended: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """What an output says of its channel's step: whether it belongs to a run, and what that run
    owes.
    """

    in_run: bool
    pays: int
    ended: bool


def landings(
    mine: OutRef, inputs: Sequence[Utxo], outputs: Sequence[Utxo], unit: bytes
) -> frozenset[Landing]:
    """Every place where settle can have put the channel at *mine*; one, but in a transaction made
    to be read in two ways, and none if no settlement of this release has these outputs.
    """
    locked = in_ledger_order(inputs)
    index = next((i for i, u in enumerate(locked) if u.ref == mine), None)
    if index is None:
        raise Malformed("the transaction does not spend the channel")
    found = _Walk(locked, outputs, unit, index).onward(0, 0, b"", 0)
    return frozenset(landing for landing in found if landing is not None)


def landing_told(redeemer: bytes, mine: OutRef, inputs: Sequence[Utxo]) -> Landing:
    """The place that settle's *redeemer* tells: a hint, good only among :func:`landings`."""
    locked = in_ledger_order(inputs)
    steps = lenient.steps_of(redeemer)
    index = next((i for i, u in enumerate(locked) if u.ref == mine), None)
    if index is None or len(steps) != len(locked):
        raise Malformed("as many steps as script-locked inputs are expected")
    position = lenient.output_index([u.datum or b"" for u in locked], steps, index)
    return Landing(position, steps[index].ends)


def in_ledger_order(inputs: Sequence[Utxo]) -> list[Utxo]:
    """The script-locked ones among *inputs*, as settle meets them."""
    return sorted((u for u in inputs if lenient.is_locked(u.address)), key=lambda u: u.ref)


@dataclass
class _Walk:
    """Settle's walk over *locked*, from the outputs: every way in which it fits."""

    locked: Sequence[Utxo]
    outputs: Sequence[Utxo]
    unit: bytes
    mine: int
    known: dict[tuple[int, int, bytes, int], frozenset[Landing | None]] = field(
        default_factory=dict[tuple[int, int, bytes, int], frozenset["Landing | None"]]
    )

    def onward(self, at: int, position: int, payee: bytes, owed: int) -> frozenset[Landing | None]:
        """Landings of mine if the inputs from *at* consume the outputs from *position*, the open
        run owing *owed* to *payee*; {None} beyond mine, empty where nothing fits.
        """
        key = (at, position, payee, owed)
        if key not in self.known:
            if len(self.known) >= _MOST_READINGS:
                raise Malformed("the transaction can be read in too many ways")
            self.known[key] = self._onward(at, position, payee, owed)
        return self.known[key]

    def _onward(self, at: int, position: int, payee: bytes, owed: int) -> frozenset[Landing | None]:
        after = position + (owed != 0)
        flushed = owed == 0 or self._is_payout(position, payee, owed)
        if at == len(self.locked):
            return frozenset((None,)) if flushed else frozenset()
        found: set[Landing | None] = set()
        payout = lenient.state_of(self.locked[at].datum or b"").payout
        step = self._step(at, position)
        if step and step.in_run and payout == payee:
            found |= self._take(at, position, step, payee, owed + step.pays)
        step = self._step(at, after) if flushed else None
        if step and not step.in_run:
            found |= self._take(at, after, step, b"", 0)
        elif step and payout != payee:
            found |= self._take(at, after, step, payout, step.pays)
        return frozenset(found)

    def _take(
        self, at: int, position: int, step: _Step, payee: bytes, owed: int
    ) -> frozenset[Landing | None]:
        rest = self.onward(at + 1, position + 1, payee, owed)
        if at == self.mine and rest:
            return frozenset((Landing(position, step.ended),))
        return rest

    def _step(self, at: int, position: int) -> _Step | None:
        """The step of the channel at *at* that makes the output at *position*; None if none
        does.
        """
        if position >= len(self.outputs):
            return None
        before, after = self.locked[at], self.outputs[position]
        if after.script_hash is not None or not self._alone(after):
            return None
        try:
            if _may_be_one(after.address, before.address):
                return self._continued(before, after)
            return self._refunded(before, after)
        except Malformed:
            return None

    def _continued(self, before: Utxo, after: Utxo) -> _Step | None:
        old, new = lenient.state_of(before.datum or b""), lenient.state_of(after.datum or b"")
        if self.unit and after.lovelace != before.lovelace:
            return None
        more = after.quantity(self.unit) - before.quantity(self.unit)
        taken = new.claimed - old.claimed
        if taken > 0 and more == -taken and new.stage == old.stage:
            return _Step(True, taken - bounty(taken, old.fee_bps), False)
        topped = more > 0 and new.stage == old.stage == _OPEN
        closed = more == 0 and (old.stage, new.stage) == (_OPEN, _CLOSING)
        return _Step(False, 0, False) if taken == 0 and (topped or closed) else None

    def _refunded(self, before: Utxo, after: Utxo) -> _Step | None:
        old = lenient.state_of(before.datum or b"")
        key_header = bytes([before.address[0] & ~_SCRIPT])  # the same address, its payment by a key
        home = key_header + old.consumer_vkh + before.address[29:]
        if after.datum or after.datum_hash or not _may_be_one(after.address, home):
            return None
        if self.unit and after.lovelace != before.lovelace:
            return None
        taken = before.quantity(self.unit) - after.quantity(self.unit)
        if taken < 0:
            return None
        return _Step(True, taken - bounty(taken, old.fee_bps) if taken else 0, True)

    def _is_payout(self, position: int, payee: bytes, owed: int) -> bool:
        if position >= len(self.outputs):
            return False
        out = self.outputs[position]
        plain = out.datum is None and out.datum_hash is None and out.script_hash is None
        if not plain or not self._alone(out) or out.quantity(self.unit) < owed:
            return False
        try:
            return addresses.payout_hash(out.address) == payee
        except Malformed:  # a pointer's: what it hashes to is not computed here, so it may be
            return out.address[0] >> 4 in _POINTERS

    def _alone(self, out: Utxo) -> bool:
        """Whether it holds no token but the channel's own."""
        return all(unit == self.unit for unit, _ in out.assets)


def _may_be_one(one: bytes, other: bytes) -> bool:
    """Whether settle can take these for one address. A pointer's numbers can be written in many
    lengths, and the ledger brings those that it finds too large to nought: any two may be equal.
    """
    return one == other or (one[0] >> 4 in _POINTERS and one[_PAYMENT] == other[_PAYMENT])
