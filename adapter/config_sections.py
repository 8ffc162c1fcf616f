"""What the owner's file says in its sections and its words, as values: the readers under
:mod:`adapter.config`.

Each takes one key's or one table's value as TOML or YAML gave it, and refuses it by the key's name.
"""

from __future__ import annotations

import difflib
import ipaddress
import posixpath
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from adapter.core.shelving import MOST_AHEAD, Shelving
from adapter.core.state import Direct, Limits, Rules
from adapter.devices.inventory import Reserve
from adapter.devices.prices import DAYS, Prices, Slot
from adapter.mesh.reach import BEHIND_NAT, Reach
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.supply.offer import Window
from marketplace.domain.units import (
    parse_duration_ms,
    parse_money,
    parse_rate_micro,
    parse_size_mib,
)
from marketplace.domain.work.direct_port import want_address
from marketplace.domain.work.mesh import want_endpoint
from marketplace.domain.work.workload import WORKSPACE

MOST_DIRECT: Final = 1024
ANY: Final = "0.0.0.0"
_HIDDEN: Final = (
    "/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var", WORKSPACE,
)  # fmt: skip
"""Of these a process has its own, or none."""
_LIMIT_TIMES: Final = (
    "resume_window", "fund_wait", "fund_blind", "fund_seen", "fault_grace", "final_wait",
    "linger", "keep_channel", "keep", "stop_grace", "max_lease", "relay_free", "volume_keep",
    "cluster_free",
)  # fmt: skip


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


def read_minimum(value: object) -> int:
    """Of the asset's smallest unit: a whole number, or words for money."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ConfigRefused("minimum is 0 (every job is served) or more")
        return value
    return _said(parse_money, value, "minimum")


def read_prices(data: Mapping[str, Any]) -> Prices:
    """``[prices]``: a rate by model, ``core``, ``disk`` and the schedule; rates in millionths a
    second.
    """
    models = {k: _rate(v, k) for k, v in data.items() if k not in ("core", "disk", "schedule")}
    stays = _rate(data["disk"], "disk") if "disk" in data else 0
    core = _rate(data["core"], "core") if "core" in data else None
    slots = tuple(_slot(read_table(s, "schedule")) for s in data.get("schedule", []))
    if any(rate <= 0 for rate in models.values()):
        raise ConfigRefused("prices: a GPU's price is above zero; exclude a device in [reserve]")
    return Prices(models, core, slots, stays)


def _slot(data: Mapping[str, Any]) -> Slot:
    only_known(data, ("hours", "percent", "days"), "prices.schedule.")
    start, dash, end = str(data.get("hours", "")).partition("-")
    days = tuple(str(d).lower()[:3] for d in data.get("days", []))
    percent = read_typed(data.get("percent", 100), int, "percent")
    good = dash and start.strip().isdecimal() and end.strip().isdecimal()
    if not good or not 0 <= int(start) < 24 or not 0 <= int(end) <= 24:
        raise ConfigRefused("prices.schedule: hours are such as 22-7")
    if not set(days) <= set(DAYS) or not 1 <= percent <= 1000:
        raise ConfigRefused("prices.schedule: days are mon to sun, percent is 1 to 1000")
    return Slot(int(start), int(end), percent * 10, days)


def read_reserve(data: Mapping[str, Any]) -> Reserve:
    """``[reserve]``: what the owner keeps for himself, in thousandths of a core and MiB."""
    only_known(data, ("cores", "memory", "disk", "shares", "excluded"), "reserve.")
    base = Reserve()
    shares = read_table(data.get("shares", {}), "reserve.shares")
    return Reserve(
        cores_milli=read_typed(data.get("cores", 1), int, "cores") * 1000,
        memory_mib=_size(data["memory"]) if "memory" in data else base.memory_mib,
        disk_mib=_size(data["disk"]) if "disk" in data else base.disk_mib,
        shares={k: read_typed(v, int, "shares") for k, v in shares.items()},
        excluded=frozenset(str(uuid) for uuid in data.get("excluded", [])),
    )


def read_limits(data: Mapping[str, Any]) -> Limits:
    """``[limits]``: which images run here, how big, how many leases; times in ms."""
    only_known(data, (*_LIMIT_TIMES, "images", "image_size", "max_leases"), "limits.")
    values: dict[str, Any] = {f"{k}_ms": read_time(data[k], k) for k in _LIMIT_TIMES if k in data}
    if "images" in data:
        values["images"] = tuple(str(image) for image in data["images"])
    if "image_size" in data:
        values["image_mib"] = _size(data["image_size"])
    if "max_leases" in data:
        values["max_leases"] = read_typed(data["max_leases"], int, "max_leases")
    return Limits(**values)


def read_images(data: Mapping[str, Any]) -> Shelving:
    """``[images]``: what is kept of those that jobs brought, and what is fetched ahead."""
    only_known(data, ("keep", "keep_for", "ahead", "ahead_size", "signed_by"), "images.")
    values: dict[str, Any] = {}
    if "keep" in data:
        values["keep_mib"] = 0 if data["keep"] == 0 else _size(data["keep"])
    if "keep_for" in data:
        values["keep_ms"] = 0 if data["keep_for"] == 0 else read_time(data["keep_for"], "keep_for")
    if "ahead" in data:
        values["ahead"] = read_typed(data["ahead"], int, "ahead")
        if not 0 <= values["ahead"] <= MOST_AHEAD:
            raise ConfigRefused(f"images.ahead is 0 (none) to {MOST_AHEAD} popular images")
    if "ahead_size" in data:
        values["ahead_mib"] = _size(data["ahead_size"])
    return Shelving(**values)


def read_signers(data: Mapping[str, Any]) -> tuple[Path, ...]:
    """``images.signed_by``: files of public keys, of which one has to have signed an image."""
    files = read_typed(data.get("signed_by", []), list, "images.signed_by")
    return tuple(Path(read_typed(one, str, "images.signed_by")) for one in files)


def read_treasury(data: Mapping[str, Any]) -> Rules:
    """``[treasury]``: when money is claimed and how often is looked; lovelace and ms."""
    money = ("claim_above", "claim_drained", "allowance")
    only_known(data, (*money, "watch", "claim_wait", "batch_wait"), "treasury.")
    values: dict[str, Any] = {k: _said(parse_money, data[k], k) for k in money if k in data}
    if "watch" in data:
        values["watch_s"] = min(30_000, read_time(data["watch"], "watch")) / 1000
    if "claim_wait" in data:
        values["claim_wait_ms"] = read_time(data["claim_wait"], "claim_wait")
    if "batch_wait" in data:
        values["batch_wait_ms"] = _batch_wait(data["batch_wait"])
    return Rules(**values)


def _batch_wait(value: object) -> int:
    wait = 0 if value == 0 else read_time(value, "batch_wait")
    if not 0 <= wait <= 900_000:
        raise ConfigRefused("treasury.batch_wait is 0 (end alone, at once) to 15 min")
    return wait


def read_direct(data: Mapping[str, Any]) -> Direct:
    """``[direct]``: where ports of workloads are opened to the world."""
    only_known(data, ("address", "ports", "bind"), "direct.")
    address = _said(want_address, data.get("address", ""), "direct.address")
    first, count = _ports(data, "direct", "30000-30099")
    return Direct(address, first, count, _bind(data.get("bind", ANY)))


def read_mesh(data: Mapping[str, Any]) -> Reach:
    """``[mesh]``: where members of clusters are reached by each other, by UDP."""
    only_known(data, ("endpoint", "ports"), "mesh.")
    said = data.get("endpoint", "")
    endpoint = "" if said == BEHIND_NAT else _said(want_endpoint, said, "mesh.endpoint")
    return Reach(endpoint, *_ports(data, "mesh", "41000-41063"))


def read_stores(data: Mapping[str, Any]) -> tuple[str, ...]:
    """``[stores]``: clusters' members are shown their store here; *networks*: where one may be,
    beside the internet.
    """
    only_known(data, ("networks",), "stores.")
    said = read_typed(data.get("networks", []), list, "stores.networks")
    found: list[str] = []
    for one in said:
        try:
            found.append(str(ipaddress.IPv4Network(read_typed(one, str, "stores.networks"))))
        except ValueError:
            why = f"stores.networks: {one!r} is no network such as 10.1.0.0/16"
            raise ConfigRefused(why) from None
    return tuple(found)


def _ports(data: Mapping[str, Any], name: str, such: str) -> tuple[int, int]:
    """The first of a range of ports, and how many they are."""
    first, dash, last = str(data.get("ports", "")).partition("-")
    good = dash and first.isdecimal() and last.isdecimal()
    if not good or not 1024 <= int(first) <= int(last) < 65_536:
        raise ConfigRefused(f"{name}.ports are such as {such}, of 1024 to 65535")
    count = int(last) - int(first) + 1
    if count > MOST_DIRECT:
        raise ConfigRefused(f"{name}.ports are at most {MOST_DIRECT}")
    return int(first), count


def read_readable(value: object) -> tuple[str, ...]:
    """``readable``: absolute folders; the whole disk is none, and nor is what hides the rest of it
    from a process.
    """
    found = tuple(read_typed(one, str, "readable") for one in read_typed(value, list, "readable"))
    for path in found:
        if (
            posixpath.normpath(path) != path
            or path[:1] != "/"
            or path in (*_HIDDEN, f"//{path[2:]}")
        ):
            raise ConfigRefused(f"readable: {path!r} is no absolute folder that can be shown")
    return found


def _bind(value: object) -> str:
    text = read_typed(value, str, "direct.bind")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ConfigRefused(f"direct.bind: {text!r} is no IP address of this host") from None


def read_window(data: Mapping[str, Any]) -> Window:
    """One ``[[maintenance]]``: wall-clock ms of its two ISO 8601 times, in UTC unless they say."""
    only_known(data, ("start", "end", "notice"), "maintenance.")
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


def only_known(data: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    """Refuse what *data* has beside *names*, by the key under *where*, with the nearest of them."""
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigRefused(f"{where}{key} is not a key{hint}")


def read_table(value: object, name: str) -> dict[str, Any]:
    """*value*, a table."""
    if not isinstance(value, dict):
        raise ConfigRefused(f"{name} is not a table")
    return cast(dict[str, Any], value)


def read_typed(value: object, kind: type, name: str) -> Any:
    """*value*, of *kind*; a bool is no int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigRefused(f"{name} is not of the kind {kind.__name__}")
    return value


def _said(read: Any, value: object, name: str) -> Any:
    try:
        return read(str(value))
    except TallyError as error:
        raise ConfigRefused(f"{name}: {error}") from error


def read_time(value: object, name: str) -> int:
    """Words for time, such as ``10m``: ms."""
    return _said(parse_duration_ms, value, name)


def _rate(value: object, name: str) -> int:
    return _said(parse_rate_micro, value, name)


def _size(value: object) -> int:
    return _said(parse_size_mib, value, "size")
