"""Every kind of transaction of ours, judged by a second ledger's rules: as it was sent, and as it
would be on mainnet today.

What that ledger (``support_second_ledger.py``) is known to get wrong is listed here, each with its
reason; anything else fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from marketplace.chain.encoding import datum, plutus, txbytes
from marketplace.chain.transaction.signing import Unsigned
from marketplace.chain.transaction.snapshot import Params
from marketplace.domain.money.channel import Claim, Close
from tests.contracts.support.aiken import aiken, need_aiken
from tests.integration.support.every_settlement import kinds, recorded
from tests.integration.support.second_ledger import Recorded, Recorder, Verdict, ask, opened
from tests.requires import need_second_ledger
from tests.unit.support.costs import bound, todays_costs, todays_parameters

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1500)]
KINDS = {
    "faucet payment", "deploy", "payment", "purse: pay, sweep", "open of one", "open of many",
    "open with a bounty", "top-up of one", "top-up of many", "claim of one",
    "claim again, down to the reserve", "claim with a bounty", "claim of many, one payee",
    "claim of many, a payee each", "claim that takes settle's rewards", "claim, the most",
    "mixed batch", "settler's round", "settler's round of an adapter", "close of one",
    "close of many", "claim from Closing by a watchtower", "finish by the adapter from Closing",
    "finish by the adapter, with a voucher", "finish by the adapter, without",
    "finish by the adapter of many", "finish by a stranger, with a voucher",
    "finish by a stranger, without", "finish by a stranger of many",
}  # fmt: skip
BY_A_WALLET = {"open by a wallet", "top-up by a wallet", "close by a wallet"}
ONLY = {"ADA": BY_A_WALLET, "token": {"mint"}}
GENEROUS = {"faucet payment", "mint"}  # these pay more than the least
FLAG = 44  # a byte's fee

# E1 is gone with certificate 0, for which it wanted a script that no ledger asks for.
UNDELEGATED = "WithdrawalNotAllowedBecauseNotDelegatedToDRep"
"""E2. The rule is for accounts of keys; it asks scripts' accounts too (cardano-ledger,
Conway/Rules/Ledger.hs).
"""
CRASHED = {"MachineError", "failed"}
"""E3. Its machine compares data by the encoding, and settle writes a new datum with open lists
(aiken-lang/aiken #1176): every Claim and Close fails. With open lists everywhere (``opened``) it
must succeed, with the very units.
"""
SHORT = "FeeTooSmallUTxO"
"""E4. It counts the flag ``is_valid``, which the ledger's size leaves out (44 lovelace), and finds
no reference script's fee.
"""
UNTOLD = {"UnsupportedCertificateType", "failed"}
"""E6. One kind of certificate stands for 0 and 7 in it, and its phase 2 takes no redeemer for that;
a ledger wants one for 7 (Conway/TxCert.hs, ``getScriptWitnessConwayTxCert``). Aiken's newer machine
judges that script instead.
"""


def _steps(at: Recorded) -> tuple[Any, ...]:
    told = txbytes.settle_redeemers(at.tx.raw)
    return datum.read_steps(plutus.decode(told[0])) if told else ()


def known(at: Recorded) -> set[str]:
    """What the second ledger wrongly refuses of a transaction."""
    if at.settles:
        return {UNDELEGATED} | (
            CRASHED if any(isinstance(s, (Claim, Close)) for s in _steps(at)) else set()
        )
    if at.kind in GENEROUS:
        return set()
    return {SHORT} | (UNTOLD if at.kind == "deploy" else set())


def check(at: Recorded, verdict: Verdict, fee: int) -> None:
    assert verdict.names == known(at), (at.kind, verdict)
    if verdict.least is not None and at.kind not in GENEROUS:
        assert fee == verdict.least - _off(at), (at.kind, verdict.least)  # to the lovelace


def _off(at: Recorded) -> int:
    """E4: its least fee less the ledger's."""
    if not at.settles or at.built is None:
        return FLAG
    snapshot = at.built.draft.snapshot
    return FLAG - snapshot.params.ref_fee(snapshot.ref_bytes)


@pytest.fixture(scope="module", params=["ADA", "token"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Everything that was taken in one asset."""
    need_second_ledger()
    made = recorded(request.param == "token", tmp_path_factory.mktemp("purse"))
    assert set(kinds(made)) == KINDS | ONLY[request.param]
    return made


def test_it_takes_every_kind_but_for_its_own_errors(world: Recorder) -> None:
    told = ask([(at.tx.raw, at) for at in world.taken])
    for at, verdict in zip(world.taken, told, strict=True):
        check(at, verdict, at.tx.fee)
        _written_for_the_next_era(at)
    for kind, found in kinds(world).items():
        sizes = [len(at.tx.raw) for at in found]
        print(f"{kind}: {len(found)} of {min(sizes)} to {max(sizes)} bytes, {sorted(known(found[0]))}")  # fmt: skip


def _written_for_the_next_era(at: Recorded) -> None:
    """Redeemers as a map, and no certificate without its deposit (dijkstra.cddl)."""
    fields = dict(txbytes.map_items(txbytes.split(at.tx.raw).witnesses))
    assert 5 not in fields or fields[5][0] >> 5 == 5
    assert all(one.kind == 7 for one in at.tx.certificates)


def test_its_machine_counts_the_very_units_once_lists_are_open(world: Recorder) -> None:
    settling = [at for at in world.taken if at.settles]
    cases = [opened(at) for at in settling]
    for at, verdict in zip(settling, ask(cases), strict=True):
        assert at.built is not None
        assert (verdict.failures, verdict.units) == ({}, at.built.units), at.kind


def test_another_machine_counts_the_registrations_units(world: Recorder) -> None:
    need_aiken()
    [at] = kinds(world)["deploy"]
    assert at.built is not None
    spent = [(cbor2.dumps([bytes.fromhex(r.tx), r.ix]), raw) for r, raw in at.outputs.items()]
    units = at.built.units["publish:0"]
    assert aiken().evaluate(at.tx.raw, spent) == {(2, 0): (units.mem, units.steps)}


# ---- mainnet today -----------------------------------------------------------------------------
TODAY = Params.from_json(todays_parameters())


def test_under_mainnets_present_costs_and_protocol_11(world: Recorder) -> None:
    """Built anew from the same wishes by the same builder, with the 350 values of mainnet's
    governance action: what the chain says is what is bound into the body, and both phases take it.
    """
    scripted = [at for at in world.taken if at.built is not None and at.built.draft.scripted]
    assert len(scripted) >= 25
    stale = ask([(at.tx.raw, at) for at in scripted], today=True)
    assert all("ScriptDataHashMismatch" in v.errors for v in stale)  # it does look at the costs
    drafts = [
        replace(d, snapshot=replace(d.snapshot, params=TODAY))
        for d in (at.built.draft for at in scripted if at.built)
    ]
    counted = ask([opened(at, d.bytes) for at, d in zip(scripted, drafts, strict=True)], today=True)
    made: list[Unsigned] = []
    for at, draft, verdict in zip(scripted, drafts, counted, strict=True):
        assert at.built is not None
        units = verdict.units if at.settles else at.built.units  # E6: it counts none
        made.append(draft.finish(units))
    signed = [one.sign(*(world.keys[h] for h in sorted(one.signers))) for one in made]
    told = ask([(one.bytes, at) for one, at in zip(signed, scripted, strict=True)], today=True)
    again = ask([opened(at, x.bytes) for x, at in zip(signed, scripted, strict=True)], today=True)
    for at, one, unsigned, verdict, second in zip(scripted, signed, made, told, again, strict=True):
        check(at, verdict, one.fee)
        body = txbytes.body_of(one.bytes)
        assert unsigned.redeemers is not None and body[11] == bound(
            unsigned.redeemers, todays_costs()
        )
        assert abs(one.fee - at.tx.fee) <= 100, (at.kind, one.fee, at.tx.fee)
        if at.settles:
            assert (second.failures, second.units) == ({}, counted[scripted.index(at)].units)


# ---- what it sees ------------------------------------------------------------------------------
Change = Callable[[dict[int, Any]], None]


def _with(at: Recorded, world: Recorder, change: Change) -> bytes:
    """Changed, and signed anew by whoever signed it."""
    parts = txbytes.split(at.tx.raw)
    body = cbor2.loads(parts.body)
    change(body)
    raw = cbor2.dumps(body)
    tx_id = hashlib.blake2b(raw, digest_size=32).digest()
    signers = [hashlib.blake2b(vk, digest_size=28).digest() for vk, _ in txbytes.key_witnesses(parts.witnesses)]  # fmt: skip
    keys = [world.keys[h] for h in signers]
    pairs = b"".join(b"\x82\x58\x20" + k.verify_key + b"\x58\x40" + k.sign(tx_id) for k in keys)
    fields = dict(txbytes.map_items(parts.witnesses))
    fields[0] = plutus.head(4, len(keys)) + pairs
    witnesses = plutus.head(5, len(fields))
    witnesses += b"".join(plutus.head(0, key) + value for key, value in sorted(fields.items()))
    return b"\x84" + raw + witnesses + parts.rest


def _fee(more: int) -> Change:
    """More of it, out of the change."""

    def work(body: dict[int, Any]) -> None:
        body[2] += more
        change = body[1][-1]  # either form of an output numbers address and value alike
        value = change[1]
        change[1] = [value[0] - more, *value[1:]] if isinstance(value, list) else value - more

    return work


def _spoilt(raw: bytes) -> bytes:
    """One bit of the first signature."""
    parts = txbytes.split(raw)
    [(_, signature), *_] = txbytes.key_witnesses(parts.witnesses)
    return raw.replace(signature, bytes([signature[0] ^ 1]) + signature[1:])


def _no_redeemers(raw: bytes) -> bytes:
    parts = txbytes.split(raw)
    fields = {k: v for k, v in txbytes.map_items(parts.witnesses) if k != 5}
    witnesses = plutus.head(5, len(fields))
    witnesses += b"".join(plutus.head(0, key) + value for key, value in fields.items())
    return b"\x84" + parts.body + witnesses + parts.rest


def test_it_refuses_what_is_wrong(world: Recorder) -> None:
    one_each = [found[0] for found in kinds(world).values()]
    ours = [at for at in one_each if at.built is not None]
    cases: list[tuple[str, str, bytes, Recorded]] = []

    def wrong(name: str, error: str, raw: bytes, at: Recorded) -> None:
        cases.append((name, error, raw, at))

    for at in one_each:
        wrong("a signature spoilt", "InvalidSignature", _spoilt(at.tx.raw), at)
    for at in ours:
        wrong("a lovelace from nowhere", "ValueNotConservedUTxO", _with(at, world, lambda b: b.update({2: b[2] + 1})), at)  # fmt: skip
        wrong("void", "OutsideValidityIntervalUTxO", _with(at, world, lambda b, at=at: b.update({3: at.slot - 1})), at)  # fmt: skip
        if at.settles or at.tx.certificates:
            wrong("another script data hash", "ScriptDataHashMismatch", _with(at, world, lambda b: b.update({11: bytes(32)})), at)  # fmt: skip
            wrong("no redeemers", "ScriptDataHashMismatch", _no_redeemers(at.tx.raw), at)
        # Of fees it can see its own least only; the devnet sees the ledger's (test_least_fee.py).
        wrong("its least − 1", SHORT, _with(at, world, _fee(_off(at) - 1)), at)
    for (name, error, _, at), verdict in zip(cases, ask([c[2:] for c in cases]), strict=True):
        assert error in verdict.names, (at.kind, name, verdict)
    least = [(_with(at, world, _fee(_off(at))), at) for at in ours]
    for (_, at), verdict in zip(least, ask(least), strict=True):
        assert SHORT not in verdict.names, at.kind
    print(f"{len(cases)} wrong ones refused, {len(least)} at its least taken")


def test_what_it_does_not_see(world: Recorder) -> None:
    """E5, so that nobody takes its silence for a yes: a bound that has just passed, and the flag.
    The devnet refuses both.
    """
    settling = [at for at in kinds(world)["claim of one"] if at.built is not None][:1]
    late = [(_with(at, world, lambda b, at=at: b.update({3: at.slot})), at) for at in settling]
    flagged = [(at.tx.raw[:-2] + b"\xf4\xf6", at) for at in settling]
    for (_, at), verdict in zip([*late, *flagged], ask([*late, *flagged]), strict=True):
        assert verdict.names == known(at), at.kind
