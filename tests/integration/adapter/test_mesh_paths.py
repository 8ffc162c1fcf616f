"""Members of a mesh behind NATs: by the market's relay at first, direct where a way is found, and
back to the relay when it is cut.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.mesh import netns
from tests.integration.support import images
from tests.integration.support.meshes import seat, until
from tests.integration.support.nats import Member, Net, Side, between, meet, net, pass_of, relay
from tests.requires import need_mesh, need_nats

pytestmark = [pytest.mark.prove, pytest.mark.timeout(60)]
MARK = b"what a workload says, in clear" * 4
SYMMETRIC = ("--random-fully",)


@contextlib.contextmanager
def members(folder: Path, *sides: Side) -> Iterator[tuple[Net, list[Member]]]:
    """One a side, with the relay beside them."""
    need_mesh()
    need_nats()
    name = images.lease_id("q")[-8:]
    with net(name, *sides) as made, relay(made):
        found: list[Member] = []
        try:
            for at in range(len(sides)):
                endpoint = f"11.7.{at}.2" if sides[at] is None else ""
                found.append(Member(made, at, folder / str(at), f"{name}{at}", endpoint))
            yield made, found
        finally:
            for one in found:
                one.end()


def known(found: list[Member], *kinds: list[str]) -> None:
    """The market gives each leave to use its relay, until all are reached so."""
    for one in found:
        one.given(pass_of(one.at))
    for one, wanted in zip(found, kinds, strict=True):
        assert until(lambda one=one, wanted=wanted: one.kinds() == wanted, 5), one.kinds()
    meet(found)


def test_behind_a_symmetric_nat_and_a_cone_the_relay_carries_what_it_cannot_read(
    tmp_path: Path,
) -> None:
    with members(tmp_path, SYMMETRIC, ()) as (made, found):
        known(found, ["relay"], ["relay", "seen"])
        assert between(found[0], found[1], "relay", 5)
        first, second = (one.name for one in found)
        with (
            netns.inside(f"{made.name}m", _sniffer) as sniffer,
            netns.inside(second, lambda: _udp(seat(1).address, 7000)) as door,
            netns.inside(first, lambda: _udp(seat(0).address, 0)) as sender,
        ):
            for _ in range(5):
                sender.sendto(MARK, (seat(1).address, 7000))
            door.settimeout(5)
            assert [door.recv(999) for _ in range(5)] == [MARK] * 5
            packets = _packets(sniffer)
        assert sum(len(one) > len(MARK) + 60 for one in packets) >= 10, "in and out of the relay"
        assert not any(MARK in one for one in packets)


def test_who_has_an_address_of_the_world_is_reached_there_from_behind_any_nat(
    tmp_path: Path,
) -> None:
    with members(tmp_path, SYMMETRIC, None) as (_, found):
        first, second = found
        known(found, ["relay"], ["public", "relay"])
        assert until(lambda: first.path_to(second) == "public", 5)
        assert until(lambda: second.path_to(first) == "seen", 5), "from where its questions came"


def _sniffer() -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))  # both ways
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return made


def _packets(door: socket.socket) -> list[bytes]:
    """All that it has seen by now."""
    door.setblocking(False)
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 1000:
            found.append(door.recv(4096))
    return found


def _udp(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made


def test_behind_cones_a_way_is_punched_and_a_cut_one_is_left_and_found_again(
    tmp_path: Path,
) -> None:
    with members(tmp_path, (), ()) as (made, found):
        known(found, ["relay", "seen"], ["relay", "seen"])
        assert between(found[0], found[1], "seen", 10)
        made.cut(True)
        assert between(found[0], found[1], "relay", 3)
        made.cut(False)
        assert between(found[0], found[1], "seen", 15)
