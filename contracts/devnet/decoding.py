"""A transaction read from its bytes. Shapes: the Conway CDDL of cardano-ledger.

Nothing here judges a transaction: the ledger has accepted it (or will say why not). ``read`` only
has to survive any bytes.
"""

from __future__ import annotations

from typing import Any

import cbor2

from contracts.devnet import cbor
from contracts.devnet.transaction import (
    Certificate,
    Malformed,
    Output,
    OutRef,
    Proposal,
    Redeemer,
    Script,
    Tx,
    blake2b,
)


def read(raw: bytes) -> Tx:
    """Reads a signed transaction. Raises ``Malformed``."""
    try:
        if cbor.end(raw, 0) != len(raw):
            raise Malformed("bytes follow the transaction")
        body_raw, witness_raw, flag, auxiliary = cbor.elements(raw)
        body = {cbor.uint(key): value for key, value in cbor.pairs(body_raw)}
        witnesses = {cbor.uint(key): value for key, value in cbor.pairs(witness_raw)}
        outputs = [output(one) for one in cbor.elements(body[1])]
        scripts, datums = _witnessed(witnesses)
        return Tx(
            id=blake2b(body_raw),
            raw=raw,
            inputs=sorted(_references(body.get(0))),
            references=sorted(_references(body.get(18))),
            collateral=sorted(_references(body.get(13))),
            outputs=outputs,
            fee=cbor.uint(body[2]),
            start=cbor.uint(body[8]) if 8 in body else None,
            end=cbor.uint(body[3]) if 3 in body else None,
            mint=_assets(cbor2.loads(body[9])) if 9 in body else {},
            withdrawals=_withdrawals(body.get(5)),
            certificates=[_certificate(one) for one in _many(body.get(4))],
            required_signers=[cbor2.loads(one).hex() for one in _many(body.get(14))],
            redeemers=_redeemers(witnesses.get(5)),
            scripts=scripts + [one.script for one in outputs if one.script],
            datums=datums + [one.inline_datum for one in outputs if one.inline_datum is not None],
            metadata=None if auxiliary == b"\xf6" else _metadata(auxiliary),
            donation=cbor.uint(body[22]) if 22 in body else 0,
            valid=flag != b"\xf4",
            collateral_return=output(body[16]) if 16 in body else None,
            voters=_voters(body.get(19)),
            votes_on=_votes_on(body.get(19)),
            proposals=[_proposal(one) for one in _many(body.get(20))],
        )
    except Malformed:
        raise
    except Exception as problem:  # any byte string may arrive here, and cbor2 raises many kinds
        raise Malformed(f"not a transaction: {problem}") from problem


def _many(raw: bytes | None) -> list[bytes]:
    return [] if raw is None else cbor.elements(raw)


def _references(raw: bytes | None) -> list[OutRef]:
    return [_reference(one) for one in _many(raw)]


def _reference(raw: bytes) -> OutRef:
    tx, index = cbor.elements(raw)
    return OutRef(_bytes(cbor2.loads(tx)).hex(), _number(cbor.uint(index)))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise ValueError("expected bytes")
    return value


def _number(value: Any) -> int:
    """What the ledger, and an index, count with."""
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise ValueError("expected an integer of 64 bits")
    return value


def _withdrawals(raw: bytes | None) -> list[tuple[bytes, int]]:
    """In the order that redeemers point into: the ledger's, which has script accounts before
    keys'.
    """
    if raw is None:
        return []
    listed = [(_bytes(cbor2.loads(key)), cbor.uint(value)) for key, value in cbor.pairs(raw)]
    return sorted(listed, key=lambda one: (not one[0][0] & 0x10, one[0]))


# The ledger's order of voters: committee, DReps, pools; of each, scripts before keys.
_VOTER_ORDER = (1, 0, 3, 2, 4)


def _voters(raw: bytes | None) -> list[tuple[int, bytes]]:
    """(kind, hash) in the order that redeemers point into. Kinds: 0 and 1 committee, 2 and 3 DRep
    (1 and 3 a script), 4 pool.
    """
    if raw is None:
        return []
    listed = [cbor2.loads(one) for one, _ in cbor.pairs(raw)]
    return sorted(
        ((kind, _bytes(key)) for kind, key in listed),
        key=lambda one: (_VOTER_ORDER.index(one[0]), one[1]),
    )


def _votes_on(raw: bytes | None) -> list[OutRef]:
    if raw is None:
        return []
    actions = [action for _, votes in cbor.pairs(raw) for action, _ in cbor.pairs(votes)]
    return [_reference(one) for one in actions]


def _proposal(raw: bytes) -> Proposal:
    deposit, account, action, _ = cbor.elements(raw)
    kind, *rest = cbor.elements(action)
    # A change of parameters and a withdrawal from the treasury end with the guardrails' hash, or
    # null.
    guard = cbor2.loads(rest[-1]) if cbor.uint(kind) in (0, 2) else None
    named = None if guard is None else _bytes(guard)
    return Proposal(cbor.uint(deposit), _bytes(cbor2.loads(account)), named)


def _assets(bundle: dict[bytes, dict[bytes, int]]) -> dict[str, int]:
    return {
        policy.hex() + name.hex(): _number(quantity)
        for policy, names in bundle.items()
        for name, quantity in names.items()
    }


def output(raw: bytes) -> Output:
    """Reads one output, of either shape. Raises as ``cbor`` and cbor2 do."""
    datum_hash: str | None = None
    inline: bytes | None = None
    script: Script | None = None
    if cbor.is_map(raw):
        fields = {cbor.uint(key): value for key, value in cbor.pairs(raw)}
        address, value = cbor2.loads(fields[0]), cbor2.loads(fields[1])
        if 2 in fields:
            kind, datum = cbor2.loads(fields[2])
            if kind == 0:
                datum_hash = datum.hex()
            else:
                inline = _bytes(datum.value)
                datum_hash = blake2b(inline)
        if 3 in fields:
            kind_raw, body = cbor.elements(cbor2.loads(fields[3]).value)
            kind = cbor.uint(kind_raw)
            script = Script(kind, body if kind == 0 else _script(body))
    else:
        parts = cbor.elements(raw)
        address, value = cbor2.loads(parts[0]), cbor2.loads(parts[1])
        datum_hash = cbor2.loads(parts[2]).hex() if len(parts) > 2 else None
    lovelace, assets = (value, {}) if isinstance(value, int) else (value[0], _assets(value[1]))
    return Output(raw, _bytes(address), _number(lovelace), assets, datum_hash, inline, script)


# Where a certificate's array has its pool, its DRep and its deposit, by kind.
_POOL_AT = {2: 2, 3: 1, 4: 1, 10: 2, 11: 2, 13: 2}
_DREP_AT = {9: 2, 10: 3, 12: 2, 13: 3}
_DEPOSIT_AT = {7: 2, 8: 2, 11: 3, 12: 3, 13: 4, 16: 2, 17: 2}


def _certificate(raw: bytes) -> Certificate:
    parts: list[Any] = cbor2.loads(raw)
    kind = parts[0]
    about = (parts[1][0] == 1, _bytes(parts[1][1])) if kind not in (3, 4) else None
    on_stake = kind in (0, 1, 2, 7, 8, 9, 10, 11, 12, 13)
    drep = parts[_DREP_AT[kind]] if kind in _DREP_AT else None
    return Certificate(
        kind,
        about if on_stake else None,
        parts[_POOL_AT[kind]] if kind in _POOL_AT else None,
        None if on_stake else about,
        None if drep is None else (drep[0], drep[1] if drep[0] < 2 else b""),
        parts[_DEPOSIT_AT[kind]] if kind in _DEPOSIT_AT else None,
        raw,
    )


def _redeemers(raw: bytes | None) -> list[Redeemer]:
    """Redeemers by (tag, index). Of several with one pointer the last counts, in a list as in a
    map: the ledger builds its map so (cardano-ledger, Alonzo.TxWits, ``Map.fromList``), and
    db-sync's one row for each pointer is what explorers show.
    """
    if raw is None:
        return []
    found: dict[tuple[int, int], Redeemer] = {}
    if cbor.is_map(raw):
        for key, value in cbor.pairs(raw):
            tag, index = map(cbor.uint, cbor.elements(key))
            data, units = cbor.elements(value)
            found[tag, index] = Redeemer(tag, index, data, *_units(units))
    else:
        for one in cbor.elements(raw):
            tag, index, data, units = cbor.elements(one)
            at = cbor.uint(tag), cbor.uint(index)
            found[at] = Redeemer(*at, data, *_units(units))
    return [found[at] for at in sorted(found)]


def _units(raw: bytes) -> tuple[int, int]:
    memory, steps = map(cbor.uint, cbor.elements(raw))
    return memory, steps


def _witnessed(witnesses: dict[int, bytes]) -> tuple[list[Script], list[bytes]]:
    scripts = [Script(0, one) for one in _many(witnesses.get(1))]
    for key, kind in ((3, 1), (6, 2), (7, 3)):
        scripts += [Script(kind, _script(one)) for one in _many(witnesses.get(key))]
    return scripts, _many(witnesses.get(4))


def _script(raw: bytes) -> bytes:
    body = cbor2.loads(raw)
    if not isinstance(body, bytes):
        raise ValueError("a script is bytes")
    return body


def _metadata(auxiliary: bytes) -> bytes | None:
    """The metadata map inside any of the three shapes of auxiliary data (Shelley map, Allegra
    array, Alonzo tag 259).
    """
    major, _, at = cbor.head(auxiliary, 0)
    if major == 5:
        return auxiliary
    if major == 4:
        return cbor.elements(auxiliary)[0]
    inner = {cbor.uint(key): value for key, value in cbor.pairs(auxiliary[at:])}
    return inner.get(0)
