"""Money of one's own: a key, its outputs, and the collateral that is kept apart.

A settler's collateral is one plain output of 5 ADA that no transaction spends, so that paying for
one settlement never takes the next one's collateral away. It carries no collateral return: the
return would cost bytes in every transaction, and what stands behind it is bounded by those 5 ADA.
A larger output (a foreign wallet's, or a first transaction's) is used with a return.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import Assets, OutRef, Utxo, less_assets, sum_assets
from marketplace.chain.errors import FundsShort
from marketplace.domain.keys import Signer

COLLATERAL: Final = 5_000_000
"""What is set apart, and the most that may be forfeited: of anything larger the rest comes back."""


@dataclass(frozen=True)
class Wallet:
    """A key's address: *signer* pays, *stake* (a stake key's hash) makes it a base address."""

    signer: Signer
    mainnet: bool
    stake: bytes | None = None

    @property
    def address(self) -> bytes:
        """Where its money is, and where change goes."""
        return addresses.key_address(self.signer.key_hash, self.stake, self.mainnet)


@dataclass(frozen=True)
class Funds:
    """What a transaction may spend: *spendable*, largest first, and the *collateral* set apart."""

    change: bytes
    spendable: tuple[Utxo, ...]
    collateral: Utxo | None
    kept_apart: bool = False

    @staticmethod
    def of(change: bytes, utxos: Iterable[Utxo]) -> Funds:
        """Set aside the collateral among *utxos*; the rest may be spent.

        Without an output of exactly collateral's size the largest one serves as both, with a return
        that takes the rest, tokens included, back (a ledger allows it).
        """
        every = sorted(utxos, key=lambda u: (bool(u.assets), -u.lovelace, u.ref))
        usable = [u for u in every if u.script_hash is None and u.datum is None]
        sure = [u for u in usable if u.lovelace >= COLLATERAL]  # plain ones first
        apart = [u for u in sure if u.plain and u.lovelace == COLLATERAL]
        if apart:
            kept = min(apart, key=lambda u: u.ref)
            return Funds(change, tuple(u for u in usable if u is not kept), kept, True)
        return Funds(change, tuple(usable), sure[0] if sure else None, False)

    @property
    def lovelace(self) -> int:
        """All that may be spent."""
        return sum(u.lovelace for u in self.spendable)

    def take(
        self, lovelace: int, assets: Assets = (), at_least_one: bool = True
    ) -> tuple[Utxo, ...]:
        """Few outputs worth *lovelace* and *assets*; :class:`FundsShort` if there are not enough.

        Outputs that hold a wanted token first, then the largest plain ones: few inputs are cheap.
        """
        chosen: list[Utxo] = []
        missing = dict(assets)
        for utxo in self.spendable:
            if any(missing.get(unit, 0) > 0 for unit, _ in utxo.assets):
                chosen.append(utxo)
                for unit, n in utxo.assets:
                    missing[unit] = missing.get(unit, 0) - n
        short = {unit: n for unit, n in missing.items() if n > 0}
        if short:
            unit, n = next(iter(short.items()))
            raise FundsShort(f"{n} of token {unit.hex()} missing", missing=n)
        for utxo in self.spendable:
            if sum(u.lovelace for u in chosen) >= lovelace and (chosen or not at_least_one):
                break
            if utxo not in chosen:
                chosen.append(utxo)
        total = sum(u.lovelace for u in chosen)
        if total < lovelace or (at_least_one and not chosen):
            raise FundsShort(
                f"{addresses.to_text(self.change)} holds {total} lovelace to spend, {lovelace}"
                " needed",
                missing=lovelace - total,
                address=addresses.to_text(self.change),
                holds=total,
                needs=lovelace,
            )
        return tuple(chosen)

    def after(self, spent: Sequence[OutRef], made: Sequence[Utxo]) -> Funds:
        """The funds once a transaction of ours is counted on before it is in a block (chained)."""
        gone = set(spent)
        mine = [u for u in made if u.address == self.change and u.plain]
        left = [u for u in self.spendable if u.ref not in gone]
        kept = self.collateral if self.collateral and self.collateral.ref not in gone else None
        everything = sorted([*left, *mine], key=lambda u: (bool(u.assets), -u.lovelace, u.ref))
        spendable = tuple(
            u for u in everything if kept is None or u.ref != kept.ref or not self.kept_apart
        )
        return replace(self, spendable=spendable, collateral=kept)


def surplus(inputs: Sequence[Utxo], lovelace_out: int, assets_out: Assets) -> tuple[int, Assets]:
    """What *inputs* hold beyond the outputs; negative where they fall short."""
    have = sum(u.lovelace for u in inputs) - lovelace_out
    return have, less_assets(sum_assets(*(u.assets for u in inputs)), assets_out)
