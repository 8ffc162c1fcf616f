"""An adapter's consent to a transaction that ends its channels: the signature, after a check of its
own.

A Finish needs the adapter's signature, and not a transaction of its own. Whoever builds one for
many adapters is believed in nothing: what is signed is judged from its bytes, against the outputs
that the adapter's own door to the chain shows, and by the twin of the contract. One signature is
good for every step in the transaction, so the adapter's channels in it are exactly those that it
asked to end.

Pure. The key that consents holds no money: an input or a collateral of its own is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from marketplace.chain.actions.unsigned_tx import (
    UnsignedTx,
    items_of,
    read_unsigned,
    redeemers_of,
    refs_of,
)
from marketplace.chain.build import plans
from marketplace.chain.encoding import datum, plutus
from marketplace.chain.encoding.address import stake_account
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.transaction.snapshot import SLOT_MS, Snapshot
from marketplace.domain.canonical import blake2b_224, blake2b_256
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel import Finish, Held, Output, Transaction, Witness, settle
from marketplace.domain.money.channel_refusals import ChannelRefused
from marketplace.domain.money.voucher import Voucher

LIVES_SLOTS: Final = plans.TTL_MS // SLOT_MS
_NEEDED: Final = frozenset((0, 1, 2, 3, 5, 11, 13, 14, 18))
_ALLOWED: Final = _NEEDED | {8, 15, 16, 17}
"""Fields of the body (Conway CDDL): no certificate, mint, vote, proposal, donation or data."""
_ODD: Final = (
    Malformed, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
)  # fmt: skip


class ConsentRefused(TxRefused):
    """The proposed transaction is not one to sign; *rule* names what it breaks."""

    code = "CONSENT_REFUSED"
    remedy = "sign nothing; the channel is ended in a transaction of its own"


@dataclass(frozen=True)
class Ending:
    """An end that the adapter asked for: the channel's output as its own door shows it, the
    greatest voucher, and the cumulative amount up to which it is taken (in the channel's asset).
    """

    utxo: Utxo
    voucher: Voucher | None
    take_to: int

    @property
    def step(self) -> Finish:
        """The one step that the channel takes."""
        claimed = datum.read_stage(self.utxo.datum or b"").claimed
        return plans.finish_step(self.voucher, claimed, self.take_to)


@dataclass(frozen=True)
class Known:
    """What the adapter knows without whoever built the transaction. *asked*: its ends, by output;
    *resolved*: the inputs and collaterals that its own door shows unspent; *unit*: the asset's
    policy and name, empty for ADA; *until*: the slot from which it ends them by itself, so that
    nobody's transaction may be in a block any more.
    """

    adapter_vkh: bytes
    asked: Mapping[OutRef, Ending]
    resolved: Mapping[OutRef, Utxo]
    snapshot: Snapshot
    unit: bytes = b""
    until: int | None = None


@dataclass(frozen=True)
class Consent:
    """A signature over one body's hash, and its key."""

    verify_key: bytes
    signature: bytes

    def good_for(self, body: bytes, adapter_vkh: bytes) -> bool:
        """Whether it is that adapter's, over this very *body*."""
        named = blake2b_224(self.verify_key) == adapter_vkh
        return named and verifies(self.verify_key, blake2b_256(body), self.signature)


def consent(tx: bytes, known: Known, key: Signer) -> Consent:
    """*key*'s signature over *tx*'s body, if every rule holds; else :class:`ConsentRefused`."""
    if key.key_hash != known.adapter_vkh:
        raise ConsentRefused("the key is not the one that ends these channels", rule="KEY")
    tx_id = check(tx, known)
    return Consent(key.verify_key, key.sign(tx_id))


def check(tx: bytes, known: Known) -> bytes:
    """The id of *tx* (32 bytes), an unsigned transaction; :class:`ConsentRefused` with the first
    rule that it breaks.
    """
    try:
        read = read_unsigned(tx)
    except _ODD as error:
        raise ConsentRefused("not the bytes of a plain transaction", rule="BYTES") from error
    for code, rule in _RULES:
        try:
            wrong = rule(read, known)
        except ChannelRefused as no:
            raise ConsentRefused(f"the contract would refuse it: {no.message}", rule=code) from no
        except _ODD as error:
            raise ConsentRefused("it is not readable there", rule=code) from error
        if wrong:
            raise ConsentRefused(wrong, rule=code)
    return read.outputs[0].ref.tx_id


def to_resolve(tx: bytes) -> frozenset[OutRef]:
    """Its inputs and collaterals: what the adapter's own door is asked for."""
    try:
        read = read_unsigned(tx)
        return frozenset((*read.inputs, *refs_of(read.body.get(13, []))))
    except _ODD as error:
        raise ConsentRefused("not the bytes of a plain transaction", rule="BYTES") from error


# ---- the rules: each "" or what is wrong -------------------------------------------------------


def _fields(tx: UnsignedTx, _: Known) -> str:
    odd = sorted(tx.body.keys() - _ALLOWED)
    if odd:
        return f"its body has field {odd[0]}, which no end needs"
    missing = sorted(_NEEDED - tx.body.keys())
    if missing:
        return f"its body lacks field {missing[0]}"
    return "" if tx.witnesses.keys() == {5} else "it brings more or less than redeemers"


def _network(tx: UnsignedTx, known: Known) -> str:
    want = int(known.snapshot.mainnet)
    wrong = tx.body.get(15, want) != want or any(o.address[0] & 15 != want for o in tx.outputs)
    return "it is for another network" if wrong else ""


def _resolved(tx: UnsignedTx, known: Known) -> str:
    every = (*tx.inputs, *refs_of(tx.body[13]))
    unknown = next((ref for ref in every if ref not in known.resolved), None)
    return f"our door does not show {unknown} unspent" if unknown else ""


def _money(tx: UnsignedTx, known: Known) -> str:
    for ref in (*tx.inputs, *refs_of(tx.body[13])):
        payment = Address.parse(known.resolved[ref].address).payment
        if not payment.is_script and payment.hash == known.adapter_vkh:
            return f"it takes or pledges {ref}, which lies at the key that ends channels"
    return ""


def _locked(tx: UnsignedTx, known: Known) -> list[Utxo]:
    """The script-locked inputs in ledger order, as our door shows them."""
    found = [known.resolved[ref] for ref in sorted(tx.inputs)]
    return [u for u in found if Address.parse(u.address).payment.is_script]


def _channels(tx: UnsignedTx, known: Known) -> str:
    mine: set[OutRef] = set()
    for utxo in _locked(tx, known):
        if Address.parse(utxo.address).payment.hash != known.snapshot.scripts.stub_hash:
            return f"it spends {utxo.ref} of another script"
        if datum.read_stage(utxo.datum or b"").consts.adapter_vkh == known.adapter_vkh:
            mine.add(utxo.ref)
    if not mine or mine != set(known.asked):
        return "our channels in it are not exactly those that we asked to end"
    moved = any(known.resolved[ref] != known.asked[ref].utxo for ref in mine)
    return "a channel is not as we asked to end it" if moved else ""


def _expiry(tx: UnsignedTx, known: Known) -> str:
    since, until = tx.body.get(8, 0), tx.body[3]
    now = known.snapshot.tip.slot
    last = now + LIVES_SLOTS if known.until is None else min(known.until, now + LIVES_SLOTS)
    fits = _whole(since) and _whole(until) and since <= until and now < until <= last
    return "" if fits else "it is over already, or lives longer than we wait"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _signers(tx: UnsignedTx, known: Known) -> str:
    named = known.adapter_vkh in [bytes(one) for one in items_of(tx.body[14])]
    return "" if named else "it does not ask for our signature"


def _withdrawal(tx: UnsignedTx, known: Known) -> str:
    rows = cast("dict[bytes, Any]", tx.body[5])
    account = stake_account(known.snapshot.scripts.settle_hash, known.snapshot.mainnet)
    return "" if list(rows) == [account] else "it withdraws other rewards than the script's"


def _script_data(tx: UnsignedTx, known: Known) -> str:
    bound = known.snapshot.params.script_data_hash(tx.witnesses[5])
    return "" if tx.body[11] == bound else "its body is bound to other redeemers"


def _redeemers(tx: UnsignedTx, known: Known) -> str:
    rows = [(tag, index) for tag, index, _ in redeemers_of(tx.witnesses[5])]
    order = sorted(tx.inputs)
    wants = [(0, order.index(u.ref)) for u in _locked(tx, known)] + [(3, 0)]
    return "" if sorted(rows) == sorted(wants) else "it runs other scripts than its channels'"


def _twin(tx: UnsignedTx, known: Known) -> str:
    """What the contract demands: each take, payout and refund at its place, to the unit."""
    told = next(d for tag, index, d in redeemers_of(tx.witnesses[5]) if (tag, index) == (3, 0))
    steps = datum.read_steps(plutus.decode(told))
    locked = _locked(tx, known)
    if len(steps) != len(locked):
        return "it has not one step for each channel"
    for utxo, step in zip(locked, steps, strict=True):
        if utxo.ref in known.asked and step != known.asked[utxo.ref].step:
            return "it takes another step on our channel than we asked for"
    snapshot, since = known.snapshot, tx.body.get(8)
    witness = Witness(
        frozenset(bytes(one) for one in items_of(tx.body[14])),
        None if since is None else snapshot.ms_at(since),
        snapshot.ms_at(tx.body[3]),
    )
    channels = [datum.read_channel(u, known.unit) for u in locked]
    settle(Transaction(channels, steps, [_seen(o, known.unit) for o in tx.outputs], witness))
    return ""


def _seen(out: Utxo, unit: bytes) -> Output:
    """An output as the script sees it."""
    held = Held(out.lovelace, out.quantity(unit) if unit else None)
    foreign = any(name != unit for name, _ in out.assets)
    loaded = foreign or out.datum_hash is not None or out.script_hash is not None
    stage = None
    if out.datum is not None:
        try:
            stage = datum.read_stage(out.datum)
        except Malformed:
            loaded = True
    return Output(Address.parse(out.address), held, stage, loaded)


_RULES: Final[Sequence[tuple[str, Callable[[UnsignedTx, Known], str]]]] = (
    ("FIELDS", _fields),
    ("NETWORK", _network),
    ("RESOLVED", _resolved),
    ("MONEY", _money),
    ("CHANNELS", _channels),
    ("EXPIRY", _expiry),
    ("SIGNERS", _signers),
    ("WITHDRAWAL", _withdrawal),
    ("SCRIPT_DATA", _script_data),
    ("REDEEMERS", _redeemers),
    ("TWIN", _twin),
)
