"""``tally offers``: search the standing supply with a line such as ``gpu.vram>=24GB price<120``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

import anyio
import typer

from marketplace.cli.shared.options import DEFAULT_MARKET, Json
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.prices import Exact, Prices, Source, prices
from marketplace.cli.shared.printing import device_text, print_json, print_table
from marketplace.cli.shared.refusals import UsageError, guarded
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.silence import told_when_silent
from marketplace.client.net.answers import OfferAnswer
from marketplace.client.net.expected import ExpectedStartAnswer, start_words
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read_all
from marketplace.domain.errors import Malformed
from marketplace.domain.isolation import want_isolation
from marketplace.domain.metering.kinds import CORE, GPU, KINDS, show_rate
from marketplace.domain.nearest import nearest
from marketplace.domain.sold import model_matches, nominal_least
from marketplace.domain.units import MICRO, parse_money, parse_rate_micro, parse_size_mib
from marketplace.domain.work.image_names import pinned

app = typer.Typer(help="Search what providers offer.", no_args_is_help=True, rich_markup_mode=None)


class Row(TypedDict):
    """A kind of device of one offer, or its cores: MiB, thousandths of a core, micro-lovelace a
    second; *free* of *count* devices.
    """

    offer: str
    provider: str
    region: str
    trust: int
    egress: bool
    relays: bool
    volumes: bool
    direct: bool
    isolation: list[str]
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    resource: str
    model: str
    vram_mib: int
    count: int
    free: int
    rate_micro: int
    simulated: bool
    expected_start: ExpectedStartAnswer | None


Test = Callable[[Any, Any], bool]

AN_HOUR: Final = "an hour"
COLUMNS: Final = ("device", "memory", "free", AN_HOUR, "a second", "region", "provider")
STARTS: Final = "starts in"
WHOLE: Final = ("memory", "free", AN_HOUR, "provider")
DROP: Final = ("region", "a second", "memory")
_OPS: Final[dict[str, Test]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
    "=": operator.eq,
}  # fmt: skip
_TERM: Final = re.compile(r"([a-z][a-z._]*)(>=|<=|!=|=|<|>)(\S+)")


@dataclass(frozen=True)
class Field:
    """What a name in the query reads from a device's row, and how its value is written."""

    read: Callable[[Row], Any]
    parse: Callable[[str], Any]
    words: bool = False
    among: bool = False  # what is read is several, of which the value is one or not


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise UsageError(f"{text!r} is not a whole number")
    return int(text)


def _cores(text: str) -> int:
    return _number(text) * 1000


def _rate(text: str) -> int:
    """``120`` is lovelace a second, ``0.5ADA/h`` is by the hour; no space is needed."""
    by_hour = re.fullmatch(r"(.+)/h", text)
    if by_hour is not None:
        return parse_money(re.sub(r"(?<=[0-9])(?=[A-Za-z])", " ", by_hour[1])) * MICRO // 3600
    if re.fullmatch(r"[0-9]+(\.[0-9]{1,6})?", text):
        text = f"{text} lovelace"
    return parse_rate_micro(re.sub(r"(?<=[0-9])(?=[A-Za-z])", " ", text))


FIELDS: Final[dict[str, Field]] = {
    "gpu.model": Field(lambda r: r["model"], str, words=True),
    "gpu.vram": Field(lambda r: r["vram_mib"], lambda text: nominal_least(parse_size_mib(text))),
    "gpu.count": Field(lambda r: r["count"], _number),
    "gpu.free": Field(lambda r: r["free"], _number),
    "price": Field(lambda r: r["rate_micro"], _rate),
    "cpu": Field(lambda r: r["cpu_milli"], _cores),
    "memory": Field(lambda r: r["memory_mib"], parse_size_mib),
    "disk": Field(lambda r: r["disk_mib"], parse_size_mib),
    "region": Field(lambda r: r["region"], str),
    "trust": Field(lambda r: r["trust"], _number),
    "provider": Field(lambda r: r["provider"], str),
    "isolation": Field(lambda r: r["isolation"], want_isolation, among=True),
    "egress": Field(lambda r: "yes" if r["egress"] else "no", str),
    "relays": Field(lambda r: "yes" if r["relays"] else "no", str),
    "volumes": Field(lambda r: "yes" if r["volumes"] else "no", str),
    "direct": Field(lambda r: "yes" if r["direct"] else "no", str),
    "simulated": Field(lambda r: "yes" if r["simulated"] else "no", str),
}


@dataclass(frozen=True)
class Term:
    """One condition of the query."""

    text: str
    field: Field
    op: str
    value: Any

    def holds(self, row: Row) -> bool:
        """Whether *row* meets it."""
        found = self.field.read(row)
        if self.field.among:
            return (self.value in found) is (self.op == "=")
        if self.field.words and self.op in ("=", "!="):
            return model_matches(str(self.value), str(found)) is (self.op == "=")
        return _OPS[self.op](found, self.value)


def parse_query(query: str) -> list[Term]:
    """The conditions of *query*; all must hold. :class:`UsageError` names what is wrong."""
    terms: list[Term] = []
    for word in query.split():
        match = _TERM.fullmatch(word)
        if match is None:
            raise UsageError(f"{word!r} is not a condition such as gpu.vram>=24GB or price<120")
        name, op, text = match[1], match[2], match[3]
        field = FIELDS.get(name)
        if field is None:
            raise UsageError(f"unknown field {name!r}{nearest(name, FIELDS)}")
        if op not in ("=", "!=") and (field.parse is str or field.among):
            raise UsageError(f"{word!r}: {name} is compared with = or !=")
        try:
            terms.append(Term(word, field, op, field.parse(text)))
        except Malformed as wrong:
            raise UsageError(f"{word!r}: {wrong.message}") from None
    return terms


def pinned_or_refused(image: str) -> str:
    """*image* by its digest; :class:`UsageError`."""
    try:
        found = pinned(image)
    except Malformed as wrong:
        raise UsageError(f"--image {wrong.message}") from None
    if found is None:
        raise UsageError(f"--image {image}: name its digest, as in {image}@sha256:…")
    return found


def rows_of(offer: OfferAnswer) -> list[Row]:
    """One row for each kind of device of *offer*, and one for its cores where they are rented
    alone.
    """
    cpu = offer["cpu"]
    cores: Row = {
        "offer": offer["id"],
        "provider": offer["provider"],
        "region": offer["region"],
        "trust": offer["trust"],
        "egress": offer["egress"],
        "relays": offer.get("relay_free_ms", 0) > 0,
        "volumes": offer.get("disk_rate_micro", 0) > 0,
        "direct": offer.get("direct_ports", 0) > 0,
        "isolation": offer["isolation"],
        "cpu_milli": cpu["milli"],
        "memory_mib": offer["memory_mib"],
        "disk_mib": offer["disk_mib"],
        "resource": CORE.name,
        "model": cpu["model"],
        "vram_mib": 0,
        "count": 0,
        "free": 0,
        "rate_micro": offer["core_rate_micro"],
        "simulated": False,
        "expected_start": offer.get("expected_start"),
    }
    kinds: dict[tuple[str, int], Row] = {}
    for gpu in offer["gpus"]:
        first: Row = {
            **cores, "resource": GPU.name, "model": gpu["model"], "vram_mib": gpu["vram_mib"],
            "rate_micro": gpu["rate_micro"], "simulated": gpu["simulated"],
        }  # fmt: skip
        row = kinds.setdefault((gpu["model"], gpu["vram_mib"]), first)
        row["count"] += 1
        row["free"] += gpu["free_milli"] == 1000
    found = list(kinds.values())
    return [*found, cores] if cores["rate_micro"] else found


@app.callback()
def offers() -> None:
    """Search what providers offer."""


@app.command()
def search(
    query: Annotated[
        str, typer.Argument(help="Conditions, such as 'gpu.model=H100 gpu.vram>=24GB price<120'.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of each other device why it is out.")
    ] = False,
    image: Annotated[
        str, typer.Option(help="Say how soon it would run there; a public one, by its digest.")
    ] = "",
    market: MarketOption = DEFAULT_MARKET,
    exact: Exact = False,
    price_url: Source = "",
    as_json: Json = False,
) -> None:
    """Devices and cores on offer that meet QUERY, the cheapest first; prices by the hour."""

    async def story() -> None:
        terms = parse_query(query)
        async with aclosing(Http(market)) as http:
            with told_when_silent(market):
                of = {"image": pinned_or_refused(image)} if image else {}
                answer = await http.all("/v1/offers", limit=10_000, **of)
        standing = read_all(OfferAnswer, answer, "offers")
        rows = [row for offer in standing for row in rows_of(offer)]
        rows.sort(key=lambda row: (row["resource"], row["rate_micro"], row["offer"]))
        failed = [(row, [term.text for term in terms if not term.holds(row)]) for row in rows]
        found = [row for row, why in failed if not why]
        if as_json:
            out_of = [{**row, "why": why} for row, why in failed if why] if explain else None
            print_json({"items": found, **({"out": out_of} if out_of is not None else {})})
            return
        told = await prices(exact, price_url)
        cells = [_cells(row, told) for row in found]
        columns = tuple(one for one in COLUMNS if not (exact and one == AN_HOUR))
        if image:
            columns = (*columns, STARTS)
            cells = [
                (*cell, start_words(row["expected_start"]) or "nobody can say")
                for cell, row in zip(cells, found, strict=True)
            ]
        print_table("offers", columns, cells, whole=WHOLE, drop=DROP)
        told.tell()
        if explain:
            _explain(failed, terms, told)

    guarded(lambda: anyio.run(story))


def _cells(row: Row, told: Prices) -> tuple[object, ...]:
    free = (
        f"{row['free']} of {row['count']}"
        if KINDS[row["resource"]].devices
        else f"{row['cpu_milli'] // 1000} cores"
    )
    memory = f"{row['vram_mib']} MiB" if row["vram_mib"] else f"{row['memory_mib']} MiB"
    return (
        device_text(row["model"], row["simulated"]),
        memory,
        free,
        *([] if told.exact else [told.an_hour(row["rate_micro"])]),
        show_rate(row["rate_micro"], row["resource"]),
        row["region"],
        row["provider"][:16],
    )


def _explain(failed: list[tuple[Row, list[str]]], terms: list[Term], told: Prices) -> None:
    """Counted by condition, and each device with the conditions that it does not meet."""
    print_table(
        "not shown", ("device", "price", "because not"),
        [
            (
                device_text(row["model"], row["simulated"]),
                told.price(row["rate_micro"], row["resource"]),
                ", ".join(why),
            )
            for row, why in failed
            if why
        ],
    )  # fmt: skip
    for term in terms:
        alone = sum(why == [term.text] for _, why in failed)
        if alone:
            out.print(f"without {term.text}: {alone} more", markup=False)
