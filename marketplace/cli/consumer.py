"""What the consumer's commands share: opening the purse and the market, and how money is shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from marketplace.cli.common import Where, err, private_folder
from marketplace.client.leaving import CLOSE_AFTER_S
from marketplace.client.market import Market
from marketplace.client.purse import Purse
from marketplace.client.runner import Offered
from marketplace.domain.terms import Terms
from marketplace.domain.units import show_ada, show_duration, show_rate

Json = dict[str, Any]


@asynccontextmanager
async def at_market(
    where: Where, *, pays: bool = True, keep: bool = False, close_after_s: float = CLOSE_AFTER_S
) -> AsyncGenerator[Market]:
    """The market of *where*, signed in with the purse; *pays* runs the payer as well."""
    purse = await anyio.to_thread.run_sync(load_purse, where.home)
    async with Market(
        where.market,
        wallet=purse,
        chain_url=where.chain_url or None,
        project_id=where.project_id or None,
        keep=keep,
        close_after_s=close_after_s,
    ) as opened:
        del pays
        yield opened


def load_purse(home: Path) -> Purse:
    """The purse of *home*; asks for the passphrase where it must."""
    return Purse.load(private_folder(home))


def reader(where: Where) -> Market:
    """The market without a purse: for what anybody may read."""
    return Market(
        where.market, chain_url=where.chain_url or None, project_id=where.project_id or None
    )


def offered_text(offered: Offered) -> str:
    """What is about to be agreed to, in a few lines."""
    terms, quote = offered.quote.terms, offered.quote
    simulated = "  SIMULATED device" if quote.simulated else ""
    lines = [
        f"provider   {terms.provider[:16]}…  {quote.device}{simulated}",
        f"price      {show_rate(terms.rate_micro, terms.resource)} x {units(terms)}",
        f"at most    {show_ada(terms.ceiling)} for up to {show_duration(terms.max_duration_ms)}",
    ]
    if offered.fresh:
        lines.append(
            f"channel    a new one with {show_ada(offered.amount)}; what is not used, and the "
            f"{show_ada(offered.reserve)} it needs to exist, come back (a network fee of about 0.2 ADA does not)"
        )
    elif offered.amount:
        lines.append(f"channel    an open one, topped up by {show_ada(offered.amount)}")
    else:
        lines.append("channel    one that is open already: nothing to pay in")
    if offered.spent:
        lines.append(
            f"before     {show_ada(offered.spent)} on another provider, within the same budget"
        )
    return "\n".join(lines)


def units(terms: Terms) -> str:
    """``2 GPUs``, ``0.5 GPU``, ``1.5 cores``: what the rate is multiplied by."""
    whole, part = divmod(terms.units_milli, 1000)
    amount = f"{whole}.{part:03d}".rstrip("0").rstrip(".")
    word = "GPU" if terms.resource == "gpu" else "core"
    return f"{amount} {word}{'' if terms.units_milli == 1000 or amount.startswith('0') else 's'}"


def job_row(job: Json) -> tuple[object, ...]:
    """One line of ``tally job list``."""
    spent, ceiling = job.get("spent") or 0, job.get("ceiling") or 0
    state = str(job.get("state", ""))
    reason = str(job.get("reason") or "")
    return (
        job.get("id", ""),
        job.get("name", ""),
        f"{state} {reason}".strip(),
        show_ada(int(spent)),
        show_ada(int(ceiling)) if ceiling else "",
        ("SIMULATED " if job.get("simulated") else "") + str(job.get("device") or ""),
    )


def progress() -> Progress:
    """The bar of a running command, on stderr so that stdout stays the job's own."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[cost]}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )
