"""The market's relay as a process of its own, over real sockets."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from marketplace.domain.work.mesh_relay import COOKIE, Asked, Bound, RelayPass, RelayPlace
from marketplace.mesh_relay.process import RelayRefused, relaying

pytestmark = pytest.mark.anyio
DATA = b"\x04\0\0\0" + b"ciphertext" * 100


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place() -> RelayPlace:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as free:
        free.bind(("127.0.0.1", 0))
        return RelayPlace("127.0.0.1", min(free.getsockname()[1], 65_000), 3, b"s" * 32)


@contextmanager
def host() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(1)
        yield made


def bound(one: socket.socket, given: RelayPass, member: int) -> bool:
    """Whether *one* is bound at that member's port in two questions, each heard within 1 s."""
    answer, cookie = None, bytes(COOKIE)
    for _ in range(2):
        at = given.at(member)
        assert at is not None
        one.sendto(Asked(given.ticket, time.time_ns(), cookie).to_bytes(given.key), at)
        try:
            answer = Bound.from_bytes(one.recv(99), given.key)
        except (TimeoutError, ConnectionError):
            return False
        cookie = answer.cookie
    return answer is not None and answer.bound and answer.seen == one.getsockname()


def passes(place: RelayPlace, gang: str) -> list[RelayPass]:
    return [place.give(gang, at, 1, time.time_ns() // 1_000_000) for at in range(2)]


def talk(place: RelayPlace) -> None:
    """Two of one gang reach each other, and a third of another gang neither."""
    mine, other = passes(place, "gang_1"), passes(place, "gang_2")
    with host() as one, host() as two, host() as three:
        assert bound(one, mine[0], 1) and bound(two, mine[1], 0) and bound(three, other[0], 1)
        three.sendto(DATA, (place.endpoint, place.first + 1))
        one.sendto(DATA[:-1], (place.endpoint, place.first + 1))
        assert two.recvfrom(2048) == (DATA[:-1], (place.endpoint, place.first))
        two.sendto(DATA, (place.endpoint, place.first))
        assert one.recvfrom(2048) == (DATA, (place.endpoint, place.first + 1))


async def test_it_carries_between_members_and_comes_back_when_it_is_killed(
    place: RelayPlace,
) -> None:
    with anyio.fail_after(30):
        async with relaying(place):
            await anyio.to_thread.run_sync(talk, place)
            os.kill(_child(place), signal.SIGKILL)
            with host() as one:
                given = passes(place, "gang_1")[0]
                while not await anyio.to_thread.run_sync(bound, one, given, 1):  # noqa: ASYNC110  told by nobody
                    await anyio.sleep(0.1)
            await anyio.to_thread.run_sync(talk, place)
    assert _child(place) == 0, "it ends with its market"


async def test_ports_that_somebody_has_are_refused(place: RelayPlace) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(("127.0.0.1", place.first + 1))
        with pytest.raises(RelayRefused):
            async with relaying(place):
                pytest.fail("it began")


def _child(place: RelayPlace) -> int:
    """The relay's process; 0 for none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"marketplace.mesh_relay.serving" in line and str(place.first).encode() in line:
            return int(path.parent.name)
    return 0
