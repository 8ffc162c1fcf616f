"""Money on a screen, as people think of it: by the hour with four digits and the exact rate beside
it, dollars and euros where the user names a source. ``--exact`` says lovelace and nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import urlsplit

import anyio
import httpx
import typer

from marketplace.cli.shared.screen import err, out
from marketplace.client.net.price_source import DEADLINE_S, answer_of, check
from marketplace.domain.errors import Malformed
from marketplace.domain.metering.kinds import show_price, show_rate
from marketplace.domain.units import MICRO, four_digits, hourly, show_ada
from marketplace.market.state.exchange import MOST_BYTES, Exchange, read, worth

Exact = Annotated[
    bool, typer.Option("--exact", help="Amounts in lovelace, prices as the terms state them.")
]
Source = Annotated[
    str,
    typer.Option(
        "--price-url",
        envvar="TALLY_PRICE_URL",
        help="Says what an ADA is worth, to show dollars and euros beside it. None by default.",
    ),
]


@dataclass(frozen=True)
class Prices:
    """How money is written. *exchange*: what *source* (a host) said of other money, if asked."""

    exact: bool = False
    exchange: Exchange | None = None
    source: str = ""

    def amount(self, lovelace: int) -> str:
        """``1.500000 ADA (≈ $0.68, €0.62)``, exact; ``1500000 lovelace``."""
        if self.exact:
            return f"{lovelace} lovelace"
        return f"{show_ada(lovelace)}{self._other(lovelace)}"

    def price(self, rate_micro: int, resource: str) -> str:
        """``4.68 ADA per GPU-hour (1300 lovelace per GPU-second)``, or that rate alone."""
        if self.exact:
            return show_rate(rate_micro, resource)
        return f"{show_price(rate_micro, resource)}{self._other(hourly(rate_micro), ' an hour')}"

    def an_hour(self, rate_micro: int) -> str:
        """``4.68 ADA ≈ $2.11`` for a column."""
        lovelace = hourly(rate_micro)
        ada = show_ada(four_digits(lovelace)).removesuffix(" ADA").rstrip("0").rstrip(".")
        return f"{ada} ADA{self._worths(lovelace, ' ≈ ', ' ')}"

    def note(self) -> str:
        """Whose word the other money is, and of when; empty without any."""
        if self.exchange is None or self.exact:
            return ""
        at = datetime.fromtimestamp(self.exchange.at_ms / 1000, UTC)
        ada = self._worths(MICRO, "", ", ")
        return f"1 ADA ≈ {ada} at {at:%Y-%m-%d %H:%M} UTC, says {self.source}"

    def _other(self, lovelace: int, more: str = "") -> str:
        told = self._worths(lovelace, " (≈ ", ", ")
        return f"{told}{more})" if told else ""

    def _worths(self, lovelace: int, before: str, between: str) -> str:
        if self.exchange is None:
            return ""
        signs: Final = (("$", self.exchange.usd_micro), ("€", self.exchange.eur_micro))
        told = [f"{sign}{_digits(worth(lovelace, micro))}" for sign, micro in signs if micro]
        return before + between.join(told)

    def tell(self) -> None:
        """Print the note, if there is one."""
        if note := self.note():
            out.print(note, markup=False, style="dim")


def _digits(micro: int) -> str:
    """Two decimals from one unit on; below, four digits as of ADA."""
    if micro >= MICRO or micro == 0:
        whole, part = divmod((micro + 5_000) // 10_000, 100)
        return f"{whole}.{part:02d}"
    return f"0.{four_digits(micro):06d}".rstrip("0")


async def prices(exact: bool, url: str) -> Prices:
    """By the user's source, if one is named. One that fails is said, and nothing of it is shown."""
    if not url or exact:
        return Prices(exact)
    source = urlsplit(check(url)).netloc
    try:
        with anyio.fail_after(DEADLINE_S):
            found = read(await answer_of(url, MOST_BYTES), time.time_ns() // 1_000_000)
    except (Malformed, TimeoutError, httpx.HTTPError) as error:
        why = str(error) or type(error).__name__
        err.print(f"no dollars and euros: {source}: {why}", markup=False, style="yellow")
        return Prices(exact)
    return Prices(exact, found, source)
