"""``tally job mesh ID --join FILE``: a machine of the consumer's own in a cluster's network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import err, out
from marketplace.client.clusters import wireguard
from marketplace.client.clusters.wireguard import GuestKey
from marketplace.client.sdk import joining
from marketplace.client.sdk.cluster import ClusterStanding, standing
from marketplace.client.sdk.guest_relay import AGAIN_S, GuestRelay
from marketplace.client.sdk.joining import Joined
from marketplace.client.sdk.read_only import Reader
from marketplace.domain.errors import Conflict, Halt, Malformed, TallyError
from marketplace.domain.work.mesh_net import address, host_name

LEAST_MS: Final = 60_000
MOST_MS: Final = 30 * 24 * 3_600_000
LOOK_S: Final = 5.0
NOBODY: Final[Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True)
class Asked:
    """By which *file*, for how long, from which *endpoint* of its own (empty: it sends first), and
    whether the command is to *stay* and carry by the relay.
    """

    file: Path
    for_ms: int
    endpoint: str
    stay: bool

    def __post_init__(self) -> None:
        if not LEAST_MS <= self.for_ms <= MOST_MS:
            raise Malformed("--for is 1m to 30d")


async def join(opened: Reader, name: str, asked: Asked, as_json: bool) -> None:
    """The file, once every member takes what it has; then until it is interrupted, if it stays."""
    found = await joining.meshed(opened, name)
    key = wireguard.key_in(asked.file, found.gang)
    if asked.stay:
        await _stay(opened, found, key, asked, as_json)
        return
    own = joining.own(asked.endpoint)
    until_ms = _until_ms(asked)
    joined = await joining.join(opened, found, key, own, until_ms, lambda one: _write(one, asked))
    _wrote(joined, asked, {}, as_json)


async def _stay(
    opened: Reader, found: ClusterStanding, key: GuestKey, asked: Asked, as_json: bool
) -> None:
    until_ms = _until_ms(asked)
    number = joining.number_of(opened, found, key)
    relay = GuestRelay(opened.http, found.gang, number)
    ways = tuple(sorted((*joining.own(asked.endpoint), await relay.ask())))
    async with relay.carrying():
        joined = await joining.join(
            opened, found, key, ways, until_ms, lambda one: _write(one, asked)
        )
        if joined.guest.number != number:
            raise Conflict("another machine joined at the same moment: join once more")
        by = await relay.doors(joined.hidden)
        _wrote(joined, asked, by, as_json)
        asked_s, told = anyio.current_time(), ""
        while time.time_ns() // 1_000_000 < until_ms:
            await anyio.sleep(LOOK_S)
            try:
                now = await joining.again(opened, joined)
                if now is None:
                    break
                there = await relay.doors(now.hidden)
                if (now.reached, there) != (joined.reached, by):
                    _wrote(now, asked, there, as_json)
                joined, by = now, there
                if anyio.current_time() - asked_s > AGAIN_S:
                    await relay.ask()
                    asked_s = anyio.current_time()
                told = ""
            except Halt:
                raise
            except TallyError as error:  # what is bound stays so for a while
                if error.message != told:
                    err.print(error.line(), markup=False, style="yellow")
                told = error.message
    if not as_json:
        out.print(f"{found.gang}: this machine is in it no more", markup=False)


def _until_ms(asked: Asked) -> int:
    return time.time_ns() // 1_000_000 + asked.for_ms


def _write(joined: Joined, asked: Asked, by: Mapping[int, str] = NOBODY) -> None:
    """The file, as the members are now."""
    listen = int(asked.endpoint.rpartition(":")[2]) if asked.endpoint else 0
    wireguard.write(asked.file, joined.text(by, listen))


def _wrote(joined: Joined, asked: Asked, by: Mapping[int, str], as_json: bool) -> None:
    """The file is there as the members are now; said."""
    _write(joined, asked, by)
    own = address(joined.group, joined.guest.number)
    left = {one.member: one.why for one in joined.reached if one.why and one.member not in by}
    reached = [one.member for one in joined.reached if one.member not in left]
    if as_json:
        print_json({
            "gang": joined.gang, "guest": joined.guest.number, "address": own,
            "file": str(asked.file), "until_ms": joined.guest.until_ms, "members": reached,
            "by_relay": sorted(by), "left_out": {str(at): why for at, why in left.items()},
        })  # fmt: skip
        return
    out.print(f"{asked.file} joins {joined.gang} as {own}", markup=False, soft_wrap=True)
    for one in reached:
        how = " by the market's relay" if one in by else ""
        out.print(f"{host_name(one)}  {address(joined.group, one)}{how}", markup=False)
    for at, why in left.items():
        err.print(f"{host_name(at)} is left out: {why}", markup=False, style="yellow")
    hint = f"wg-quick up {asked.file.absolute()}"
    if by:
        hint += "; Ctrl-C ends what goes by the relay"
    out.print(hint, markup=False, style="dim", soft_wrap=True)


async def leave(opened: Reader, name: str, as_json: bool) -> None:
    """Whoever joined from this home is signed out."""
    found = await standing(opened, name)
    count = await joining.leave(opened, found)
    if as_json:
        print_json({"gang": found.gang, "left": count})
    else:
        out.print(f"{found.gang}: {count} signed out", markup=False)
