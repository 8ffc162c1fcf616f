"""Transactions that a market might hand over to be signed, honest and not, and the rules that they
break.

``python -m tests.unit.support.judged`` writes ``tests/golden/judged.json``, which the console's
judge answers as well (``tests/browser/test_console_signing.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2

from contracts import blueprint
from marketplace.chain.actions.judge import Wanted
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.address import channel_address, key_address, stake_account
from marketplace.chain.encoding.txbytes import split
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Close, Closing, Open, Step, TopUp
from tests.unit.support import snapshot as s

ADA = s.ADA
GOLDEN = Path(__file__).parents[2] / "golden" / "judged.json"
THIEF = key_address(s.key("thief").key_hash, None, False)
OWN = s.WALLET.address
CONSTS = s.consts("a")
SCRIPTS = blueprint.ada()
HOME = channel_address(SCRIPTS.stub_hash, Credential(b"\x77" * 28), False)
AT = Utxo(s.ref(1), HOME, 40 * ADA, datum=datum.stage_bytes(Open(CONSTS, 3 * ADA)))
MONEY = (*s.money(5 * ADA, 90 * ADA), *s.money(500 * ADA, 5 * ADA + 1, start=5_100))
UNTIL_MS = s.NOW_MS + 300_000
Change = Callable[[dict[int, Any]], Any]


def _wanted(step: Any, **more: Any) -> Wanted:
    known = Wanted(
        step, False, (OWN,), {u.ref: u for u in MONEY}, CONSTS, 0, 0, AT, s.snapshot().tip.slot,
        s.NOW_MS, {s.ref(9001): SCRIPTS.settle_hash, s.ref(9001, 1): SCRIPTS.stub_hash},
    )  # fmt: skip
    return replace(known, **more)


WANTED = {
    "open": _wanted("open", channel=None, least=20 * ADA, most=22 * ADA),
    "topup": _wanted("topup", least=7 * ADA, most=7 * ADA),
    "close": _wanted("close"),
}


def _settled(step: Step) -> bytes:
    batch = Batch((Move(AT, step),), signers=(CONSTS.consumer_vkh,), until_ms=UNTIL_MS)
    draft = plans.settle(s.snapshot(), plans.Funds.of(OWN, MONEY[:2]), batch).draft
    return draft.finish({k: Units(1000, 1000) for k in draft.guess}).bytes


def _opened() -> bytes:
    stake = Credential(b"\x77" * 28)
    openings = [Opening(21 * ADA, lambda _ref, _index: CONSTS, stake)]
    return (
        plans.open_channels(s.snapshot(), plans.Funds.of(OWN, MONEY[:2]), openings).finish().bytes
    )


HONEST = {"open": _opened(), "topup": _settled(TopUp(7 * ADA)), "close": _settled(Close())}


def _changed(tx: bytes, change: Change) -> bytes:
    parts = split(tx)
    body = cbor2.loads(parts.body)
    body[1] = [dict(o) if isinstance(o, dict) else dict(enumerate(o)) for o in body[1]]
    change(body)
    return b"\x84" + cbor2.dumps(body) + parts.witnesses + parts.rest


def _witnesses(tx: bytes, change: Callable[[dict[int, Any]], Any]) -> bytes:
    parts = split(tx)
    witnesses = cbor2.loads(parts.witnesses)
    change(witnesses)
    return b"\x84" + parts.body + cbor2.dumps(witnesses) + parts.rest


def _put(field: int, value: Any) -> Change:
    return lambda body: body.__setitem__(field, value)


def _out(number: int, field: int, value: Any) -> Change:
    """Field of an output; both forms of an output number address and value alike."""
    return lambda body: body[1][number].__setitem__(field, value)


def _inline(stage: Any) -> list[Any]:
    return [1, cbor2.CBORTag(24, datum.stage_bytes(stage))]


def _add(field: int, ref: OutRef) -> Change:
    def change(body: dict[int, Any]) -> None:
        there = body.get(field, [])
        rows = list(there.value if isinstance(there, cbor2.CBORTag) else there)
        body[field] = [*rows, [ref.tx_id, ref.index]]

    return change


def _moved(out: int, more: int) -> Change:
    """*more* lovelace in one output, less in the last: fee and sums still hold."""

    def change(body: dict[int, Any]) -> None:
        body[1][out][1] += more
        body[1][-1][1] -= more

    return change


def _both(*changes: Change) -> Change:
    def change(body: dict[int, Any]) -> None:
        for one in changes:
            one(body)

    return change


_FOREIGN = {"payout": b"\x01" * 28}
_COMMON: dict[str, tuple[Change, list[str]]] = {
    "a certificate": (_put(4, [[2, [0, b"\x77" * 28], b"\x55" * 28]]), ["FIELDS"]),
    "an update": (_put(6, [{}, 1]), ["FIELDS"]),
    "attached data": (_put(7, b"\x07" * 32), ["FIELDS"]),
    "a mint": (_put(9, {b"\x01" * 28: {b"x": 1}}), ["FIELDS"]),
    "a vote": (_put(19, {}), ["FIELDS"]),
    "a proposal": (_put(20, []), ["FIELDS"]),
    "a treasury value": (_put(21, 5), ["FIELDS"]),
    "a donation": (_put(22, 5), ["FIELDS"]),
    "a field of tomorrow": (_put(99, 5), ["FIELDS"]),
    "never void": (lambda body: body.pop(3), ["FIELDS", "EXPIRY"]),
    "void in a year": (_put(3, s.snapshot().tip.slot + 31_000_000), ["EXPIRY"]),
    "bounds that cross": (_put(8, s.snapshot().tip.slot + 9_000_000), ["EXPIRY"]),
    "mainnet": (_put(15, 1), ["NETWORK"]),
    "this network, said": (_put(15, 0), []),
    "a stranger's input": (_add(0, s.ref(77)), ["INPUTS"]),
    "another input, kept": (_add(0, MONEY[2].ref), ["LEAVING"]),
    "to the thief": (_out(0, 0, THIEF), ["CHANNEL"]),
    "to the thief's script": (
        _out(0, 0, channel_address(b"\xee" * 28, Credential(b"\x77" * 28), False)), ["CHANNEL"],
    ),
    "to the thief's stake part": (
        _out(0, 0, channel_address(SCRIPTS.stub_hash, Credential(b"\x66" * 28), False)),
        ["CHANNEL"],
    ),
    "another network's address": (
        _out(0, 0, channel_address(SCRIPTS.stub_hash, Credential(b"\x77" * 28), True)),
        ["NETWORK", "CHANNEL"],
    ),
    "no rules": (lambda body: body[1][0].pop(2), ["DATUM"]),
    "rules by hash": (_out(0, 2, [0, b"\x09" * 32]), ["CHANNEL", "DATUM"]),
    "a script in the channel": (
        _out(0, 3, cbor2.CBORTag(24, cbor2.dumps([3, b"\x01"]))), ["CHANNEL"],
    ),
    "a token in the channel": (
        lambda body: body[1][0].__setitem__(1, [body[1][0][1], {b"\x01" * 28: {b"x": 1}}]),
        ["CHANNEL"],
    ),
    "rules that never expire": (
        _out(0, 2, _inline(Open(replace(CONSTS, close_period_ms=2**50), 0))), ["DATUM"],
    ),
    "more into the channel": (_moved(0, 3 * ADA), ["VALUE"]),
    "less into the channel": (_moved(0, -3 * ADA), ["VALUE"]),
    "change for the thief": (_out(1, 0, THIEF), ["CHANGE"]),
    "change under a lock": (_out(1, 2, [1, cbor2.CBORTag(24, b"\x01")]), ["CHANGE"]),
    "part of the change for the thief": (
        _both(lambda body: body[1].append({0: THIEF, 1: 2 * ADA}), _moved(1, -2 * ADA),
              lambda body: body[1][-1].__setitem__(1, 2 * ADA)), ["CHANGE"],
    ),
    "less change": (lambda body: body[1][-1].__setitem__(1, body[1][-1][1] - 1), ["LEAVING"]),
    "a dear fee": (
        lambda body: (body[1][1].__setitem__(1, body[1][1][1] - 9 * ADA),
                      body.__setitem__(2, body[2] + 9 * ADA)), ["FEE"],
    ),
    "no fee": (
        lambda body: (body[1][1].__setitem__(1, body[1][1][1] + body[2]), body.__setitem__(2, 0)),
        ["FEE"],
    ),
    "a fee in letters": (lambda body: body.__setitem__(2, str(body[2])), ["BYTES"]),
}  # fmt: skip

_OPEN: dict[str, tuple[Change, list[str]]] = {
    "another payout": (_out(0, 2, _inline(Open(replace(CONSTS, **_FOREIGN), 0))), ["DATUM"]),
    "another session key": (
        _out(0, 2, _inline(Open(replace(CONSTS, session_vk=b"\x02" * 32), 0))), ["DATUM"],
    ),
    "claimed before it began": (_out(0, 2, _inline(Open(CONSTS, 5))), ["DATUM"]),
    "closing at once": (_out(0, 2, _inline(Closing(CONSTS, 0, 1))), ["DATUM"]),
    "collateral": (_add(13, MONEY[0].ref), ["FIELDS"]),
    "a withdrawal": (
        _put(5, {b"\xe0" + b"\x77" * 28: 9 * ADA}), ["FIELDS", "LEAVING", "WITHDRAWAL"],
    ),
    "signers": (_put(14, [CONSTS.consumer_vkh]), ["FIELDS"]),
    "a second channel": (
        _both(lambda body: body[1].append({0: HOME, 1: 2 * ADA, 2: _inline(Open(CONSTS, 0))})),
        ["CHANNEL", "CHANGE", "LEAVING"],
    ),
}  # fmt: skip

_STEPS: dict[str, tuple[Change, list[str]]] = {
    "of another account": (
        _put(5, {stake_account(SCRIPTS.settle_hash, False): 0, b"\xe0" + b"\x77" * 28: 0}),
        ["WITHDRAWAL"],
    ),
    "your stake's rewards": (
        _put(5, {b"\xe0" + b"\x77" * 28: 9 * ADA}), ["LEAVING", "WITHDRAWAL"],
    ),
    "another channel's output": (
        lambda body: body.__setitem__(
            0, [[s.ref(2).tx_id, 0], *[[u.ref.tx_id, u.ref.index] for u in MONEY[:2]]]
        ), ["INPUTS", "LEAVING", "STEPS"],
    ),
    "claimed meanwhile": (_out(0, 2, _inline(Open(CONSTS, 4 * ADA))), ["DATUM"]),
    "500 ADA of collateral": (
        _both(_put(13, [[MONEY[2].ref.tx_id, MONEY[2].ref.index]])), ["COLLATERAL"],
    ),
    "collateral returned to the thief": (
        _both(_put(13, [[MONEY[2].ref.tx_id, MONEY[2].ref.index]]),
              _put(16, {0: THIEF, 1: 499 * ADA}), _put(17, ADA)), ["COLLATERAL"],
    ),
    "collateral returned": (
        _both(_put(13, [[MONEY[2].ref.tx_id, MONEY[2].ref.index]]),
              _put(16, {0: OWN, 1: 499 * ADA}), _put(17, ADA)), [],
    ),
    "five ADA of collateral": (_put(13, [[MONEY[0].ref.tx_id, MONEY[0].ref.index]]), []),
    "a lovelace more than five ADA of collateral": (
        _put(13, [[MONEY[3].ref.tx_id, MONEY[3].ref.index]]), ["COLLATERAL"],
    ),
    "five ADA and a lovelace of collateral, the lovelace returned": (
        _both(_put(13, [[MONEY[3].ref.tx_id, MONEY[3].ref.index]]), _put(16, {0: OWN, 1: 1}),
              _put(17, 5 * ADA)), [],
    ),
    "collateral that does not add up": (
        _both(_put(13, [[MONEY[2].ref.tx_id, MONEY[2].ref.index]]),
              _put(16, {0: OWN, 1: 499 * ADA}), _put(17, 2 * ADA)), ["COLLATERAL"],
    ),
    "a stranger's collateral": (_add(13, s.ref(78)), ["COLLATERAL"]),
    "another signer": (_put(14, [CONSTS.consumer_vkh, b"\x0a" * 28]), ["SIGNERS"]),
    "no list of signers": (_put(14, {}), ["SIGNERS"]),
    "signers that are null": (_put(14, None), ["SIGNERS"]),
    "no list of collateral": (_put(13, {}), ["COLLATERAL"]),
    "collateral of three": (_put(13, [[MONEY[0].ref.tx_id, MONEY[0].ref.index, 0]]), ["COLLATERAL"]),
    "no list of references": (_put(18, {}), ["REFERENCES"]),
    "a reference of three": (_put(18, [[s.ref(9001).tx_id, 0, 0]]), ["REFERENCES"]),
    "no map of withdrawals": (_put(5, []), ["LEAVING", "WITHDRAWAL"]),
    "another script": (_put(18, [[s.ref(9001).tx_id, 0], [s.ref(80).tx_id, 0]]), ["REFERENCES"]),
}  # fmt: skip


def _told(change: Callable[[list[Any]], Any], as_map: bool) -> Callable[[bytes], bytes]:
    """The redeemers changed, rows of [tag, index, data, units], and written in either of their
    forms.
    """

    def work(tx: bytes) -> bytes:
        rows = [[*key, *value] for key, value in cbor2.loads(split(tx).witnesses)[5].items()]
        change(rows)
        if not as_map:
            return _witnesses(tx, lambda there: there.__setitem__(5, rows))
        flat = b"".join(cbor2.dumps(row[:2]) + cbor2.dumps(row[2:]) for row in rows)
        whole = b"\xa1\x05" + bytes([0xA0 | len(rows)]) + flat
        parts = split(tx)
        return b"\x84" + parts.body + whole + parts.rest

    return work


def _replaced(steps: list[Any]) -> None:
    """A step whose fields are no list; of a close, which has none, it has as many."""
    steps[0] = cbor2.CBORTag(steps[0].tag, b"\x07" * len(steps[0].value))


_CLAIM = cbor2.CBORTag(121, [9 * ADA, 9 * ADA, b"\x00" * 64])
_TOLD: dict[str, tuple[Callable[[list[Any]], Any], list[str]]] = {
    "a decoy before": (lambda rows: rows.insert(0, [3, 0, [], [1, 1]]), ["STEPS"]),
    "a decoy after": (lambda rows: rows.append([3, 0, [], [1, 1]]), ["STEPS"]),
    "no step": (lambda rows: rows[-1].__setitem__(2, []), ["STEPS"]),
    "a claim": (lambda rows: rows[-1].__setitem__(2, [_CLAIM]), ["STEPS"]),
    "two steps": (lambda rows: rows[-1][2].append(cbor2.CBORTag(125, [])), ["STEPS"]),
    "another input's script": (lambda rows: rows[0].__setitem__(1, 7), ["STEPS"]),
    "no step but bytes": (lambda rows: _replaced(rows[-1][2]), ["STEPS"]),
    "a script more": (lambda rows: rows.append([1, 0, 0, [1, 1]]), ["STEPS"]),
    "as they are": (lambda rows: None, []),
}


def _refs(body: dict[int, Any]) -> list[Any]:
    there = body[0]
    body[0] = list(there.value if isinstance(there, cbor2.CBORTag) else there)
    return body[0]


def _retagged(body: dict[int, Any], tag: int) -> None:
    kind, data = body[1][0][2]
    body[1][0][2] = [kind, cbor2.CBORTag(tag, data.value)]


def _bytes_cases(tx: bytes) -> dict[str, bytes]:
    """Readable by some decoder, and by another otherwise."""
    parts = split(tx)
    body = cbor2.loads(parts.body)
    rows = [(cbor2.dumps(key), cbor2.dumps(value)) for key, value in body.items()]

    def joined(extra: list[tuple[bytes, bytes]], head: bytes = b"") -> bytes:
        every = rows + extra
        flat = b"".join(k + v for k, v in every)
        whole = (head or bytes([0xA0 | len(every)])) + flat + (b"\xff" if head else b"")
        return b"\x84" + whole + parts.witnesses + parts.rest

    fee = cbor2.dumps(body[2])
    long_fee = b"\x1b" + body[2].to_bytes(8, "big")
    return {
        "a field twice": joined([(b"\x02", b"\x01")]),
        "a field twice, in another form": joined([(b"\x18\x02", fee)]),
        "of unknown length": joined([], b"\xbf"),
        "a number in a long form": joined([]).replace(b"\x02" + fee, b"\x02" + long_fee, 1),
        "bytes behind": tx + b"\x00",
        "metadata": tx[:-1] + b"\xa0",
        "not valid": tx[:-2] + b"\xf4\xf6",
        "cut short": tx[:-40],
        "nothing": b"",
        "an input twice": _changed(tx, _add(0, MONEY[1].ref)),
        "an input of three": _changed(tx, lambda body: _refs(body).append([b"\x01" * 32, 0, 0])),
        "a datum under another tag": _changed(tx, lambda body: _retagged(body, 121)),
        "a datum of three": _changed(tx, lambda body: body[1][0][2].append(0)),
        "witnesses that are a number": tx[: -2 - len(parts.witnesses)] + b"\x00" + parts.rest,
        "witnesses that are a list": tx[: -2 - len(parts.witnesses)] + b"\x80" + parts.rest,
        "witnesses that are bytes": tx[: -2 - len(parts.witnesses)] + b"\x40" + parts.rest,
        "a witness by a name": tx[: -2 - len(parts.witnesses)] + b"\xa1\x61a\x00" + parts.rest,
    }


def _longer(tx: bytes) -> dict[str, bytes]:
    """Redeemers with a part too many, or one too few, in either of their forms."""
    parts = split(tx)
    rows = [(list(key), list(value)) for key, value in cbor2.loads(parts.witnesses)[5].items()]

    def written(rows: list[tuple[list[Any], list[Any]]]) -> bytes:
        flat = b"".join(cbor2.dumps(key) + cbor2.dumps(value) for key, value in rows)
        whole = b"\xa1\x05" + bytes([0xA0 | len(rows)]) + flat
        return b"\x84" + parts.body + whole + parts.rest

    listed = [[*key, *value] for key, value in rows]
    listed[0].append(0)
    return {
        "a redeemer without units": written([(rows[0][0], rows[0][1][:1]), *rows[1:]]),
        "a redeemer of three": written([(rows[0][0], [*rows[0][1], 0]), *rows[1:]]),
        "a pointer of three": written([([*rows[0][0], 0], rows[0][1]), *rows[1:]]),
        "a redeemer of five": _witnesses(tx, lambda there: there.__setitem__(5, listed)),
    }


def cases() -> list[tuple[str, str, bytes, list[str]]]:
    """(name, which of :data:`WANTED`, transaction, the rules that it breaks)."""
    found: list[tuple[str, str, bytes, list[str]]] = []
    for step, tx in HONEST.items():
        found.append((f"{step}: as it is", step, tx, []))
        more = _OPEN if step == "open" else _STEPS
        for name, (change, wrong) in {**_COMMON, **more}.items():
            codes = list(wrong)
            if step != "open" and name in ("a stranger's input", "another input, kept"):
                codes.append("STEPS")  # the channel's place among the inputs is another now
            found.append((f"{step}: {name}", step, _changed(tx, change), codes))
        for name, raw in _bytes_cases(tx).items():
            found.append((f"{step}: {name}", step, raw, ["BYTES"]))
        for name, (told, wrong) in _TOLD.items() if step != "open" else ():
            found.append((f"{step}: {name}, a list", step, _told(told, False)(tx), wrong))
            twice = "decoy" in name  # no map in its plain form has a key twice
            raw, codes = _told(told, True)(tx), ["BYTES"] if twice else wrong
            found.append((f"{step}: {name}, a map", step, raw, codes))
        for name, longer in _longer(tx).items() if step != "open" else ():
            found.append((f"{step}: {name}", step, longer, ["STEPS"]))
        witness = {0: [[b"\x01" * 32, b"\x02" * 64]]}
        signed = _witnesses(tx, lambda there, witness=witness: there.update(witness))
        found.append((f"{step}: signed by another", step, signed, ["STEPS"]))
    closing = datum.stage_bytes(Closing(CONSTS, 3 * ADA, s.NOW_MS + 86_400_000 * 400))
    late = _changed(HONEST["close"], _out(0, 2, [1, cbor2.CBORTag(24, closing)]))
    found.append(("close: closing for a year", "close", late, ["DATUM"]))
    found.append(("close: a top-up instead", "close", HONEST["topup"], ["DATUM", "VALUE", "STEPS"]))
    found.append(("topup: a close instead", "topup", HONEST["close"], ["DATUM", "VALUE", "STEPS"]))
    found.append(("open: a top-up instead", "open", HONEST["topup"],
                  ["FIELDS", "INPUTS", "DATUM", "VALUE", "LEAVING", "WITHDRAWAL", "STEPS"]))  # fmt: skip
    return found


def _json(wanted: Wanted) -> dict[str, Any]:
    c = wanted.consts
    stage = wanted.stage
    at = wanted.channel
    return {
        "step": wanted.step,
        "mainnet": wanted.mainnet,
        "own": [one.hex() for one in wanted.own],
        "utxos": {str(ref): u.lovelace for ref, u in wanted.utxos.items()},
        "consts": {
            "session_vk": c.session_vk.hex(), "adapter_vkh": c.adapter_vkh.hex(),
            "payout": c.payout.hex(), "consumer_vkh": c.consumer_vkh.hex(),
            "close_period_ms": c.close_period_ms, "fee_bps": c.fee_bps,
        },
        "least": wanted.least,
        "most": wanted.most,
        "channel": at and {
            "ref": str(at.ref), "address": at.address.hex(), "lovelace": at.lovelace,
            "claimed": stage.claimed, "open": isinstance(stage, Open),
        },
        "slot": wanted.slot,
        "nowMs": wanted.now_ms,
        "references": {str(ref): (h or b"").hex() for ref, h in wanted.references.items()},
    }  # fmt: skip


def golden() -> str:
    """The vectors as text."""
    rows = [
        {"name": name, "wanted": step, "tx": tx.hex(), "wrong": wrong}
        for name, step, tx, wrong in cases()
    ]
    wanted = {step: _json(one) for step, one in WANTED.items()}
    return json.dumps({"wanted": wanted, "cases": rows}, indent=1) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
