"""How much rests on hops in that a rollback may still take back: never more than the caps. Pure.

A consumer may open many hops with one transaction, and a provider may be its friend: so money is
counted by the transaction that put it there, and over all hops together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from marketplace.domain.money.route.messages import HeadroomShort
from marketplace.domain.money.transaction import FINAL_DEPTH
from marketplace.router.limits import Limits

RIPE_DEPTH = 5


@dataclass(frozen=True)
class Fund:
    """*amount* lovelace of a hop in that transaction *tx* put there, *depth* blocks deep (its own
    counts; 0: in none).
    """

    tx: bytes
    amount: int
    depth: int


@dataclass(frozen=True)
class Need:
    """*spoken_for*: lovelace that may come to rest on a hop in; *funds*, less what stays inside it
    (*kept*) for its end.
    """

    spoken_for: int
    funds: tuple[Fund, ...]
    kept: int

    @property
    def final(self) -> int:
        """What no rollback that is expected takes back."""
        deep = sum(one.amount for one in self.funds if one.depth >= FINAL_DEPTH)
        return max(0, deep - self.kept)

    @property
    def unsure(self) -> int:
        """What rests on the rest."""
        return max(0, self.spoken_for - self.final)


@dataclass
class _Caps:
    limits: Limits
    young: int = 0
    ripe: int = 0
    by_tx: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def take(self, need: Need) -> int:
        """Puts what is unsure of *need* onto its funds, the deepest first; what finds no place."""
        left = need.unsure
        for fund in _waiting(need):
            ripe = fund.depth >= RIPE_DEPTH
            whole = self.limits.ripe - self.ripe if ripe else self.limits.young - self.young
            of_tx = self.limits.ripe_tx if ripe else self.limits.young_tx
            left -= self._put(fund, min(left, whole, of_tx - self.by_tx.get(fund.tx, 0)))
        return left

    def bear(self, need: Need) -> None:
        """The same of what was relied on already, beyond the caps where a rollback made it so."""
        left = self.take(need)
        for fund in _waiting(need):
            left -= self._put(fund, left)

    def _put(self, fund: Fund, amount: int) -> int:
        part, ripe = max(0, min(amount, fund.amount)), fund.depth >= RIPE_DEPTH
        self.by_tx[fund.tx] = self.by_tx.get(fund.tx, 0) + part
        self.ripe, self.young = self.ripe + part * ripe, self.young + part * (not ripe)
        return part


def _waiting(need: Need) -> list[Fund]:
    """What a block holds and a rollback may take back, the deepest first."""
    young = [one for one in need.funds if 1 <= one.depth < FINAL_DEPTH]
    return sorted(young, key=lambda one: -one.depth)


def check(needs: Mapping[bytes, Need], hop: bytes, more: int, limits: Limits) -> None:
    """:class:`HeadroomShort` unless *more* lovelace may rest on *hop* beside what rests on all hops
    in (*needs*, by session key) already.
    """
    caps = _Caps(limits)
    for key, need in needs.items():
        if key != hop:
            caps.bear(need)
    mine = needs[hop]
    left = caps.take(replace(mine, spoken_for=mine.spoken_for + more))
    if left:
        raise HeadroomShort(
            f"{left} of {more} would rest on blocks that may be rolled back",
            free=max(0, more - left),
        )
