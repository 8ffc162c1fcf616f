"""``tally job renew``: a running job goes on at its agreed price, beyond its agreed end; once, or
by itself from now on.
"""

from __future__ import annotations

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.paying import at_market
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.screen import out
from marketplace.client.jobs import renewals
from marketplace.client.jobs.renewals import Renewal
from marketplace.client.payer.renewal_rule import RenewalRule, RuleRefused, day_owed
from marketplace.client.payer.routed_payer import RoutedPayer
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import show_ada, show_duration


async def renew(
    where: Where, name: str, duration_ms: int, budget: int, yes: bool, as_json: bool
) -> None:
    """Ask its provider for *duration_ms* more, for at most *budget* lovelace more (0: what that
    costs), and sign what it says once the user agrees.
    """
    async with at_market(where) as opened:
        runner = opened.runner
        offered = await renewals.ask(runner, name, duration_ms, budget)
        confirm_spend("" if as_json else _told(offered), yes)
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


async def by_rule(
    where: Where, name: str, rule: RenewalRule | None, yes: bool, as_json: bool
) -> None:
    """Write into the own book how the job is renewed by itself from now on, once the user agrees;
    None: not any more. DayTooDear, RuleRefused.
    """
    async with at_market(where) as opened:
        held, known = await renewals.lease_of(opened.runner, name)
        if isinstance(held, RoutedPayer):
            raise RuleRefused(f"{name} is paid over a route, and those are not renewed")
        if rule is not None:
            confirm_spend("" if as_json else _each_time(rule, known.terms), yes)
        await held.renew_by(known.terms.lease, rule)
    if as_json:
        told = {"job": name, "lease": known.terms.lease}
        print_json({**told, "rule": rule.to_json() if rule is not None else None})
    elif rule is None:
        out.print(f"{name} ends when it was to end", markup=False)
    else:
        out.print(f"{name} is renewed by whoever pays for it", markup=False)
        out.print("`tally job run`, or `tally payer run`", markup=False, style="dim")


def _each_time(rule: RenewalRule, terms: Terms) -> str:
    most = rule.budget(terms)
    return "\n".join(
        (
            f"longer     {show_duration(rule.for_ms)}, each time that less than"
            f" {show_duration(rule.left_ms)} is left, at the agreed price of"
            f" {show_ada(day_owed(terms))} a day",
            f"at most    {show_ada(most)} each time, and the network's fee of what is paid in",
        )
    )


def _told(offered: Renewal) -> str:
    before, after = offered.before, offered.after
    lines = [
        f"longer     {show_duration(after.max_duration_ms - before.max_duration_ms)}, at the agreed"
        f" price of {show_ada(day_owed(after))} a day",
        f"at most    {show_ada(after.ceiling - before.ceiling)} more,"
        f" {show_ada(after.ceiling)} in all",
    ]
    if offered.amount:
        lines.append(f"pays in    {show_ada(offered.amount)}, and the network's fee of that")
    return "\n".join(lines)
