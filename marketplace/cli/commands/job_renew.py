"""``tally job renew``: a running job goes on at its agreed price, beyond its agreed end."""

from __future__ import annotations

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.paying import at_market
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.screen import out
from marketplace.client.jobs import renewals
from marketplace.client.jobs.renewals import Renewal
from marketplace.domain.units import most_owed, show_ada, show_duration


async def renew(
    where: Where, name: str, duration_ms: int, budget: int, yes: bool, as_json: bool
) -> None:
    """Ask its provider for *duration_ms* more, for at most *budget* lovelace more (0: what that
    costs), and sign what it says once the user agrees.
    """
    async with at_market(where) as opened:
        runner = opened.runner
        offered = await renewals.ask(runner, name, duration_ms, budget)
        confirm_spend(_told(offered), yes)
        terms = await renewals.agree(runner, offered)
    if as_json:
        print_json(
            {
                "job": name,
                "lease": terms.lease,
                "max_duration_ms": terms.max_duration_ms,
                "ceiling": terms.ceiling,
                "paid_in": offered.amount,
            }
        )
    else:
        out.print(f"{name} may run for {show_duration(terms.max_duration_ms)} in all", markup=False)


def _told(offered: Renewal) -> str:
    before, after = offered.before, offered.after
    day = most_owed(86_400_000, after.units_milli, after.rate_micro)
    lines = [
        f"longer     {show_duration(after.max_duration_ms - before.max_duration_ms)}, at the agreed"
        f" price of {show_ada(day)} a day",
        f"at most    {show_ada(after.ceiling - before.ceiling)} more,"
        f" {show_ada(after.ceiling)} in all",
    ]
    if offered.amount:
        lines.append(f"pays in    {show_ada(offered.amount)}, and the network's fee of that")
    return "\n".join(lines)
