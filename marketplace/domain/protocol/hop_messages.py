"""What passes for leases that are paid over a router (``docs/invoice.md``, "Routed leases"): a part
of ``wire``, by which name they are used.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol.message import Message
from marketplace.domain.work.job import JobSpec


@dataclass(frozen=True)
class HopOpened(Message):
    """A router has a hop to this adapter: a channel with its own constants and *session_vk*, whose
    refund goes to the key with hash *owner* (28 bytes), opened by output *index* of *tx* (hex id).
    Said when it was opened, and after every welcome (capability ``route``).
    """

    session_vk: bytes
    owner: bytes
    tx: str
    index: int


@dataclass(frozen=True)
class RouteProposed(Message):
    """Will you run *job* under *terms* (canonical bytes of a routed lease, unsigned), paid over hop
    *hop* (its session key)? *route* and its *route_signature* are the router's; *salt* opens the
    route's commitment to the hop. Answered as ``LeaseProposed`` is.
    """

    lease: str
    job: JobSpec
    terms: bytes
    route: bytes
    route_signature: bytes
    hop: bytes
    salt: bytes


@dataclass(frozen=True)
class HopPaid(Message):
    """A payment over a hop, from who pays to who is paid: a *statement*, its *signature* by the
    hop's session key, the *voucher* over its total, and those *leaves* that are new or changed
    (``leaves.pack``).
    """

    statement: bytes
    signature: bytes
    voucher: Voucher
    leaves: bytes


@dataclass(frozen=True)
class HopRefused(Message):
    """Statement *n* of hop *session_vk* was not taken, by the rule *code*: all leaves may help."""

    session_vk: bytes
    n: int
    code: str
    message: str


@dataclass(frozen=True)
class PaidSent(Message):
    """The adapter's word (``Paid``) that *amount* lovelace of a routed lease have reached it."""

    lease: str
    amount: int
    signature: bytes
