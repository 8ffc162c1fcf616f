"""Whether a transaction that somebody else built does the one thing that was asked for: from its
bytes.

For wallets whose keys are elsewhere: what a market or anybody hands over to be signed. The rules,
their order and their codes are those of the console (``web/assets/chain/judge.js``;
``docs/security.md`` lists them; both answer ``tests/golden/judged.json``). What is believed: the
wallet's own list of its outputs and addresses, the terms that were agreed, the scripts' hashes, and
for an open channel what the chain shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from marketplace.chain.actions.unsigned_tx import (
    UnsignedTx,
    is_odd,
    items_of,
    read_unsigned,
    redeemers_of,
    refs_of,
)
from marketplace.chain.build.wallet import COLLATERAL
from marketplace.chain.encoding import datum, plutus
from marketplace.chain.encoding.address import channel_address, stake_account, to_text
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel import Close, Closing, Consts, Open, Stage, Step, TopUp
from marketplace.domain.units import show_ada

StepName = Literal["open", "topup", "close"]
FEE_MOST: Final = 2_000_000
FORFEIT_MOST: Final = COLLATERAL
LIVES_S: Final = 3600
"""The longest that a transaction may wait for its block, in slots of a second."""
_PLAIN: Final = frozenset((0, 1, 2, 3, 8, 15))
_SCRIPTED: Final = _PLAIN | {5, 11, 13, 14, 16, 17, 18}
_NAMES: Final = {
    4: "a certificate", 5: "a withdrawal of rewards", 6: "a protocol update", 7: "attached data",
    9: "a mint", 11: "script data", 13: "collateral", 14: "required signers",
    16: "a collateral return", 17: "collateral", 18: "reference inputs", 19: "a vote",
    20: "a proposal", 21: "a treasury value", 22: "a donation",
}  # fmt: skip


class NotAsAsked(TxRefused):
    """It does something else than what was asked for."""

    code = "TX_NOT_AS_ASKED"
    remedy = "sign nothing; whoever built it is mistaken or dishonest"


@dataclass(frozen=True)
class Wanted:
    """What was asked for, and what is known without whoever built it.

    *own*: the wallet's addresses; *utxos*: its outputs; *least* and *most*: lovelace that go into
    the channel; *channel*: it as the chain shows it (None to open one); *slot*: of now, None where
    unknown; *references*: the hash of the script at each reference input, as the chain shows it.
    """

    step: StepName
    mainnet: bool
    own: tuple[bytes, ...]
    utxos: Mapping[OutRef, Utxo]
    consts: Consts
    least: int
    most: int
    channel: Utxo | None = None
    slot: int | None = None
    now_ms: int = 0
    references: Mapping[OutRef, bytes | None] = field(default_factory=dict[OutRef, "bytes | None"])

    @property
    def stage(self) -> Stage:
        """The channel's stage on the chain; Open and unclaimed for one that is still to be."""
        if self.channel is None:
            return Open(self.consts, 0)
        return datum.read_stage(self.channel.datum or b"")


@dataclass(frozen=True)
class Finding:
    """One rule: what holds if *wrong* is empty, else what does not, for a person."""

    code: str
    wrong: str


def judge(tx: bytes, wanted: Wanted) -> list[Finding]:
    """Every rule in order; a transaction that cannot be read answers the first alone."""
    try:
        read = read_unsigned(tx)
    except (Malformed, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return [Finding("BYTES", "its bytes are not those of a plain, unsigned transaction")]
    found = [Finding("BYTES", "")]
    for code, rule in _RULES:
        try:
            wrong = rule(read, wanted)
        except (Malformed, ValueError, TypeError, KeyError, IndexError, AttributeError):
            wrong = "it is not readable there"
        found.append(Finding(code, wrong))
    return found


def require(tx: bytes, wanted: Wanted) -> None:
    """:class:`NotAsAsked` with the first rule that is broken."""
    for finding in judge(tx, wanted):
        if finding.wrong:
            raise NotAsAsked(finding.wrong, rule=finding.code)


def references_of(tx: bytes) -> tuple[OutRef, ...]:
    """What it refers to, at most eight; nothing for one that cannot be read."""
    try:
        return tuple(refs_of(read_unsigned(tx).body.get(18, []))[:8])
    except (Malformed, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ()


# ---- the rules: each "" or what is wrong -------------------------------------------------------


def _homes(wanted: Wanted) -> set[bytes]:
    stub = scripts_for().stub_hash
    return {channel_address(stub, Address.parse(own).stake, wanted.mainnet) for own in wanted.own}


def _split(tx: UnsignedTx, wanted: Wanted) -> tuple[int, list[int]]:
    """(the channel's output, the others): the first, or to open one the first at a channel's
    address.
    """
    every = list(range(len(tx.outputs)))
    homes = _homes(wanted)
    at = 0
    if wanted.step == "open":
        at = next((n for n in every if tx.outputs[n].address in homes), 0)
    return at, [n for n in every if n != at]


def _added(tx: UnsignedTx, wanted: Wanted) -> int:
    at, _ = _split(tx, wanted)
    held = tx.outputs[at].lovelace if tx.outputs else 0
    return held - (wanted.channel.lovelace if wanted.channel else 0)


def _fields(tx: UnsignedTx, wanted: Wanted) -> str:
    odd = tx.body.keys() - (_PLAIN if wanted.step == "open" else _SCRIPTED)
    if odd:
        first = next(key for key in tx.body if key in odd)
        unknown = f"a part that no step of a channel needs ({first})"
        return f"it carries {_NAMES.get(first, unknown)}"
    return "" if {2, 3} <= tx.body.keys() else "it has no fee or never expires"


def _network(tx: UnsignedTx, wanted: Wanted) -> str:
    if tx.body.get(15, int(wanted.mainnet)) != int(wanted.mainnet):
        return "it is for another network"
    if any(o.address[0] & 15 != int(wanted.mainnet) for o in tx.outputs):
        return "it pays an address of another network"
    return ""


def _inputs(tx: UnsignedTx, wanted: Wanted) -> str:
    own = wanted.channel.ref if wanted.channel else None
    if own is not None and own not in tx.inputs:
        return "it does not spend this channel, as the chain shows it"
    odd = next((ref for ref in tx.inputs if ref not in wanted.utxos and ref != own), None)
    return f"it spends {odd}, which is neither yours nor this channel" if odd else ""


def _channel(tx: UnsignedTx, wanted: Wanted) -> str:
    at, _ = _split(tx, wanted)
    homes = _homes(wanted)
    if not tx.outputs or tx.outputs[at].address not in homes:
        where = to_text(tx.outputs[at].address) if tx.outputs else "nobody"
        return f"the money would go to {where}, which is not a channel of yours"
    if wanted.channel is not None and tx.outputs[at].address != wanted.channel.address:
        return "the channel would move to another address"
    if at in tx.odd or _holds_tokens(tx.body[1][at]):
        return "the channel would hold something else than ADA and its rules"
    second = sum(o.address in homes for o in tx.outputs) != 1
    return "it makes a second channel" if second else ""


def _holds_tokens(raw: Any) -> bool:
    return not isinstance(raw[1], int)


def _datum(tx: UnsignedTx, wanted: Wanted) -> str:
    at, _ = _split(tx, wanted)
    there, stage = tx.outputs[at].datum, wanted.stage
    if there is None:
        return "the channel would have no rules"
    if wanted.step != "close":
        wants = datum.stage_bytes(Open(wanted.consts, stage.claimed))
        return "" if there == wants else "the channel's rules would not be those of the terms"
    next_ = datum.read_stage(there)
    expire = next_.expire_at_ms if isinstance(next_, Closing) else 0
    if there != datum.stage_bytes(Closing(wanted.consts, stage.claimed, expire)):
        return "the channel would not be closing under the rules of the terms"
    rest = expire - wanted.consts.close_period_ms - wanted.now_ms
    return "" if abs(rest) <= LIVES_S * 1000 else "the close period would not be that of the terms"


def _stage(_: UnsignedTx, wanted: Wanted) -> str:
    return "" if isinstance(wanted.stage, Open) else "the channel is closing already"


def _value(tx: UnsignedTx, wanted: Wanted) -> str:
    added = _added(tx, wanted)
    if wanted.least <= added <= wanted.most:
        return ""
    reserve = " and the reserve" if wanted.step == "open" else ""
    return f"{show_ada(added)} would go into the channel, not {show_ada(wanted.least)}{reserve}"


def _change(tx: UnsignedTx, wanted: Wanted) -> str:
    _, others = _split(tx, wanted)
    for n in others:
        out = tx.outputs[n]
        if out.address not in wanted.own:
            return f"{show_ada(out.lovelace)} would go to a stranger, {to_text(out.address)}"
    locked = any(n in tx.odd or tx.outputs[n].datum is not None for n in others)
    return "your change would be locked with data" if locked else ""


def _fee(tx: UnsignedTx, _: Wanted) -> str:
    fee = int(tx.body[2])
    return "" if 0 < fee <= FEE_MOST else f"the fee would be {show_ada(fee)}"


def _leaving(tx: UnsignedTx, wanted: Wanted) -> str:
    _, others = _split(tx, wanted)
    back = sum(tx.outputs[n].lovelace for n in others)
    leaving = _lovelace(tx.inputs, wanted) - back
    rewards = sum(int(n) for n in _withdrawn(tx).values())
    due = _added(tx, wanted) + int(tx.body[2]) - rewards
    return "" if leaving == due else f"{show_ada(leaving)} would leave you, not {show_ada(due)}"


def _lovelace(refs: Iterable[OutRef], wanted: Wanted) -> int:
    return sum(wanted.utxos[ref].lovelace for ref in refs if ref in wanted.utxos)


def _withdrawn(tx: UnsignedTx) -> dict[bytes, int]:
    there: Any = tx.body.get(5, {})
    if not isinstance(there, dict):
        raise Malformed("no map")
    return cast("dict[bytes, int]", there)


def _expiry(tx: UnsignedTx, wanted: Wanted) -> str:
    until: Any = tx.body.get(3)
    if not isinstance(until, int) or tx.body.get(8, 0) > until:
        return "its bounds in time are none"
    late = wanted.slot is not None and until > wanted.slot + LIVES_S
    return "it could be sent long after today" if late else ""


def _collateral(tx: UnsignedTx, wanted: Wanted) -> str:
    pledged = refs_of(tx.body.get(13, []))
    if any(ref not in wanted.utxos for ref in pledged):
        return "it pledges an output that is not yours"
    returned = 0
    if 16 in tx.body:
        raw = tx.body[16]
        legacy = isinstance(raw, (list, tuple))
        address, value = (raw[0], raw[1])
        locked = is_odd(raw) or (not legacy and 2 in raw)
        if bytes(address) not in wanted.own or locked:
            return "the rest of the collateral would go to a stranger"
        returned = int(value if isinstance(value, int) else value[0])
    lost = _lovelace(pledged, wanted) - returned
    if not 0 <= lost <= FORFEIT_MOST:
        return f"{show_ada(lost)} could be forfeited as collateral"
    wrong = 17 in tx.body and int(tx.body[17]) != lost
    return "its total collateral is not what it pledges" if wrong else ""


def _signers(tx: UnsignedTx, wanted: Wanted) -> str:
    mine = {own[1:29] for own in wanted.own}
    strange = any(bytes(one) not in mine for one in items_of(tx.body.get(14, [])))
    return "it is made for another signer beside you" if strange else ""


def _withdrawal(tx: UnsignedTx, wanted: Wanted) -> str:
    accounts = [bytes(account) for account in _withdrawn(tx)]
    if wanted.step == "open":
        return "it withdraws rewards" if accounts else ""
    if accounts == [stake_account(scripts_for().settle_hash, wanted.mainnet)]:
        return ""
    return "it withdraws rewards of another account than the script's"


def _steps(tx: UnsignedTx, wanted: Wanted) -> str:
    if tx.witnesses.keys() - {5} or (wanted.step == "open" and tx.witnesses):
        return "it brings scripts, data or signatures of somebody else's"
    if wanted.step == "open":
        return ""
    rows = redeemers_of(tx.witnesses[5])
    names = [(tag, index) for tag, index, _ in rows]
    if len(set(names)) != len(names):
        return "it tells the script two things at once"
    assert wanted.channel is not None
    spent = sorted(tx.inputs).index(wanted.channel.ref)
    if len(names) != 2 or (0, spent) not in names:
        return "it runs another script than this channel's"
    told = next((data for tag, index, data in rows if (tag, index) == (3, 0)), b"")
    asked: Step = TopUp(wanted.least) if wanted.step == "topup" else Close()
    taken = datum.read_steps(plutus.decode(told)) if told else ()
    return "" if taken == (asked,) else "it takes another step than you asked for"


def _references(tx: UnsignedTx, wanted: Wanted) -> str:
    scripts = scripts_for()
    known = (scripts.stub_hash, scripts.settle_hash)
    for ref in refs_of(tx.body.get(18, [])):
        if wanted.references.get(ref) not in known:
            return f"it refers to {ref}, which is not the channel's script"
    return ""


_RULES: Final[tuple[tuple[str, Callable[[UnsignedTx, Wanted], str]], ...]] = (
    ("FIELDS", _fields),
    ("NETWORK", _network),
    ("INPUTS", _inputs),
    ("CHANNEL", _channel),
    ("DATUM", _datum),
    ("STAGE", _stage),
    ("VALUE", _value),
    ("CHANGE", _change),
    ("FEE", _fee),
    ("LEAVING", _leaving),
    ("EXPIRY", _expiry),
    ("COLLATERAL", _collateral),
    ("SIGNERS", _signers),
    ("WITHDRAWAL", _withdrawal),
    ("STEPS", _steps),
    ("REFERENCES", _references),
)
CODES: Final = ("BYTES", *(code for code, _ in _RULES))
"""The rules by name, in the order in which they are asked."""
