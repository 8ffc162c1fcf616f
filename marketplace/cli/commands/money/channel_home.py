"""All of a purse's channels: ``tally channel list``, ``close --all`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import anyio.to_thread
import typer

from marketplace.cli.shared.options import ChainUrl, Home, Json, ProjectId, SubmitUrl, Where, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json, print_table
from marketplace.cli.shared.refusals import guarded
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.session import till
from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.units import parse_duration_ms, show_ada

if TYPE_CHECKING:
    from marketplace.client.sdk.homecoming import Done
    from marketplace.client.wallet.chain_wallet import Till
    from marketplace.client.wallet.holdings import Holding, Holdings
    from marketplace.client.wallet.homecoming import Step

WITHIN: Final = "2m"
Within = Annotated[
    str, typer.Option(help="How long to wait for the providers that were asked to end channels.")
]
COLUMNS: Final = ("session key", "state", "holds", "claimed", "comes home", "until", "provider")
_OWN_FEE: Final = "about 0.3 ADA of fees each"


async def holdings(where: Where, key: str = "purse") -> tuple[Till, Holdings]:
    """The purse of *where* and what it has."""
    from marketplace.client.wallet import holdings as found

    mine = await till(where.home, key, where.chain_url, where.project_id, where.submit_urls)
    books = mine.purse.channels if key == "purse" else None
    return mine, await found.look(mine, books)


def list_own(home: Path, key: str, chain_url: str, project_id: str, as_json: bool) -> None:
    """The channels of key *key*, by its books and the chain together."""

    async def story() -> None:
        _, found = await holdings(Where("", chain_url, project_id, home), key)
        if as_json:
            print_json({"items": [one.to_json() for one in found.channels]})
        else:
            show(found.channels)

    guarded(lambda: anyio.run(story))


def show(channels: Sequence[Holding]) -> None:
    """A table of them, and how they come home."""
    print_table("channels", COLUMNS, [row(one) for one in channels], whole=("session key",))
    if channels:
        out.print("[dim]`tally channel close --all` brings home what no job runs on[/]")


def row(one: Holding) -> tuple[str, ...]:
    """As :data:`COLUMNS`."""
    return (
        one.session_vk.hex(), one.state.value.lower(), show_ada(one.lovelace),
        show_ada(one.claimed), show_ada(one.comes_home), until(one),
        "the router" if one.router else one.provider[:16],
    )  # fmt: skip


def until(one: Holding) -> str:
    """When it comes home, or who uses it."""
    by = f" (process {one.holder})" if one.holder else ""
    if one.expire_at_ms is not None:
        return f"closing until {_at(one.expire_at_ms)}"
    if one.end_asked:
        return "its provider was asked to end it"
    if one.leases:
        return f"its job is over: {one.leases[0]}{by}"
    if one.idle_until_ms is not None:
        return f"idle until {_at(one.idle_until_ms)}{by}"
    if one.router:
        return f"it pays any provider; you end it{by}"
    return f"you end it{by}" if one.book else "you close it: no book of it is here"


def _at(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def close_all(where: Where, within: str, yes: bool, as_json: bool) -> None:
    """Every channel that no process and no job uses, kindly where somebody can be asked."""
    from marketplace.client.wallet import homecoming

    wait_ms = guarded(lambda: parse_duration_ms(within))
    guarded(lambda: anyio.run(_home, where, homecoming.end_all, wait_ms, yes, as_json))


def sweep(
    home: Home,
    within: Within = WITHIN,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring home what is over: close periods that ran out, ends that no provider answered, channels
    that were idle for longer than they were kept.
    """
    from marketplace.client.wallet import homecoming

    where = Where("", chain_url, project_id, home, tuple(submit_url or ()))
    wait_ms = guarded(lambda: parse_duration_ms(within))
    guarded(lambda: anyio.run(_home, where, homecoming.sweep, wait_ms, yes, as_json))


Plan = Callable[[Sequence["Holding"], int], "list[Step]"]


async def _home(where: Where, plan: Plan, wait_ms: int, yes: bool, as_json: bool) -> None:
    from marketplace.client.sdk.homecoming import Done

    mine, found = await holdings(where)
    steps = plan(found.channels, (await mine.chain.tip()).time_ms)
    moving = [step for step in steps if step.way != "LEFT"]
    done: list[Done] = []
    if moving:
        await anyio.to_thread.run_sync(confirm_spend, "" if as_json else _said(steps), yes)
        done = [*await _ask(where, mine, moving, wait_ms), *await _alone(mine, moving)]
    rest = [Done(step.holding, "LEFT", why=step.why) for step in steps if step not in moving]
    _report([*done, *rest], as_json)


def _said(steps: Sequence[Step]) -> str:
    """What will be done, and what it costs."""
    lines: list[str] = []
    for step in steps:
        one = step.holding
        lines.append(f"{step.way.lower():7}{one.session_vk.hex()[:16]}…  {show_ada(one.comes_home)}"
                     f" come home  {step.why}")  # fmt: skip
    own = sum(step.costs for step in steps)
    asked = sum(step.way == "END" for step in steps)
    if own:
        lines.append(f"{own} of them by a transaction of yours: {_OWN_FEE}")
    if asked:
        lines.append(f"{asked} by their providers; what no market answers for by you, {_OWN_FEE}")
    return "\n".join(lines)


async def _ask(where: Where, mine: Till, steps: Sequence[Step], wait_ms: int) -> list[Done]:
    """Signed Ends through each market; a market that cannot be reached leaves the chain."""
    from marketplace.cli.shared.consumer import answers
    from marketplace.cli.shared.paying import at_market
    from marketplace.client.sdk import homecoming

    done: list[Done] = []
    asked = [step.holding for step in steps if step.way == "END"]
    for market in sorted({one.market for one in asked}):
        here = [one for one in asked if one.market == market]
        try:
            await answers(market)
            async with at_market(replace(where, market=market)) as opened:
                done += await homecoming.end(opened, here, wait_ms / 1000)
        except Fault as fault:
            err.print(f"{market}: {fault.line()}: closing on chain", markup=False)
            done += [await _one(mine, one) for one in here]
    return done


async def _alone(mine: Till, steps: Sequence[Step]) -> list[Done]:
    return [await _one(mine, step.holding) for step in steps if step.costs]


async def _one(mine: Till, one: Holding) -> Done:
    """One channel that is refused a step keeps no other from coming home."""
    from marketplace.client.sdk.homecoming import Done, alone

    try:
        return await alone(mine, one)
    except Refusal as refusal:
        return Done(one, "LEFT", why=refusal.line())


def _report(done: Sequence[Done], as_json: bool) -> None:
    if as_json:
        print_json({"items": [one.to_json() for one in done]})
        return
    words = {
        "ENDED": "ended: {home} came home",
        "ASKED": "its provider was asked: {home} come home when it ends it",
        "CLOSING": "closing: {home} come home after its close period, by `tally channel sweep`",
        "FINISHED": "finished: {home} came home",
        "LEFT": "left: {why}",
    }
    for one in done:
        said = words[one.did].format(home=show_ada(one.holding.comes_home), why=one.why)
        out.print(f"{one.holding.session_vk.hex()[:16]}…  {said}", markup=False)
    if not done:
        out.print("no channel is open: nothing is locked")


def summary(found: Holdings) -> dict[str, Any]:
    """The sums of a purse, for ``--json``."""
    return {"locked": found.locked, "owed": found.owed, "total": found.total}


def glance(found: Holdings) -> None:
    """A purse in one look: what is free, what is locked where, and how it comes home."""
    home = found.locked - found.owed
    out.print(f"free         {show_ada(found.free)}", markup=False)
    if found.channels or found.locked:
        out.print(f"in channels  {show_ada(found.locked)}: {show_ada(home)} of it come home, "
                  f"{show_ada(found.owed)} are owed", markup=False)  # fmt: skip
    out.print(f"total        {show_ada(found.total)}", markup=False)
    if found.channels:
        show(found.channels)
