"""Members of a mesh behind NATs: by the market's relay at first, direct where a way is found, and
back to the relay when it is cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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


PIECE = 4096
EVERY_S = 0.02
SILENT_S = 8.0
"""The longest that nothing may come: what is on its way when a path is cut is sent again by TCP
after pauses that double, the last of which may begin just before another path is taken (3 s).
"""


@dataclass
class Stream:
    """One TCP connection over a mesh: steady bytes out, and what came of them."""

    out: socket.socket
    door: socket.socket
    over: threading.Event = field(default_factory=threading.Event)
    sent: str = ""
    came: str = ""
    count: int = 0
    longest_s: float = 0.0
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def begin(self) -> None:
        for work in (self._send, self._take):
            self.threads.append(threading.Thread(target=work, daemon=True))
            self.threads[-1].start()

    def _send(self) -> None:
        rng, said = random.Random(7), hashlib.sha256()
        while not self.over.is_set():
            piece = rng.randbytes(PIECE)
            said.update(piece)
            self.out.sendall(piece)
            time.sleep(EVERY_S)
        self.sent = said.hexdigest()
        self.out.shutdown(socket.SHUT_WR)

    def _take(self) -> None:
        taken, _ = self.door.accept()
        taken.settimeout(30)
        heard, before = hashlib.sha256(), time.monotonic()
        with taken:
            while piece := taken.recv(1 << 16):
                now = time.monotonic()
                self.longest_s, before = max(self.longest_s, now - before), now
                heard.update(piece)
                self.count += len(piece)
        self.came = heard.hexdigest()

    def goes_on(self, seconds: float = SILENT_S) -> bool:
        """Whether more comes within that time."""
        before = self.count
        return until(lambda: self.count > before, seconds)

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(20)


@contextlib.contextmanager
def streaming(one: Member, other: Member) -> Iterator[Stream]:
    """From a program of the one member to one of the other."""

    def listener() -> socket.socket:
        made = _tcp()
        made.bind((seat(other.at).address, 7001))
        made.listen(1)
        return made

    with netns.inside(other.name, listener) as door, netns.inside(one.name, _tcp) as out:
        out.connect((seat(other.at).address, 7001))
        made = Stream(out, door)
        made.begin()
        try:
            yield made
        finally:
            made.end()


def _tcp() -> socket.socket:
    made = socket.socket()
    made.settimeout(30)
    return made


def test_a_tcp_stream_lives_through_the_cut_of_its_path_and_its_return(tmp_path: Path) -> None:
    with members(tmp_path, (), ()) as (made, found):
        known(found, ["relay", "seen"], ["relay", "seen"])
        assert between(found[0], found[1], "seen", 10)
        with streaming(found[0], found[1]) as flow:
            assert flow.goes_on()
            made.cut(True)
            assert between(found[0], found[1], "relay", 3)
            assert flow.goes_on(), "by the relay"
            made.cut(False)
            assert between(found[0], found[1], "seen", 15)
            assert flow.goes_on(), "direct again"
        print(f"longest silence {flow.longest_s:.2f} s, {flow.count} bytes")
        assert flow.came == flow.sent != "" and flow.count >= 50 * PIECE
        assert 0.2 < flow.longest_s <= SILENT_S, "the cut was felt, and it was not long"
