"""The market's relay for a guest: what its WireGuard sends to a port of this machine's loopback
goes to a member by the relay, and back.

A plain program has no other way to bind the address at the relay that WireGuard's packets come
from: so they come from this program's socket. They are carried as they are; the keys are
WireGuard's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio

from marketplace.client.net.cluster_answers import GuestPassAnswer
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read
from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import Candidate, PathKind
from marketplace.domain.work.mesh_binding import Bindings
from marketplace.domain.work.mesh_relay import BIND, CARRIED, RelayPass

LOOPBACK: Final = "127.0.0.1"
AGAIN_S: Final = 120.0
"""A pass holds for ten minutes (``mesh_relay.HOLDS_MS``)."""
_TURN_S: Final = 0.1

Address = tuple[str, int]


class GuestRelay:
    """Of the guest with *number* of *gang*, by its market's relay."""

    def __init__(self, http: Http, gang: str, number: int) -> None:
        self._http, self._gang, self._number = http, gang, number
        self._pass: RelayPass | None = None
        self._bindings = Bindings(0)
        self._far: asyncio.DatagramTransport | None = None
        self._near: dict[Address, _Near] = {}

    async def ask(self) -> Candidate:
        """A fresh pass; where members send to for this guest. Refused where the market has none to
        give (NO_GUEST_RELAY).
        """
        answer = await self._http.post(f"/v1/gangs/{self._gang}/guest", {"number": self._number})
        said = read(GuestPassAnswer, answer, "pass")
        try:
            wire = [said["endpoint"], said["first"], said["count"], bytes.fromhex(said["ticket"]),
                    bytes.fromhex(said["key"])]  # fmt: skip
        except ValueError:
            raise Malformed("a pass for the relay is hex") from None
        given, number = RelayPass.from_wire(wire), said["number"]
        at = given.at(number) if number >= 0 else None
        if at is None:
            raise Malformed(f"the relay has no port {number}")
        if self._pass is None:
            self._bindings = Bindings(number)
        self._pass = given
        self._bindings.given(given)
        return Candidate.from_wire([PathKind.RELAY.value, *at])

    @asynccontextmanager
    async def carrying(self) -> AsyncGenerator[None]:
        """Meanwhile what comes in is carried, and the pass is renewed."""
        loop = asyncio.get_running_loop()
        self._far, _ = await loop.create_datagram_endpoint(
            lambda: _Far(self), local_addr=("0.0.0.0", 0)
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._bind)
                yield
                tasks.cancel_scope.cancel()
        finally:
            self._far.close()
            for near in self._near.values():
                near.close()
            self._near.clear()

    async def doors(self, members: Mapping[int, Candidate]) -> dict[int, str]:
        """The port of loopback, ``HOST:PORT``, for each of *members* that this relay leads to; what
        was opened for others before is closed.
        """
        given = self._pass
        assert given is not None
        led: dict[int, Address] = {
            member: (way.endpoint, way.port)
            for member, way in members.items()
            if given.at(member) == (way.endpoint, way.port)
        }
        for at in self._near.keys() - set(led.values()):
            self._near.pop(at).close()
        for at in led.values():
            if at not in self._near:
                self._near[at] = await self._open(at)
        self._bindings.want(led)
        return {member: f"{LOOPBACK}:{self._near[at].port}" for member, at in led.items()}

    async def _open(self, at: Address) -> _Near:
        loop = asyncio.get_running_loop()
        _, near = await loop.create_datagram_endpoint(
            lambda: _Near(self, at), local_addr=(LOOPBACK, 0)
        )
        return near

    async def _bind(self) -> None:
        while True:
            self.send(self._bindings.due(_now_ms(), time.time_ns()))
            await anyio.sleep(_TURN_S)

    def send(self, packets: Iterable[tuple[Address, bytes]]) -> None:
        """Out to the relay; lost where the way there is closed."""
        for at, data in packets:
            if self._far is not None and not self._far.is_closing():
                self._far.sendto(data, at)

    def came(self, source: Address, data: bytes) -> None:
        """From outside: an answer of the relay's, or a member's packet."""
        if data.startswith(BIND):
            self._bindings.heard(source, data, _now_ms())
            self.send(self._bindings.due(_now_ms(), time.time_ns()))
        elif source in self._near and data[:4] in CARRIED:
            self._near[source].take(data)


class _Far(asyncio.DatagramProtocol):
    """The one socket that the relay knows."""

    def __init__(self, relay: GuestRelay) -> None:
        self._relay = relay

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """One packet."""
        self._relay.came(cast(Address, addr), data)


class _Near(asyncio.DatagramProtocol):
    """A port of loopback, which is one member to this machine's WireGuard."""

    def __init__(self, relay: GuestRelay, at: Address) -> None:
        self._relay, self._at = relay, at
        self._door: asyncio.DatagramTransport | None = None
        self._from: Address | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._door = cast(asyncio.DatagramTransport, transport)

    @property
    def port(self) -> int:
        """On loopback."""
        assert self._door is not None
        return int(self._door.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """A packet of WireGuard's, which is answered where it came from."""
        if data[:4] in CARRIED:
            self._from = cast(Address, addr)
            self._relay.send([(self._at, data)])

    def take(self, data: bytes) -> None:
        """A member's packet, for WireGuard."""
        if self._from is not None and self._door is not None:
            self._door.sendto(data, self._from)

    def close(self) -> None:
        """No more."""
        if self._door is not None:
            self._door.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
