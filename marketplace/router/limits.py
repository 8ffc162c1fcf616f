"""What a router's owner lets it risk: one place, read from ``limits.toml`` in its folder."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from marketplace.domain.errors import Malformed
from marketplace.domain.money.route.fee import MAX_ROUTE_BPS
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.units import parse_duration_ms, parse_money, show_ada, show_duration

ADA: Final = 1_000_000
DAY_MS: Final = 86_400_000
FILE: Final = "limits.toml"


@dataclass(frozen=True)
class Limits:
    """Lovelace, milliseconds, 1/10000; what each bounds is said beside it."""

    route_bps: int = 50  # the fee, of what a lease owes
    hop_fee: int = 25_000  # once for a hop in: its end, put together with others'
    hop_ms: int = 250  # within which a payment is passed on
    close_period_ms: int = DAY_MS  # of a hop in: so long a claim may be kept out of blocks
    lease_cap: int = 20 * ADA  # reserved for one lease, at most
    hop_cap: int = 100 * ADA  # unclaimed on one hop in: then nothing more is passed on
    young: int = 30 * ADA  # relied on in all, of money that 1 block holds ...
    young_tx: int = 3 * ADA  # ... and of one transaction that put it there
    ripe: int = 600 * ADA  # the same of money that 5 blocks hold ...
    ripe_tx: int = 60 * ADA  # ... and of one transaction
    claim_hop: int = 20 * ADA  # unclaimed on one hop in: claimed ...
    claim_age_ms: int = DAY_MS  # ... or after so long ...
    claim_all: int = 200 * ADA  # ... or once all hops in together have so much
    end_together: int = 30  # so many hops in end at once: then each brings what its end costs ...
    end_wait_ms: int = 900_000  # ... or after so long; thrice, where one brings less than it costs
    open_after: int = 10 * ADA  # final claims of a provider, before a hop to it is opened
    hop_out: int = 50 * ADA  # in a hop out; topped up when less than half of it is free
    open_wait_ms: int = 60_000  # so long a new one waits for others, to be opened together
    reopen_ms: int = DAY_MS  # after a hop out ended, before its provider gets another
    hops_out: int = 100  # at once
    idle_ms: int = DAY_MS  # a hop out that carried nothing for so long is ended
    close_after_ms: int = 3_600_000  # and closed, if its provider does not end it
    hops_in_new: int = 8  # of one account, announced and in no block
    gather_ms: int = 50  # receipts and payments of so long go into one statement

    @staticmethod
    def of(folder: Path, magic: int) -> Limits:
        """The defaults of network *magic*, with what the owner wrote; :class:`Malformed`."""
        base = Limits()
        if magic == DEVNET_MAGIC:  # its money is play money, its blocks come by the second
            base = replace(
                base, open_after=0, hop_out=100 * ADA, close_period_ms=600_000, reopen_ms=60_000,
                open_wait_ms=0, end_wait_ms=0,
            )  # fmt: skip
        path = folder / FILE
        if not path.exists():
            return base
        try:
            written = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Malformed(f"{path}: {error}") from error
        known = {one.name for one in fields(Limits)}
        unknown = sorted(written.keys() - known)
        if unknown:
            raise Malformed(f"{path}: {unknown[0]!r} is no limit of a router")
        limits = replace(base, **{name: _read(path, name, one) for name, one in written.items()})
        return limits.checked(path)

    def checked(self, path: Path) -> Limits:
        """Itself, if no rule of the market's or of an offer forbids it."""
        if self.route_bps > MAX_ROUTE_BPS:
            raise Malformed(f"{path}: route_bps is at most {MAX_ROUTE_BPS}")
        if self.lease_cap > self.hop_cap or not self.hop_ms:
            raise Malformed(f"{path}: lease_cap is at most hop_cap, and hop_ms is not 0")
        return self

    def lines(self) -> list[tuple[str, str]]:
        """Each limit and how much it is, for people."""
        return [(one.name, _shown(one.name, int(getattr(self, one.name)))) for one in fields(self)]


_PLAIN: Final = ("route_bps", "end_together", "hops_out", "hops_in_new")


def _read(path: Path, name: str, value: Any) -> int:
    """A number as it is; a text as money or a time, whichever the limit is."""
    if isinstance(value, str) and name not in _PLAIN:
        return parse_duration_ms(value) if name.endswith("_ms") else parse_money(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Malformed(f"{path}: {name} = {value!r} is no number, sum or time")
    return value


def _shown(name: str, value: int) -> str:
    if name in _PLAIN:
        return str(value)
    return show_duration(value) if name.endswith("_ms") else show_ada(value)
