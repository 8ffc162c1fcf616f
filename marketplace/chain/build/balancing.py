"""From what a transaction should do to its bytes: funding, fee, change, collateral, script data.

Pure. A :class:`Plan` says what goes in and out; :func:`assemble` adds money of one's own and gives
a :class:`Draft` whose bytes are evaluated; :meth:`Draft.finish` puts the exact units and the exact
fee in. Sizes are those of the real bytes, with stand-in signatures of the real length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pycardano import (
    ScriptHash,
    StakeCredential,
    StakeRegistrationConway,
    TransactionBody,
    VerificationKeyHash,
    Withdrawals,
)
from pycardano.hash import ScriptDataHash

from marketplace.chain.build.wallet import COLLATERAL, Funds, surplus
from marketplace.chain.encoding import plutus
from marketplace.chain.encoding.address import pay_key_hash, stake_account
from marketplace.chain.encoding.utxo import Assets, OutRef, Utxo, assets_of, sum_assets
from marketplace.chain.errors import FundsShort, TxRefused
from marketplace.chain.transaction.outputs import Out, input_of, least
from marketplace.chain.transaction.signing import Unsigned, join
from marketplace.chain.transaction.snapshot import Snapshot, Units
from marketplace.domain.canonical import blake2b_256

# Stand-ins until a transaction has been evaluated: as wide on the wire as the real ones and, for
# the budget of the fee, above what contracts/README.md measures for any step.
_STUB_UNITS: Final = Units(12_000, 6_000_000)
_SETTLE_UNITS: Final = Units(150_000, 60_000_000)
_STEP_UNITS: Final = Units(75_000, 85_000_000)
_REGISTER_UNITS: Final = Units(40_000, 15_000_000)
_TAGS: Final = {"spend": 0, "publish": 2, "withdrawal": 3}  # Conway CDDL, redeemer_tag
_UNREAD: Final = b"\x00"  # the integer 0: for a script that reads no redeemer, the shortest
_WITNESS_BYTES: Final = (32, 64)
FEE_MOST: Final = 3_000_000
"""Lovelace: more than the largest transaction with the most units costs on any public network."""


@dataclass(frozen=True)
class Plan:
    """What a transaction does, before its own money.

    *channels* are script-locked inputs in ledger order, *steps* settle's redeemer (CBOR) when there
    are any; *outputs* come first and in this order. *signers* are key hashes that scripts must see;
    *since*/*until* are slots (lower inclusive, upper exclusive). *registers* is a script (CBOR)
    whose stake account is registered; it runs for that, and comes along in the witness set.
    """

    outputs: tuple[Out, ...]
    channels: tuple[Utxo, ...] = ()
    steps: bytes | None = None
    signers: tuple[bytes, ...] = ()
    since: int | None = None
    until: int | None = None
    registers: bytes | None = None
    reserve_collateral: bool = False


@dataclass(frozen=True)
class Draft:
    """A funded transaction with stand-in units: :attr:`bytes` is what to evaluate."""

    snapshot: Snapshot
    plan: Plan
    funds: Funds
    funding: tuple[Utxo, ...]
    inputs: tuple[Utxo, ...]
    collateral: Utxo | None
    guess: dict[str, Units] = field(repr=False)

    @property
    def bytes(self) -> bytes:
        """The transaction with stand-in units and signatures."""
        body = self._body(self.guess, self._fee_budget())
        return join(body[0], self._stand_ins(), body[1], self.plan.registers)

    @property
    def pledges_an_input(self) -> bool:
        """Whether the collateral is spent as well: a wallet that keeps none apart."""
        return self.collateral is not None and self.collateral in self.inputs

    @property
    def scripted(self) -> bool:
        """Whether there is anything to evaluate."""
        return bool(self.guess)

    def finish(self, units: dict[str, Units] | None = None) -> Unsigned:
        """With exact *units* (none needed without scripts), the exact fee, and the change.

        :class:`TxRefused` when it is larger, or runs longer, than one transaction may.
        """
        exact = self._exact(units or {})
        total = sum(exact.values(), Units(0, 0))
        limits = self.snapshot.params
        if total.mem > limits.max_units.mem or total.steps > limits.max_units.steps:
            raise TxRefused(
                f"{total.mem} mem, {total.steps} steps exceed one transaction", units=total
            )
        fee, (body, redeemers, outs), size = self._settle_on_fee(exact, total)
        if size > limits.max_tx_size:
            raise TxRefused(f"{size} bytes exceed {limits.max_tx_size}", size=size)
        tx_id = blake2b_256(body)
        return Unsigned(
            body, redeemers, self.signers, fee, total,
            tuple(u.ref for u in self.inputs),
            tuple(out.at(OutRef(tx_id, i)) for i, out in enumerate(outs)),
            self.plan.until, self.plan.registers,
        )  # fmt: skip

    def _settle_on_fee(
        self, exact: dict[str, Units], total: Units
    ) -> tuple[int, tuple[bytes, bytes | None, tuple[Out, ...]], int]:
        """The least fee that pays for its own width and the change's, the body, and its size."""
        ref_bytes = _ref_bytes(self.snapshot, self.plan)
        fee = self._fee_budget()
        for attempt in range(5):
            made = self._body(exact, fee)
            size = len(join(made[0], self._stand_ins(), made[1], self.plan.registers))
            least_fee = self.snapshot.params.fee(size, total, ref_bytes)
            if least_fee == fee or (attempt >= 3 and least_fee < fee):
                _check_fee(fee)
                return fee, made, size
            fee = least_fee
        raise TxRefused("no fee settles: the change swings about a boundary of its width")

    @property
    def size(self) -> int:
        """Bytes of the draft: within a few of the finished transaction."""
        return len(self.bytes)

    @property
    def signers(self) -> frozenset[bytes]:
        """Key hashes whose signature the ledger will want."""
        pledged = (self.collateral,) if self.collateral and self.guess else ()
        return frozenset(self.plan.signers) | {
            pay_key_hash(u.address) for u in (*self.funding, *pledged)
        }

    def _stand_ins(self) -> list[tuple[bytes, bytes]]:
        key, signature = _WITNESS_BYTES
        return [(bytes(key), bytes(signature))] * len(self.signers)

    def _fee_budget(self) -> int:
        return _fee_budget(self.snapshot, self.plan, self.guess)

    def _exact(self, units: dict[str, Units]) -> dict[str, Units]:
        if units.keys() != self.guess.keys():
            odd = sorted(units.keys() ^ self.guess.keys())
            raise TxRefused(f"the evaluation names other redeemers than the transaction: {odd[:4]}")
        return units

    def _body(
        self, units: dict[str, Units], fee: int
    ) -> tuple[bytes, bytes | None, tuple[Out, ...]]:
        outs = (
            *self.plan.outputs,
            *_change(self.snapshot, self.plan, self.funds, self.inputs, fee),
        )
        redeemers = _redeemers(self.plan, units) if units else None
        body: dict[str, Any] = {}
        if redeemers is not None:
            bound = self.snapshot.params.script_data_hash(redeemers)
            body |= {"script_data_hash": ScriptDataHash(bound), **self._pledge(fee)}
        if self.plan.channels:
            body |= _by_settle(self.snapshot)
        if self.plan.signers:
            body["required_signers"] = [VerificationKeyHash(h) for h in sorted(self.plan.signers)]
        if self.plan.registers is not None:
            body["certificates"] = [_registration(self.snapshot)]
        whole = TransactionBody(
            inputs=[input_of(u.ref) for u in self.inputs],
            outputs=[out.to_pycardano() for out in outs],
            fee=fee,
            ttl=self.plan.until,
            validity_start=self.plan.since,
            **body,
        )
        return whole.to_cbor(), redeemers, outs

    def _pledge(self, fee: int) -> dict[str, Any]:
        if self.collateral is None:
            raise FundsShort("no output of 5 ADA to pledge as collateral", missing=COLLATERAL)
        percent = self.snapshot.params.collateral_percent
        need = -(-fee * percent // 100)
        if need > COLLATERAL:
            raise TxRefused(
                f"by its parameters the chain's door wants {need} lovelace as collateral; never is"
                f" more than {COLLATERAL} forfeited: ask another door (--chain-url)"
            )
        pledge: dict[str, Any] = {"collateral": [input_of(self.collateral.ref)]}
        if self.collateral.plain and self.collateral.lovelace <= COLLATERAL:
            if self.collateral.lovelace < need:
                raise FundsShort("the collateral is below what this fee needs", missing=need)
            return pledge
        back = Out(self.funds.change, self.collateral.lovelace - need, self.collateral.assets)
        if back.lovelace < least(self.snapshot, back):
            raise FundsShort("the collateral's return would be below the least", missing=need)
        return pledge | {"collateral_return": back.to_pycardano(), "total_collateral": need}


def assemble(snapshot: Snapshot, plan: Plan, funds: Funds) -> Draft:
    """Fund *plan*; :class:`FundsShort` or :class:`NotDeployed` when it cannot be."""
    guess = _guess(plan)
    if plan.channels:
        snapshot.deployed  # noqa: B018 -- refuse early, with the remedy
    fee = _fee_budget(snapshot, plan, guess)
    lovelace, assets = surplus(
        plan.channels, _sum(plan.outputs) + _deposit(snapshot, plan), _assets(plan)
    )
    wanted = assets_of({unit: -n for unit, n in assets if n < 0})
    room = _room(snapshot, funds, assets)
    need = max(0, fee + room - lovelace)
    funding = funds.take(need, wanted)
    kept = sum_assets(assets_of({u: n for u, n in assets if n > 0}), *(u.assets for u in funding))
    if kept:  # tokens that ride along widen the change
        room = _room(snapshot, funds, kept)
        funding = funds.take(max(0, fee + room - lovelace), wanted)
    inputs = tuple(sorted((*plan.channels, *funding), key=lambda u: u.ref))
    by_index = {u.ref: i for i, u in enumerate(inputs)}
    named = {f"spend:{by_index[u.ref]}": _STUB_UNITS for u in plan.channels}
    named |= {key: units for key, units in guess.items() if not key.startswith("spend:")}
    return Draft(snapshot, plan, funds, funding, inputs, funds.collateral, named)


def _room(snapshot: Snapshot, funds: Funds, assets: Assets) -> int:
    positive = tuple((unit, n) for unit, n in assets if n > 0)
    return least(snapshot, Out(funds.change, 2**33, positive))


def _guess(plan: Plan) -> dict[str, Units]:
    n = len(plan.channels)
    found = {} if plan.registers is None else {"publish:0": _REGISTER_UNITS}
    if not n:
        return found
    settle = Units(
        _SETTLE_UNITS.mem + n * _STEP_UNITS.mem, _SETTLE_UNITS.steps + n * _STEP_UNITS.steps
    )
    return {**{f"spend:{i}": _STUB_UNITS for i in range(n)}, **found, "withdrawal:0": settle}


def _check_fee(fee: int) -> None:
    """The parameters are the door's word, and a ledger takes any fee above its least."""
    if fee > FEE_MOST:
        raise TxRefused(
            f"by its parameters the chain's door wants a fee of {fee} lovelace; no transaction of"
            f" mainnet's costs more than {FEE_MOST}: ask another door (--chain-url)"
        )


def _fee_budget(snapshot: Snapshot, plan: Plan, guess: dict[str, Units]) -> int:
    """An upper bound of the fee, before inputs and units are known."""
    size = (
        sum(out.size for out in plan.outputs)
        + len(plan.steps or b"")
        + len(plan.registers or b"")
        + 64 * len(plan.channels)
        + 1600
    )
    size = min(size, snapshot.params.max_tx_size)
    total = sum(guess.values(), Units(0, 0))
    return snapshot.params.fee(size, total, _ref_bytes(snapshot, plan))


def _change(
    snapshot: Snapshot, plan: Plan, funds: Funds, inputs: Sequence[Utxo], fee: int
) -> tuple[Out, ...]:
    """What is left goes home, and with it a new collateral if the wallet keeps none apart."""
    deposit = _deposit(snapshot, plan)
    lovelace, assets = surplus(inputs, _sum(plan.outputs) + fee + deposit, _assets(plan))
    if lovelace < 0 or any(n < 0 for _, n in assets):
        raise FundsShort("the inputs do not cover outputs and fee", missing=-lovelace)
    change = Out(funds.change, lovelace, assets)
    apart: tuple[Out, ...] = ()
    if plan.reserve_collateral and not funds.kept_apart:
        rest = replace(change, lovelace=lovelace - COLLATERAL)
        if rest.lovelace >= max(COLLATERAL, least(snapshot, rest)):
            change, apart = rest, (Out(funds.change, COLLATERAL),)
    short = least(snapshot, change) - change.lovelace
    if short > 0:
        raise FundsShort("the change would be below the least an output may hold", missing=short)
    return (change, *apart)


def _by_settle(snapshot: Snapshot) -> dict[str, Any]:
    """The withdrawal that runs settle, and where both scripts lie."""
    deployment, rewards = snapshot.deployed
    account = stake_account(snapshot.scripts.settle_hash, snapshot.mainnet)
    refs = sorted((deployment.settle, deployment.stub))
    return {
        "withdraws": Withdrawals({account: rewards}),
        "reference_inputs": [input_of(ref) for ref in refs],
    }


def _registration(snapshot: Snapshot) -> StakeRegistrationConway:
    """Certificate 7: it names its deposit and runs the script, which the next era demands as
    well.
    """
    who = StakeCredential(ScriptHash(snapshot.scripts.settle_hash))
    return StakeRegistrationConway(who, snapshot.params.key_deposit)


def _ref_bytes(snapshot: Snapshot, plan: Plan) -> int:
    return snapshot.ref_bytes if plan.channels else 0


def _redeemers(plan: Plan, units: dict[str, Units]) -> bytes:
    """{[tag, index]: [data, units]}: the map form, a byte longer each than the list; the next era
    (Dijkstra CDDL) knows no other. Rows are in the order of their keys.
    """
    rows: list[tuple[int, int, bytes]] = []
    for key, each in units.items():
        purpose, _, index = key.partition(":")
        data = plan.steps if purpose == "withdrawal" and plan.steps is not None else _UNREAD
        rows.append((_TAGS[purpose], int(index), _told(data, each)))
    named = (
        b"\x82" + plutus.head(0, tag) + plutus.head(0, at) + told for tag, at, told in sorted(rows)
    )
    return plutus.head(5, len(rows)) + b"".join(named)


def _told(data: bytes, units: Units) -> bytes:
    return b"\x82" + data + b"\x82" + plutus.head(0, units.mem) + plutus.head(0, units.steps)


def _sum(outputs: Sequence[Out]) -> int:
    return sum(out.lovelace for out in outputs)


def _assets(plan: Plan) -> Assets:
    return sum_assets(*(out.assets for out in plan.outputs))


def _deposit(snapshot: Snapshot, plan: Plan) -> int:
    """Lovelace that leaves (the registration's deposit) less what comes in (settle's rewards)."""
    leaves = snapshot.params.key_deposit if plan.registers is not None else 0
    return leaves - ((snapshot.rewards or 0) if plan.channels else 0)
