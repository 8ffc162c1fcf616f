"""Routes about transactions' metadata, and what it says of an asset (CIP-25).

The index keeps transactions as they were sent; labels are read from them once and remembered, for a
transaction's id fixes its bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, cast

import cbor2
from fastapi import APIRouter, Depends, Request

from contracts.devnet import cbor
from contracts.devnet.face.common import Chain, Label, Paged, not_found, paged
from contracts.devnet.face.transactions import chained
from contracts.devnet.index import explorer
from contracts.devnet.index.views import View
from contracts.devnet.transaction import Tx

router = APIRouter()
CIP25 = 721
# Of CIP-10's registry, those that Blockfrost names and test networks use.
_CIP10 = {
    674: "CIP-0020 - Transaction message/comment metadata",
    CIP25: "CIP-0025 - NFT Metadata Standard",
    777: "CIP-0027 - Royalties Standard",
}
_Labels = dict[str, tuple[int, ...]]


def entries(tx: Tx) -> list[tuple[int, bytes]]:
    """(label, value as CBOR) of a transaction, by label."""
    if tx.metadata is None:
        return []
    return sorted((cbor.uint(key), value) for key, value in cbor.pairs(tx.metadata))


@router.get("/txs/{name}/metadata")
def transaction_metadata(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        found = entries(chained(view, name).tx)
    return [{"label": str(label), "json_metadata": _json(value)} for label, value in found]


@router.get("/txs/{name}/metadata/cbor")
def transaction_metadata_cbor(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        found = entries(chained(view, name).tx)
    return [{"label": str(label), **_cbor(label, value)} for label, value in found]


# --- by label ---


def _remembered(request: Request) -> _Labels:
    """Labels by transaction, as far as they were read in this process."""
    state = request.app.state
    if not hasattr(state, "labels"):
        fresh: _Labels = {}
        state.labels = fresh
    return cast(_Labels, state.labels)


Remembered = Annotated[_Labels, Depends(_remembered)]


def _labelled(view: View, remembered: _Labels) -> _Labels:
    """Labels of every transaction that has any, oldest first."""
    found: _Labels = {}
    for name in explorer.transaction_ids(view):
        if name not in remembered:
            remembered[name] = tuple(label for label, _ in entries(chained(view, name).tx))
        if remembered[name]:
            found[name] = remembered[name]
    return found


@router.get("/metadata/txs/labels")
def labels(chain: Chain, known: Remembered, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        found = Counter(one for many in _labelled(view, known).values() for one in many)
    return [
        {"label": str(one), "cip10": _CIP10.get(one), "count": str(found[one])}
        for one in paged(sorted(found), page)
    ]


def _under(
    chain: Chain, known: Remembered, label: Label, page: Paged
) -> list[tuple[str, int, bytes]]:
    """(transaction, label, value) under one label. Ends the request with 404 where there never was
    one.
    """
    number = int(label)
    with chain.reading() as view:
        names = [name for name, many in _labelled(view, known).items() if number in many]
        if not names:
            not_found()
        found = [(name, entries(chained(view, name).tx)) for name in paged(names, page)]
    return [(name, number, dict(pairs)[number]) for name, pairs in found]


Under = Annotated[list[tuple[str, int, bytes]], Depends(_under)]


@router.get("/metadata/txs/labels/{label}")
def with_label(found: Under) -> list[dict[str, Any]]:
    return [{"tx_hash": name, "json_metadata": _json(value)} for name, _, value in found]


@router.get("/metadata/txs/labels/{label}/cbor")
def with_label_cbor(found: Under) -> list[dict[str, Any]]:
    return [{"tx_hash": name, **_cbor(label, value)} for name, label, value in found]


def _cbor(label: int, value: bytes) -> dict[str, str]:
    """As cardano-db-sync stores it: a map of the one label."""
    whole = (b"\xa1" + cbor2.dumps(label) + value).hex()
    return {"cbor_metadata": "\\x" + whole, "metadata": whole}


def _json(raw: bytes) -> Any:
    return plain(cbor2.loads(raw))


def plain(value: Any) -> Any:
    """Metadata as cardano-db-sync's JSON: bytes as 0x and hex, keys as text."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_key(key): plain(one) for key, one in items}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("list[Any]", value)]
    return value


def _key(key: Any) -> str:
    shown = plain(key)
    return shown if isinstance(shown, str) else json.dumps(shown, separators=(",", ":"))


# --- CIP-25 ---


def cip25(tx: Tx, policy: str, name: str) -> tuple[dict[str, Any] | None, str | None]:
    """(metadata, standard) of an asset, policy and name in hex, in the transaction that minted it;
    (None, None) without.
    """
    raw = dict(entries(tx)).get(CIP25)
    whole = None if raw is None else cbor2.loads(raw)
    if not isinstance(whole, Mapping):
        return None, None
    policies = cast("Mapping[Any, Any]", whole)
    as_bytes = bytes.fromhex(name)
    if str(policies.get("version") or 1) in ("2", "2.0"):
        found = _inside(policies, bytes.fromhex(policy), as_bytes)
        if found is not None:
            return found, "CIP25v2" if _is_cip25(found) else None
        return _inside(policies, policy, as_bytes.decode(errors="replace")), None
    found = _inside(policies, policy, as_bytes.decode(errors="replace"), name)
    return found, "CIP25v1" if found is not None and _is_cip25(found) else None


def _inside(policies: Mapping[Any, Any], policy: Any, *names: Any) -> dict[str, Any] | None:
    assets: Any = policies.get(policy)
    if isinstance(assets, Mapping):
        for name in names:
            found = cast("Mapping[Any, Any]", assets).get(name)
            if isinstance(found, Mapping):
                return plain(found)
    return None


def _is_cip25(found: dict[str, Any]) -> bool:
    """A name, and an image as text or as pieces of it."""
    image: Any = found.get("image")
    pieces = cast("list[Any]", image if isinstance(image, list) else [image])
    return isinstance(found.get("name"), str) and all(isinstance(one, str) for one in pieces)
