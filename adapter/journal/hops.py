"""How a router's hop lies in the journal: what it must be with its channel, its payments and leases
in tables of their own, so that a tick writes one row.

The payment that stands is on disk before any Paid that rests on it leaves; so is one that
contradicts it, as evidence.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

import cbor2

from adapter.core.hop import Hop, Routed
from adapter.core.state import Channel
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route.hop import Payment
from marketplace.domain.money.route.leaves import pack, unpack
from marketplace.domain.money.route.payee import Served
from marketplace.domain.money.route.statement import SignedStatement
from marketplace.domain.money.voucher import Voucher

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS hop_payments (
  session_vk BLOB NOT NULL, kind TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY (session_vk, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hop_leases (
  session_vk BLOB NOT NULL, terms BLOB NOT NULL, n INTEGER NOT NULL, row BLOB NOT NULL,
  PRIMARY KEY (session_vk, terms)
) WITHOUT ROWID;
"""
LAST: Final = "last"
FORK: Final = "fork"


def fixed_row(hop: Hop) -> list[object]:
    """What a hop's channel must be, beside its session key."""
    c = hop.fixed
    return [
        c.adapter_vkh, c.payout, c.consumer_vkh, c.close_period_ms, c.fee_bps, hop.magic, hop.asset,
        hop.index,
    ]  # fmt: skip


def fixed_from(session_vk: bytes, row: list[Any]) -> Hop:
    """The reverse; without payments and leases, which :func:`filled` adds."""
    *consts, magic, asset, index = row
    return Hop(Consts(session_vk, *consts), magic, asset, index)


def routed_row(routed: Routed) -> list[object]:
    """How a lease is paid; its leaf's hash is its terms'."""
    return [routed.hop, routed.reserve, routed.route, routed.signature, routed.salt]


def routed_from(row: list[Any], terms: bytes) -> Routed:
    """The reverse; *terms*: the lease's, as they were signed."""
    hop, reserve, route, signature, salt = row
    return Routed(hop, blake2b_256(terms), reserve, route, signature, salt)


def payment_row(payment: Payment) -> bytes:
    """A payment with all its leaves."""
    signed, voucher = payment.signed, payment.voucher
    return cbor2.dumps(
        [signed.body, signed.signature, voucher.cumulative, voucher.signature, pack(payment.leaves)]
    )


def payment_from(session_vk: bytes, row: bytes) -> Payment:
    """The reverse."""
    body, signature, cumulative, voucher, leaves = cbor2.loads(row)
    return Payment(
        SignedStatement(body, signature), Voucher(session_vk, cumulative, voucher), unpack(leaves)
    )


def served_row(served: Served) -> bytes:
    """What a hop knows of one lease."""
    s = served
    return cbor2.dumps([s.lease, s.lease_vk, s.tick, s.reserve, s.owed, s.paid])


def filled(db: sqlite3.Connection, hop: Hop) -> Hop:
    """*hop* with its payments and its leases, in their order."""
    vk = hop.session_vk
    found = db.execute("SELECT kind, row FROM hop_payments WHERE session_vk=?", (vk,))
    payments = {kind: payment_from(vk, row) for kind, row in found}
    rows = db.execute("SELECT terms, row FROM hop_leases WHERE session_vk=? ORDER BY n", (vk,))
    leases = {bytes(terms): Served(*cbor2.loads(row)) for terms, row in rows}
    return Hop(
        hop.fixed, hop.magic, hop.asset, hop.index, leases, payments.get(LAST), payments.get(FORK)
    )


def put(db: sqlite3.Connection, known: Hop | None, hop: Hop) -> None:
    """What of *hop* is another than *known*, which the journal has."""
    vk = hop.session_vk
    for kind, old, new in (
        (LAST, known and known.last, hop.last), (FORK, known and known.fork, hop.fork)
    ):  # fmt: skip
        if new is not None and new is not old:
            row = (vk, kind, payment_row(new))
            db.execute("INSERT OR REPLACE INTO hop_payments VALUES (?,?,?)", row)
    before = known.leases if known is not None else dict[bytes, Served]()
    if hop.leases is before:
        return
    gone = [(vk, terms) for terms in before.keys() - hop.leases.keys()]
    db.executemany("DELETE FROM hop_leases WHERE session_vk=? AND terms=?", gone)
    for terms, served in hop.leases.items():
        if before.get(terms) is not served:
            _put_lease(db, vk, terms, served)


def _put_lease(db: sqlite3.Connection, vk: bytes, terms: bytes, served: Served) -> None:
    """At its place: in order of admission, behind all that were there."""
    db.execute(
        "INSERT INTO hop_leases VALUES (?,?,"
        "(SELECT coalesce(max(n), 0) + 1 FROM hop_leases WHERE session_vk=?),?)"
        " ON CONFLICT (session_vk, terms) DO UPDATE SET row=excluded.row",
        (vk, terms, vk, served_row(served)),
    )


def drop(db: sqlite3.Connection, channels: Iterable[Channel]) -> None:
    """The channels are forgotten, with all that lies here of them."""
    keys = [(channel.session_vk,) for channel in channels if channel.hop is not None]
    for table in ("hop_payments", "hop_leases"):
        db.executemany(f"DELETE FROM {table} WHERE session_vk=?", keys)
