"""One hop from both its ends: what its payer signs, and what its payee takes.

Pure. Whoever pays writes the new state down before the payment leaves, whoever is paid before it
counts; both send what they have again after a crash, the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.statement import (
    FIRST,
    SignedStatement,
    Statement,
    StatementRefused,
)
from marketplace.domain.money.voucher import Voucher


class HopForked(Refusal):
    """Two statements of one number, both signed: the key is held twice, or its holder lies."""

    code = "HOP_FORKED"
    remedy = "take nothing more over this hop, claim what is due, and keep both statements"


@dataclass(frozen=True)
class Payment:
    """A statement, the voucher over its total, and all its leaves."""

    signed: SignedStatement
    voucher: Voucher
    leaves: tuple[Leaf, ...]

    def verify(self) -> Statement:
        """The statement, if the hop's key signed it and the voucher, and the leaves are its own."""
        statement = self.signed.verify()
        self.voucher.verify()
        pays = (self.voucher.session_vk, self.voucher.cumulative)
        if pays != (statement.session_vk, statement.total):
            raise StatementRefused("the voucher is not the statement's total")
        if not statement.states(self.leaves):
            raise StatementRefused("the leaves are not those of the statement")
        return statement

    def check_leaves(self, known: Collection[bytes]) -> None:
        """:class:`StatementRefused` for a leaf that is not among *known* (hashes of terms).

        Before anything is hashed or verified: whoever pays chooses how many leaves there are.
        """
        if len(self.leaves) > len(known) or any(one.terms not in known for one in self.leaves):
            raise StatementRefused("a leaf of a lease that this hop does not pay")

    def amount(self, terms: bytes) -> int:
        """Lovelace for the lease whose terms hash to *terms*; 0 without a leaf."""
        return next((leaf.amount for leaf in self.leaves if leaf.terms == terms), 0)

    def changes(self, since: Payment | None) -> tuple[Leaf, ...]:
        """Its leaves that are not in *since*: what goes to whoever has that (:func:`merged`)."""
        known = set(since.leaves) if since is not None else set[Leaf]()
        return tuple(leaf for leaf in self.leaves if leaf not in known)


def merged(
    last: Payment | None, signed: SignedStatement, voucher: Voucher, leaves: Sequence[Leaf]
) -> Payment:
    """The payment that changed and new *leaves* make of those of *last*. Nothing is checked: who
    merges onto another one than was meant gets leaves that the statement does not state.
    """
    if last is not None and last.signed.body == signed.body:
        return last
    old = last.leaves if last is not None else ()
    new = {leaf.terms: leaf for leaf in leaves}
    kept = [new.pop(leaf.terms, leaf) for leaf in old]
    return Payment(signed, voucher, (*kept, *new.values()))


@dataclass(frozen=True)
class Paying:
    """The payer's end of hop *session_vk*: its last payment. *skip*: so many numbers are left out
    before the next statement, of a payer that may have forgotten some that it signed.
    """

    session_vk: bytes
    last: Payment | None = None
    skip: int = 0

    def amount(self, terms: bytes) -> int:
        """What is signed for a lease."""
        return self.last.amount(terms) if self.last else 0

    @property
    def total(self) -> int:
        """What is signed in all."""
        return self.last.voucher.cumulative if self.last else 0

    def pay(self, amounts: Mapping[bytes, int], session: Signer) -> Paying:
        """With *amounts* (lovelace by hash of terms) signed, new leaves behind those that are
        there; unchanged if that is nothing new. A smaller amount than the leaf's leaves it as it
        is.
        """
        old = self.last.leaves if self.last else ()
        kept = [replace(leaf, amount=max(leaf.amount, amounts.get(leaf.terms, 0))) for leaf in old]
        known = {leaf.terms for leaf in old}
        new = [Leaf(terms, amount) for terms, amount in amounts.items() if terms not in known]
        leaves = (*kept, *new)
        if leaves == old:
            return self
        before = self.last.signed.statement if self.last else None
        n, previous = (before.n + 1, before.hash) if before else (1, FIRST)
        statement = Statement.of(self.session_vk, n + self.skip, leaves, previous)
        signed = SignedStatement.sign(statement, session)
        payment = Payment(signed, Voucher.sign(session, statement.total), leaves)
        return replace(self, last=payment, skip=0)


@dataclass(frozen=True)
class Earning:
    """The payee's end of hop *session_vk*, which can pay *capacity* lovelace: the last payment."""

    session_vk: bytes
    capacity: int
    last: Payment | None = None

    def amount(self, terms: bytes) -> int:
        """What was signed for a lease."""
        return self.last.amount(terms) if self.last else 0

    @property
    def total(self) -> int:
        """What was signed in all."""
        return self.last.voucher.cumulative if self.last else 0

    def take(self, payment: Payment) -> Earning:
        """With *payment*; unchanged by one that is known or older.

        :class:`StatementRefused` if it is not signed, sums wrongly, takes something back, or is
        more than the channel holds; :class:`HopForked` if it contradicts what was signed before.
        """
        statement = payment.verify()
        if statement.session_vk != self.session_vk:
            raise StatementRefused("the statement is of another hop")
        if statement.total > self.capacity:
            raise StatementRefused(f"the hop holds {self.capacity}, {statement.total} are signed")
        if self.last is not None:
            before = self.last.signed.statement
            if statement.n < before.n:
                return self
            if statement.n == before.n:
                if statement == before:
                    return self
                raise HopForked("two statements of one number", n=statement.n)
            if statement.n == before.n + 1 and statement.previous != before.hash:
                raise HopForked("a statement that follows another than the last", n=statement.n)
            for old, new in zip(self.last.leaves, payment.leaves, strict=False):
                if old.terms != new.terms or old.amount > new.amount:
                    raise StatementRefused("a leaf moved, or was taken back")
            if len(payment.leaves) < len(self.last.leaves):
                raise StatementRefused("a leaf is gone")
        return replace(self, last=payment)
