"""What a machine of the consumer's own sends to a hidden member, by the market's relay: through a
port of loopback that is the member to its WireGuard, over real sockets.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from adapter.mesh.reach import own_address
from marketplace.client.sdk.guest_relay import GuestRelay
from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import Candidate, PathKind
from marketplace.domain.work.mesh_net import FIRST_GUEST
from marketplace.domain.work.mesh_relay import COOKIE, Asked, Bound, RelayPass, RelayPlace
from marketplace.mesh_relay.serving import listen
from marketplace.mesh_relay.table import Table

pytestmark = pytest.mark.anyio
SECRET = b"s" * 32
DATA = b"\x04\0\0\0" + b"ciphertext" * 100


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Market:
    """That gives leave to use the relay at *place*, to a cluster of two."""

    def __init__(self, place: RelayPlace, **lies: Any) -> None:
        self.place, self.lies = place, lies

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        assert path == "/v1/gangs/gang_1/guest"
        given = self.place.give_guest("gang_1", body["number"] - FIRST_GUEST, 2, 1, now_ms())
        assert given is not None
        leave, number = given
        return {
            "endpoint": leave.endpoint, "first": leave.first, "count": leave.count,
            "number": number, "ticket": leave.ticket.hex(), "key": leave.key.hex(), **self.lies,
        }  # fmt: skip


def free(count: int) -> int:
    """The first of so many UDP ports in a row that nobody has, most likely."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as one:
        one.bind(("", 0))
        return min(int(one.getsockname()[1]), 65_000 - count)


def binds(door: socket.socket, given: RelayPass, port: int) -> None:
    """A member's own binding at that port, in two questions."""
    cookie, at = bytes(COOKIE), given.at(port)
    assert at is not None
    for _ in range(2):
        door.sendto(Asked(given.ticket, time.time_ns(), cookie).to_bytes(given.key), at)
        cookie = Bound.from_bytes(door.recv(2048), given.key).cookie


async def test_a_hidden_member_is_a_port_of_loopback_and_strangers_are_nobody() -> None:
    place = RelayPlace(own_address(), free(4), 4, SECRET)
    ports = await listen(Table(SECRET, 4), place.endpoint, place.first, place.count)
    relay = GuestRelay(cast(Any, Market(place)), "gang_1", FIRST_GUEST)
    at = await relay.ask()
    assert at == Candidate(PathKind.RELAY, place.endpoint, place.first + 3)
    hidden = {1: Candidate(PathKind.RELAY, place.endpoint, place.first + 1)}
    elsewhere = {0: Candidate(PathKind.RELAY, "203.0.113.5", place.first)}
    with (
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as member,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as wireguard,
    ):
        for door in (member, wireguard):
            door.bind(("", 0))
            door.settimeout(0.3)
        await anyio.to_thread.run_sync(binds, member, place.give("gang_1", 1, 1, now_ms()), 3)
        async with relay.carrying():
            doors = await relay.doors(hidden | elsewhere)
            assert doors.keys() == {1}, "another relay's port is none of this one's"
            host, port = doors[1].split(":")

            def said() -> tuple[bytes, tuple[str, int]]:
                for _ in range(20):  # until it is bound
                    wireguard.sendto(DATA, (host, int(port)))
                    try:
                        return member.recvfrom(2048)
                    except TimeoutError:
                        continue
                raise AssertionError("nothing came")

            assert await anyio.to_thread.run_sync(said) == (DATA, (at.endpoint, at.port))
            stranger = DATA[:-1]
            far = cast(Any, relay)._far.get_extra_info("sockname")[1]
            wireguard.sendto(stranger, (place.endpoint, far))
            member.sendto(DATA[:-2], (at.endpoint, at.port))

            def answer() -> bytes:
                return wireguard.recv(2048)

            assert await anyio.to_thread.run_sync(answer) == DATA[:-2], "and not the stranger's"
            assert await relay.doors(hidden) == doors
            assert await relay.doors({}) == {}
    for one in ports:
        one.close()


@pytest.mark.parametrize(
    "lie",
    [
        {"number": 4}, {"number": -1}, {"ticket": "00"}, {"key": "zz"}, {"count": 65},
        {"endpoint": "127.0.0.1"}, {"endpoint": "example.org"},
    ],
)  # fmt: skip
async def test_a_pass_that_is_none_is_refused(lie: dict[str, Any]) -> None:
    place = RelayPlace("203.0.113.5", 42_000, 4, SECRET)
    with pytest.raises(Malformed):
        await GuestRelay(cast(Any, Market(place, **lie)), "gang_1", FIRST_GUEST).ask()
