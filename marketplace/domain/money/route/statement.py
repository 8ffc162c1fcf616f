"""A statement: what a hop's voucher is for. The hop's session key signs it with every voucher.

The voucher is what the script takes; the statement says lease by lease what it is made of. A
statement with a lower number is void, one with the same number and other bytes is a fork: proof
against whoever holds the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.money.route.leaves import Leaf, root, total

_TAG: Final = "tally/hop/v1"
FIRST: Final = bytes(32)
"""``previous`` of a hop's first statement."""


class StatementRefused(Refusal):
    """A statement that is forged, older than one that is known, or not what its leaves say."""

    code = "STATEMENT_REFUSED"
    remedy = "keep it beside the last one that held: two of one number prove a fork"


@dataclass(frozen=True)
class Statement:
    """Number *n* of hop *session_vk*: *count* leaves with *root* sum up to *total* lovelace.

    *previous*: blake2b_256 of the statement before, :data:`FIRST` for the first.
    """

    session_vk: bytes
    n: int
    total: int
    count: int
    root: bytes
    previous: bytes

    @staticmethod
    def of(session_vk: bytes, n: int, leaves: Sequence[Leaf], previous: bytes) -> Statement:
        """The statement that *leaves* make."""
        return Statement(session_vk, n, total(leaves), len(leaves), root(leaves), previous)

    def encode(self) -> bytes:
        """The canonical bytes that are signed and hashed."""
        return canonical.encode(
            [_TAG, self.session_vk, self.n, self.total, self.count, self.root, self.previous]
        )

    @staticmethod
    def decode(data: bytes) -> Statement:
        """The reverse of :meth:`encode`; :class:`Malformed` for anything else."""
        f = canonical.decode_tagged(data, _TAG, 6)
        return Statement(
            session_vk=want_bytes(f[0], 32, "session_vk"),
            n=want_int(f[1], "n", 1),
            total=want_int(f[2], "total"),
            count=want_int(f[3], "count", 1),
            root=want_bytes(f[4], 32, "root"),
            previous=want_bytes(f[5], 32, "previous"),
        )

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding: the next statement's ``previous``."""
        return canonical.blake2b_256(self.encode())

    def states(self, leaves: Sequence[Leaf]) -> bool:
        """Whether these are exactly its leaves; :class:`Malformed` if they cannot be summed."""
        mine = (self.total, self.count, self.root)
        return mine == (total(leaves), len(leaves), root(leaves))


@dataclass(frozen=True)
class SignedStatement:
    """A statement's exact bytes and the session key's signature over them."""

    body: bytes
    signature: bytes

    @staticmethod
    def sign(statement: Statement, session: Signer) -> SignedStatement:
        """By the hop's session key itself."""
        body = statement.encode()
        return SignedStatement(body, session.sign(body))

    @cached_property
    def statement(self) -> Statement:
        """The decoded statement; :class:`Malformed` if it is none."""
        return Statement.decode(self.body)

    def verify(self) -> Statement:
        """The statement, if the session key that it names signed exactly these bytes."""
        if not verifies(self.statement.session_vk, self.body, self.signature):
            raise StatementRefused("the hop's session key did not sign this statement")
        return self.statement
