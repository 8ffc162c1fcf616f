"""Jobs and quotes as tables for people; ``--json`` prints what the market said instead."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, cast

from rich.text import Text

from marketplace.cli.shared.addresses import addresses
from marketplace.cli.shared.prices import Prices
from marketplace.cli.shared.printing import PIPED_WIDTH, device_text, print_table
from marketplace.cli.shared.screen import out
from marketplace.client.net.answers import JobAnswer, JobQuoteAnswer, MemberQuoteAnswer
from marketplace.client.net.expected import start_words
from marketplace.domain.metering.kinds import KINDS
from marketplace.domain.money.chain_fees import JobFees, RouteFees
from marketplace.domain.units import show_ada

JOB_COLUMNS: Final = ("job", "name", "state", "spent", "at most", "device")
JOB_DROP: Final = ("device", "at most", "name")


def job_row(job: JobAnswer) -> tuple[object, ...]:
    """One line of ``tally job list``."""
    ceiling = job["ceiling"]
    return (
        job["id"],
        job["name"],
        f"{job['state']} {job['reason']}".strip(),
        show_ada(job["spent"]),
        show_ada(ceiling) if ceiling else "",
        device_text(job["device"], job["simulated"]),
    )


def show_job(
    view: JobAnswer, market: str, prices: Prices = Prices(), renews: str = "",
    direct: Sequence[str] = (),
) -> None:  # fmt: skip
    """Where it stands, what it cost, why it ended, its transactions, and what to do next; of a
    service that runs, where it is reached at *market*, and *direct* of its provider; by which rule
    it *renews* itself.
    """
    runs = view["state"] == "RUNNING"
    found = [("service", one.url) for one in addresses(market, view)] if runs else []
    found += [("direct port", one) for one in direct]
    facts = [*_job_facts(view, prices), ("renewed", renews if runs else ""), *found]
    _facts(f"{view['name'] or 'job'}  {view['id']}", facts)
    if moves := view["transactions"]:
        out.print()
        columns = ("transactions", "state", "fee", "id")
        rows = [
            (tx["kind"], tx["state"], prices.amount(tx["fee"]) if tx["fee"] else "", tx["id"])
            for tx in moves
        ]
        print_table("", columns, rows, whole=("id",), drop=("fee", "state"))
    out.print()
    prices.tell()
    out.print(_next(view), markup=False, style="dim")


def _job_facts(view: JobAnswer, prices: Prices) -> list[tuple[str, str]]:
    code = view["exit_code"]
    waits = view["state"] != "ENDED"
    exited = f" (exit code {code})" if code is not None else ""
    return [
        ("state", f"{view['state']} {view['reason']}".strip() + exited),
        ("message", view["message"]),
        ("why it waits", view["explain"].get("text", "") if waits else ""),
        ("device", device_text(view["device"], view["simulated"])),
        ("provider", view["provider"]),
        ("price", _price(view["rate_micro"], view["resource"], prices)),
        ("spent", _spent(view, prices)),
        ("delivered", _delivered(view)),
        ("retries", str(view["retries"] or "")),
        ("created", when(view["created_at_ms"])),
        ("started", when(view["started_at_ms"])),
        ("finished", when(view["finished_at_ms"])),
        ("lease", view["lease"]),
        ("channel", view["channel"]),
    ]


def _price(rate_micro: int, resource: str, prices: Prices) -> str:
    return prices.price(rate_micro, resource) if rate_micro else ""


def _spent(view: JobAnswer, prices: Prices) -> str:
    text = prices.amount(view["spent"])
    if ceiling := view["ceiling"]:
        text += f" of at most {prices.amount(ceiling)}"
    if budget := view["budget"]:
        text += f", budget {prices.amount(budget)}"
    return text


def _delivered(view: JobAnswer) -> str:
    if not view["unit_ms"]:
        return ""
    unit = KINDS[view["resource"]].word
    return f"{view['unit_ms']} {unit}-ms in {counted(view['ticks'], 'tick')}"


def counted(number: int, what: str) -> str:
    """``1 tick``, ``2 ticks``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _next(view: JobAnswer) -> str:
    name = view["id"]
    if view["state"] == "ENDED":
        return f"tally job logs {name}\ntally job outputs {name}\ntally invoice {name} --verify"
    return f"tally job logs -f {name}\ntally job stop {name}"


def share_note(resource: str, units_milli: int) -> str:
    """What a part of a device is worth; nothing for whole ones and for cores."""
    if resource not in KINDS or not KINDS[resource].devices or not 0 < units_milli < 1000:
        return ""
    return "is billed and nothing enforces it: only jobs of your own run beside it"


def start_note(allowance: int) -> str:
    """When a lease on a new channel starts. *allowance*: lovelace that is served before a block."""
    if not allowance:
        return "on a new channel once a block holds it: 20 s or more on a public network"
    return f"on a new channel at once: up to {show_ada(allowance)} are served before its block"


def fees_note(fees: JobFees | None) -> str:
    """What the chain takes for a job, and of whom; empty where nobody says it."""
    if fees is None:
        return ""
    yours = f"you pay {show_ada(fees.consumer)}" if fees.consumer else "you pay nothing"
    return (
        f"{yours} to the network; the provider {show_ada(fees.provider)} for the channel's end, or"
        f" nothing where others' end with it ({show_ada(fees.together)}, which the market pays)"
    )


def smallest_note(fees: JobFees | None, minimum: int) -> str:
    """The smallest job that makes sense, and the least that the provider serves."""
    least = f"this provider takes none that cannot cost {show_ada(minimum)}" if minimum else ""
    if fees is None or not fees.smallest:
        return least
    sense = f"below {show_ada(fees.smallest)} the network takes more than the provider gets"
    return f"{sense}; {least}" if least else sense


def route_note(routed: RouteFees | None, fees: JobFees | None, has_hop: bool) -> str:
    """The job over the market's router, beside a channel of its own, which takes *fees*; empty
    where no router is. *has_hop*: the purse has a channel to it.
    """
    if routed is None:
        return ""
    if not routed.carried:
        return "not this job: the market's router has no channel to this provider, or carries less"
    instead = f" instead of {show_ada(fees.consumer)}" if fees and fees.consumer else ""
    most = f"at most {show_ada(routed.fee)} ({routed.route_bps / 100:g} % of the price){instead}"
    if has_hop:
        way = "(`--route auto`, the default), where it has room"
        return f"{most}, over your channel to the market's router {way}"
    once = show_ada(routed.hop_fee + (fees.consumer if fees else 0))
    network = "" if fees else " and the network's fee"
    return (
        f"{most}, over a channel to the market's router (`--route routed`); your first one costs"
        f" {once}{network} once and waits for its blocks, and then pays any provider"
    )


def show_quote(
    answer: MemberQuoteAnswer | JobQuoteAnswer, prices: Prices = Prices(), has_hop: bool = False
) -> None:
    """Device, price, ceiling, the chain's fees beside the router's, and why the others lost."""
    told, over = answer.get("fees"), cast("JobQuoteAnswer", answer).get("routed")
    fees = JobFees(**told) if told else None
    routed = RouteFees(**over) if over else None
    facts = [
        ("device", device_text(answer["device"], answer["simulated"])),
        ("provider", answer["provider"]),
        ("price", _price(answer["rate_micro"], answer["resource"], prices)),
        ("at most", prices.amount(answer["ceiling"])),
        ("share", share_note(answer["resource"], answer["units_milli"])),
        ("start", start_note(answer.get("allowance", 0))),
        ("then in", start_words(answer.get("expected_start"))),
        ("fees", fees_note(fees)),
        ("smallest", smallest_note(fees, answer.get("minimum", 0))),
        ("or routed", route_note(routed, fees, has_hop)),
    ]
    _facts("quote: nothing is reserved or paid", facts)
    rows = [
        (
            other["provider"][:16],
            _price(other["rate_micro"], answer["resource"], prices),
            other["why"],
        )
        for other in answer.get("alternatives", [])
    ]
    if rows:
        out.print()
        print_table("alternatives", ("provider", "price", "why not"), rows, drop=("provider",))


def when(ms: int) -> str:
    """A time for people; nothing for none."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ms else ""


def _facts(title: str, facts: list[tuple[str, str]]) -> None:
    """Names and values; those without a value are left out. Values fold between words alone: a key
    that is longer than the terminal goes on beyond it, and can be copied.
    """
    told = [(name, value) for name, value in facts if value]
    wide = 2 + max((len(name) for name, _ in told), default=0)
    room = max(20, out.width - wide) if out.is_terminal else PIPED_WIDTH
    out.print(Text(title, style="bold"))
    for name, value in told:
        lines = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False)
        for at, line in enumerate(lines):
            out.print(Text.assemble((f"{'' if at else name:<{wide}}", "dim"), line))


def with_fees(owed: int, fees: int | None, route_fee: int = 0) -> str:
    """The bill as a sum: what was computed, a router's fee if there is one, what the network took,
    and all of it.
    """
    parts = f"compute {show_ada(owed)}"
    if route_fee:
        parts += f" + router {show_ada(route_fee)}"
    if fees is None:
        return f"{parts}; a chain says the network fees"
    whole = show_ada(owed + route_fee + fees)
    return f"{parts} + network fees {show_ada(fees)} = {whole}"
