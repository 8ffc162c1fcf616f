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

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import yaml

from adapter.config_sections import (
    ConfigMissing,
    ConfigRefused,
    only_known,
    read_direct,
    read_images,
    read_limits,
    read_mesh,
    read_minimum,
    read_prices,
    read_readable,
    read_reserve,
    read_signers,
    read_stores,
    read_table,
    read_time,
    read_treasury,
    read_typed,
    read_window,
)
from adapter.core.shelving import Shelving
from adapter.core.state import Direct, Limits, Rules
from adapter.devices.inventory import Reserve
from adapter.devices.prices import Prices
from adapter.mesh.reach import Reach
from marketplace.domain.supply.offer import Window


@dataclass(frozen=True)
class Config:
    """Everything that the owner decides.  *chain_url*, *project_id*, *market*, *home*: where;
    *submit_urls*: further doors through which transactions are sent, too.

    *simulate*: a profile such as ``h100x2``, on a devnet only; *runtime*: docker, process or both;
    *slices*: the MIG plan, from a GPU's UUID to its profiles; *unconfined*: lets the process
    runtime run without bubblewrap; *host_network*: gives processes the host's network, which open
    egress and ports need there; *egress*: jobs that ask may connect out; *metrics_port*: 0 = none.
    *readable*: folders of the host that plain processes may read, beside its programs.
    *direct*: where ports of workloads are opened to the world, None: nowhere; *mesh*: where members
    of clusters are reached by each other, None: none is taken that needs it; *stores*: networks in
    which a cluster's store may be beside the internet, None: none is shown.
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
    readable: tuple[str, ...] = ()
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
    shelving: Shelving = field(default_factory=Shelving)
    signed_by: tuple[Path, ...] = ()
    windows: tuple[Window, ...] = ()
    direct: Direct | None = None
    mesh: Reach | None = None
    stores: tuple[str, ...] | None = None
    slices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def folder(self) -> Path:
        """Where the adapter keeps its state."""
        return (self.state or self.home / "adapter").expanduser()

    @property
    def status_path(self) -> Path:
        """The socket at which a running adapter answers ``tally adapter status`` and ``drain``."""
        return self.folder / "adapter.sock"


RUNTIMES: Final = {
    "docker": ("docker",), "process": ("process",), "both": ("docker", "process"),
}  # fmt: skip
"""What each word of *runtime* means."""
MOST_ALLOWANCE: Final = 3_000_000
_TIMES: Final = ("tick", "grace", "pause_limit", "close_period")
_PLAIN: Final[Mapping[str, type]] = {
    "market": str, "chain_url": str, "project_id": str, "payout": str, "region": str, "host": str,
    "up_kbit": int, "down_kbit": int, "simulate": str, "runtime": str, "docker_host": str,
    "gpu_request": str, "unconfined": bool, "host_network": bool, "allow_root": bool,
    "egress": bool, "metrics_port": int, "asset": str, "fee_bps": int,
}  # fmt: skip
_SECTIONS: Final = (("prices",), ("reserve",), ("limits",), ("treasury",), ("images",))
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
            config.runtime in RUNTIMES,
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
    return read_table(found, str(path))


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
        "images", "maintenance", "direct", "mesh", "stores", "slices", "submit_urls", "minimum",
        "readable",
    )  # fmt: skip
    only_known(data, known, "")
    values: dict[str, Any] = {
        k: read_typed(data[k], kind, k) for k, kind in _PLAIN.items() if k in data
    }
    values |= {f"{k}_ms": read_time(data[k], k) for k in _TIMES if k in data}
    values |= {k: Path(read_typed(data[k], str, k)) for k in ("home", "state") if k in data}
    if "minimum" in data:
        values["minimum"] = read_minimum(data["minimum"])
    if "labels" in data:
        values["labels"] = {str(k): str(v) for k, v in read_table(data["labels"], "labels").items()}
    for name, read in (
        ("prices", read_prices), ("reserve", read_reserve), ("limits", read_limits),
        ("treasury", read_treasury), ("direct", read_direct), ("mesh", read_mesh),
        ("stores", read_stores),
    ):  # fmt: skip
        if name in data:
            values[name] = read(read_table(data[name], name))
    if "images" in data:
        table = read_table(data["images"], "images")
        values |= {"shelving": read_images(table), "signed_by": read_signers(table)}
    if "submit_urls" in data:
        urls = read_typed(data["submit_urls"], list, "submit_urls")
        values["submit_urls"] = tuple(read_typed(url, str, "submit_urls") for url in urls)
    if "readable" in data:
        values["readable"] = read_readable(data["readable"])
    if "slices" in data:
        values["slices"] = {
            uuid: tuple(
                read_typed(one, str, f"slices.{uuid}") for one in read_typed(plan, list, "slices")
            )
            for uuid, plan in read_table(data["slices"], "slices").items()
        }
    if "maintenance" in data:
        values["windows"] = tuple(
            read_window(read_table(w, "maintenance")) for w in data["maintenance"]
        )
    return Config(**values)
