"""The owner's configuration: one TOML or YAML file, overridden by the environment, then by options.

Every key has a default but the payout address.  Unknown keys are refused with the nearest known
one, so a misspelt limit is never silently absent.  Words for money and time as everywhere: ``1900
lovelace`` a GPU-second, ``10m``.  See docs/provider.md for a commented example::

    payout = "addr1…"
    region = "EU"
    [prices]
    "RTX 4090" = "220 lovelace"
    core = "6 lovelace"
    [[prices.schedule]]
    hours = "22-7"
    percent = 70
    [limits]
    images = ["ghcr.io/acme/*"]
    [[maintenance]]
    start = "2027-01-10T02:00:00Z"
    end = "2027-01-10T05:00:00Z"
    notice = "new power supply"
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import yaml

from adapter.core.state import Limits, Rules
from adapter.devices.inventory import Reserve
from adapter.devices.prices import DAYS, Prices, Slot
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.supply.offer import Window
from marketplace.domain.units import (
    parse_duration_ms,
    parse_money,
    parse_rate_micro,
    parse_size_mib,
)


class ConfigRefused(Refusal):
    """The configuration does not read, or says something impossible; *problems*: all that is wrong,
    one line each.
    """

    code = "CONFIG_REFUSED"
    remedy = "correct the key that is named; docs/provider.md lists them all"

    def __init__(self, *problems: str) -> None:
        many = f"{len(problems)} problems:\n  " + "\n  ".join(problems)
        super().__init__(problems[0] if len(problems) == 1 else many)
        self.problems = problems


class ConfigMissing(ConfigRefused):
    """There is no such file, or it cannot be read."""

    code = "CONFIG_MISSING"
    remedy = "name the file with --config; docs/provider.md has one to begin with"


@dataclass(frozen=True)
class Config:
    """Everything that the owner decides.  *chain_url*, *project_id*, *market*, *home*: where;
    *submit_urls*: further doors through which transactions are sent, too.

    *simulate*: a profile such as ``h100x2``, on a devnet only; *runtime*: docker, process or both;
    *slices*: the MIG plan, from a GPU's UUID to its profiles; *unconfined*: lets the process
    runtime run without bubblewrap; *host_network*: gives processes the host's network, which open
    egress and ports need there; *egress*: jobs that ask may connect out; *metrics_port*: 0 = none.
    *minimum*: the least that a job on a channel of its own must be able to cost; None: what ending
    that channel costs, by the chain's parameters.
    """

    market: str = "http://127.0.0.1:8000"
    chain_url: str = "http://127.0.0.1:3001"
    submit_urls: tuple[str, ...] = ()
    project_id: str = ""
    home: Path = Path("~/.tally")
    state: Path | None = None
    payout: str = ""
    region: str = ""
    host: str = ""
    up_kbit: int = 0
    down_kbit: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    simulate: str = ""
    runtime: str = "docker"
    docker_host: str = ""
    gpu_request: str = "cdi"
    unconfined: bool = False
    host_network: bool = False
    allow_root: bool = False
    egress: bool = False
    metrics_port: int = 0
    asset: str = ""
    tick_ms: int = 1000
    grace_ms: int = 2000
    pause_limit_ms: int = 60_000
    close_period_ms: int = 86_400_000
    fee_bps: int = 50
    minimum: int | None = None
    prices: Prices = field(default_factory=Prices)
    reserve: Reserve = field(default_factory=Reserve)
    limits: Limits = field(default_factory=Limits)
    treasury: Rules = field(default_factory=Rules)
    windows: tuple[Window, ...] = ()
    slices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def folder(self) -> Path:
        """Where the adapter keeps its state."""
        return (self.state or self.home / "adapter").expanduser()

    @property
    def status_path(self) -> Path:
        """The socket at which a running adapter answers ``tally adapter status`` and ``drain``."""
        return self.folder / "adapter.sock"


MOST_ALLOWANCE: Final = 3_000_000
_TIMES: Final = ("tick", "grace", "pause_limit", "close_period")
_PLAIN: Final[Mapping[str, type]] = {
    "market": str, "chain_url": str, "project_id": str, "payout": str, "region": str, "host": str,
    "up_kbit": int, "down_kbit": int, "simulate": str, "runtime": str, "docker_host": str,
    "gpu_request": str, "unconfined": bool, "host_network": bool, "allow_root": bool,
    "egress": bool, "metrics_port": int, "asset": str, "fee_bps": int,
}  # fmt: skip
_LIMIT_TIMES: Final = (
    "resume_window", "fund_wait", "fund_blind", "fund_seen", "fault_grace", "final_wait",
    "linger", "keep_channel", "keep", "stop_grace", "max_lease",
)  # fmt: skip
_SECTIONS: Final = (("prices",), ("reserve",), ("limits",), ("treasury",))
_ENVIRONMENT: Final = {
    "TALLY_MARKET": "market",
    "TALLY_CHAIN_URL": "chain_url",
    "TALLY_PROJECT_ID": "project_id",
    "TALLY_PAYOUT": "payout",
    "DOCKER_HOST": "docker_host",
}


def load(
    path: Path | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The configuration of *path* (TOML, or YAML by its suffix; none = defaults), under the
    environment's, under *options* (fields of :class:`Config`; None = not given)."""
    env = os.environ if environment is None else environment
    config = parse(_read(path)) if path is not None else Config()
    given = {name: env[key] for key, name in _ENVIRONMENT.items() if env.get(key)}
    if env.get("TALLY_SUBMIT_URLS"):
        given["submit_urls"] = cast(Any, tuple(env["TALLY_SUBMIT_URLS"].split()))
    if env.get("TALLY_HOME"):
        given["home"] = cast(Any, Path(env["TALLY_HOME"]))
    over = {k: v for k, v in (options or {}).items() if v not in (None, "")}
    return check(replace(config, **cast(dict[str, Any], {**given, **over})))


def check(config: Config) -> Config:
    """*config*, if nothing in it is impossible."""
    rules = (
        (
            config.runtime in ("docker", "process", "both"),
            "runtime is docker (jobs run images), process (the host's own programs) or both",
        ),
        (config.gpu_request in ("cdi", "legacy"), "gpu_request is cdi or legacy"),
        (1000 <= config.tick_ms <= 60_000, "tick is 1 s to 60 s"),
        (0 <= config.fee_bps <= 100, "fee_bps is 0 to 100"),
        (0 <= config.metrics_port < 65_536, "metrics_port is a port, or 0"),
        (config.close_period_ms >= 60_000, "close_period is at least a minute"),
        (
            10_000 <= config.treasury.claim_wait_ms <= 300_000,
            (
                "treasury.claim_wait is 10 s to 5 min: until then nobody is told that claims are"
                " kept out"
            ),
        ),
        (config.treasury.claim_above > 0, "treasury.claim_above is above zero"),
        (
            0 <= config.treasury.allowance <= MOST_ALLOWANCE,
            "treasury.allowance is 0 ADA (a block is waited for) to 3 ADA, what one block is good"
            " for",
        ),
    )
    wrong = [why for holds, why in rules if not holds]
    if wrong:
        raise ConfigRefused(*wrong)
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigMissing(f"{path}: {error.strerror or error}") from error
    try:
        if path.suffix in (".yaml", ".yml"):
            found: Any = yaml.safe_load(text) or {}
        else:
            found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ConfigRefused(f"{path}: {error}") from error
    return _map(found, str(path))


def parse(data: Mapping[str, Any]) -> Config:
    """The configuration that a file's content means; :class:`ConfigRefused` names all that is wrong
    with it.
    """
    wrong = [no for name, value in data.items() for no in _wrong((name,), value)]
    if wrong:
        raise ConfigRefused(*dict.fromkeys(wrong))
    return _parse(data)


def _wrong(path: tuple[str, ...], value: object) -> list[str]:
    """What is wrong at one place and below it. Each key is read as if it stood alone, and each
    table of a list: reading stops at the first mistake, and an owner wants to know them all.
    """
    if isinstance(value, dict) and path in _SECTIONS:
        inner = cast(dict[str, Any], value).items()
        return [no for name, one in inner for no in _wrong((*path, name), one)]
    if isinstance(value, list) and any(isinstance(one, dict) for one in cast(list[Any], value)):
        parts: list[Any] = [[one] for one in cast(list[Any], value)]
    else:
        parts = [value]
    found: list[str] = []
    for part in parts:
        try:
            check(_parse({path[0]: {path[1]: part}} if path[1:] else {path[0]: part}))
        except ConfigRefused as refused:
            found += refused.problems
    return found


def _parse(data: Mapping[str, Any]) -> Config:
    known = (
        *_PLAIN, *_TIMES, "home", "state", "labels", "prices", "reserve", "limits", "treasury",
        "maintenance",
        "slices", "submit_urls", "minimum",
    )  # fmt: skip
    _known(data, known, "")
    values: dict[str, Any] = {
        k: _typed(data[k], kind, k) for k, kind in _PLAIN.items() if k in data
    }
    values |= {f"{k}_ms": _time(data[k], k) for k in _TIMES if k in data}
    values |= {k: Path(_typed(data[k], str, k)) for k in ("home", "state") if k in data}
    if "minimum" in data:
        values["minimum"] = _minimum(data["minimum"])
    if "labels" in data:
        values["labels"] = {str(k): str(v) for k, v in _map(data["labels"], "labels").items()}
    for name, read in (
        ("prices", _prices), ("reserve", _reserve), ("limits", _limits), ("treasury", _treasury),
    ):  # fmt: skip
        if name in data:
            values[name] = read(_map(data[name], name))
    if "submit_urls" in data:
        urls = _typed(data["submit_urls"], list, "submit_urls")
        values["submit_urls"] = tuple(_typed(url, str, "submit_urls") for url in urls)
    if "slices" in data:
        values["slices"] = {
            uuid: tuple(_typed(one, str, f"slices.{uuid}") for one in _typed(plan, list, "slices"))
            for uuid, plan in _map(data["slices"], "slices").items()
        }
    if "maintenance" in data:
        values["windows"] = tuple(_window(_map(w, "maintenance")) for w in data["maintenance"])
    return Config(**values)


def _minimum(value: object) -> int:
    """Of the asset's smallest unit: a whole number, or words for money."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ConfigRefused("minimum is 0 (every job is served) or more")
        return value
    return _said(parse_money, value, "minimum")


def _prices(data: Mapping[str, Any]) -> Prices:
    models = {k: _rate(v, k) for k, v in data.items() if k not in ("core", "schedule")}
    core = _rate(data["core"], "core") if "core" in data else None
    slots = tuple(_slot(_map(s, "schedule")) for s in data.get("schedule", []))
    if any(rate <= 0 for rate in models.values()):
        raise ConfigRefused("prices: a GPU's price is above zero; exclude a device in [reserve]")
    return Prices(models, core, slots)


def _slot(data: Mapping[str, Any]) -> Slot:
    _known(data, ("hours", "percent", "days"), "prices.schedule.")
    start, dash, end = str(data.get("hours", "")).partition("-")
    days = tuple(str(d).lower()[:3] for d in data.get("days", []))
    percent = _typed(data.get("percent", 100), int, "percent")
    good = dash and start.strip().isdecimal() and end.strip().isdecimal()
    if not good or not 0 <= int(start) < 24 or not 0 <= int(end) <= 24:
        raise ConfigRefused("prices.schedule: hours are such as 22-7")
    if not set(days) <= set(DAYS) or not 1 <= percent <= 1000:
        raise ConfigRefused("prices.schedule: days are mon to sun, percent is 1 to 1000")
    return Slot(int(start), int(end), percent * 10, days)


def _reserve(data: Mapping[str, Any]) -> Reserve:
    _known(data, ("cores", "memory", "disk", "shares", "excluded"), "reserve.")
    base = Reserve()
    shares = _map(data.get("shares", {}), "reserve.shares")
    return Reserve(
        cores_milli=_typed(data.get("cores", 1), int, "cores") * 1000,
        memory_mib=_size(data["memory"]) if "memory" in data else base.memory_mib,
        disk_mib=_size(data["disk"]) if "disk" in data else base.disk_mib,
        shares={k: _typed(v, int, "shares") for k, v in shares.items()},
        excluded=frozenset(str(uuid) for uuid in data.get("excluded", [])),
    )


def _limits(data: Mapping[str, Any]) -> Limits:
    _known(data, (*_LIMIT_TIMES, "images", "image_size", "max_leases"), "limits.")
    values: dict[str, Any] = {f"{k}_ms": _time(data[k], k) for k in _LIMIT_TIMES if k in data}
    if "images" in data:
        values["images"] = tuple(str(image) for image in data["images"])
    if "image_size" in data:
        values["image_mib"] = _size(data["image_size"])
    if "max_leases" in data:
        values["max_leases"] = _typed(data["max_leases"], int, "max_leases")
    return Limits(**values)


def _treasury(data: Mapping[str, Any]) -> Rules:
    money = ("claim_above", "claim_drained", "allowance")
    _known(data, (*money, "watch", "claim_wait", "batch_wait"), "treasury.")
    values: dict[str, Any] = {k: _said(parse_money, data[k], k) for k in money if k in data}
    if "watch" in data:
        values["watch_s"] = min(30_000, _time(data["watch"], "watch")) / 1000
    if "claim_wait" in data:
        values["claim_wait_ms"] = _time(data["claim_wait"], "claim_wait")
    if "batch_wait" in data:
        values["batch_wait_ms"] = _batch_wait(data["batch_wait"])
    return Rules(**values)


def _batch_wait(value: object) -> int:
    wait = 0 if value == 0 else _time(value, "batch_wait")
    if not 0 <= wait <= 900_000:
        raise ConfigRefused("treasury.batch_wait is 0 (end alone, at once) to 15 min")
    return wait


def _window(data: Mapping[str, Any]) -> Window:
    _known(data, ("start", "end", "notice"), "maintenance.")
    start, end = (_moment(data.get(k), k) for k in ("start", "end"))
    if end <= start:
        raise ConfigRefused("maintenance: it ends before it begins")
    return Window(start, end, str(data.get("notice", "")))


def _moment(value: object, name: str) -> int:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise ConfigRefused(f"maintenance.{name}: {value!r} is no ISO 8601 time") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _known(data: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigRefused(f"{where}{key} is not a key{hint}")


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigRefused(f"{name} is not a table")
    return cast(dict[str, Any], value)


def _typed(value: object, kind: type, name: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigRefused(f"{name} is not of the kind {kind.__name__}")
    return value


def _said(read: Any, value: object, name: str) -> Any:
    try:
        return read(str(value))
    except TallyError as error:
        raise ConfigRefused(f"{name}: {error}") from error


def _time(value: object, name: str) -> int:
    return _said(parse_duration_ms, value, name)


def _rate(value: object, name: str) -> int:
    return _said(parse_rate_micro, value, name)


def _size(value: object) -> int:
    return _said(parse_size_mib, value, "size")
