"""The paths of one member's device: tried beside it, from its own port, and chosen for it.

WireGuard sends a peer's packets to one address. Here is found out which one it is to be: probes
go by every candidate, and the device is told of the best. It goes on as it is when the adapter
ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final

import structlog

from adapter.mesh import probe, uapi
from adapter.mesh.choice import FAST_MS, Paths
from adapter.mesh.keys import MeshKey
from adapter.mesh.netns import MeshFault
from adapter.mesh.raw import RawPort
from marketplace.domain.work.mesh import Candidate, MeshPeer, PathKind
from marketplace.domain.work.mesh_binding import Bindings
from marketplace.domain.work.mesh_net import is_guest
from marketplace.domain.work.mesh_relay import BIND, RelayPass

LOOK_MS: Final = 500
"""The device takes a peer's address from its packets, too: so often it is looked at."""
MANY: Final = 8
MANY_MS: Final = 750
"""More than :data:`MANY` peers are asked so often each, and a cut is seen after 3 s."""
FIRST_MS: Final = 3_000
"""So long a device with a proven path leaves the first handshake to the lower member's."""
_WAIT_S: Final = 0.02
_FAULT_S: Final = 1.0
_HEARD: Final = 256
_OLD_NS: Final = 3_000_000_000

_log = structlog.get_logger("adapter")


@dataclass
class _Peer:
    """*heard*: the numbers of its newest questions. One of them again is none, nor is one that is
    much older than the newest: somebody kept it. *told*: what its device was told, *met*: when
    that was proven. *proven_ms*: since when there is a proven path.
    """

    key: bytes
    probe_key: bytes
    paths: Paths
    candidates: tuple[Candidate, ...] = ()
    heard: deque[int] = field(default_factory=lambda: deque[int](maxlen=_HEARD))
    told: tuple[str, int] | None = None
    met: bool = False
    proven_ms: int | None = None

    def is_new(self, number: int) -> bool:
        """Whether a question with this number is one of now, the first time."""
        if number in self.heard or number < max(self.heard, default=0) - _OLD_NS:
            return False
        self.heard.append(number)
        return True


@dataclass
class Prober:
    """Of *member*, whose device has *key*, UDP *port* and the socket *door*."""

    key: MeshKey
    member: int
    port: int
    door: FilePath
    may_send_to: Callable[[str], bool]
    _peers: dict[int, _Peer] = field(default_factory=dict[int, _Peer])
    _guests: dict[int, MeshPeer] = field(default_factory=dict[int, MeshPeer])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _number: int = 0
    _looked_ms: int = 0

    def __post_init__(self) -> None:
        self._bindings = Bindings(self.member)

    def start(self) -> None:
        """Begin, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mesh paths", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Try no more; the device sends by the paths that it has."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(5)

    def given(self, ticket: RelayPass) -> None:
        """The market's newest leave to use its relay."""
        with self._lock:
            self._bindings.given(ticket)
            self._offer(_now_ms())

    def meet(self, peers: Sequence[MeshPeer]) -> None:
        """Exactly these. A guest has WireGuard alone, which answers no question: it is sent to
        where it sends from.
        """
        members = [one for one in peers if not is_guest(one.member)]
        fast = FAST_MS if len(members) <= MANY else MANY_MS
        with self._lock:
            self._guests = {one.member: one for one in peers if is_guest(one.member)}
            kept: dict[int, _Peer] = {}
            for one in members:
                known = self._peers.get(one.member)
                if known is None or known.key != one.key:
                    with contextlib.suppress(RuntimeError):  # it names no key that there could be
                        secret = probe.key_with(self.key.private, one.key)
                        known = _Peer(one.key, secret, Paths())
                if known is not None and known.key == one.key:
                    known.candidates, known.paths.fast_ms = one.candidates, fast
                    kept[one.member] = known
            self._peers = kept
            now = _now_ms()
            self._offer(now)
            for one in kept.values():
                one.paths.choose(now)

    def _offer(self, now_ms: int) -> None:
        self._bindings.want(
            self._peers,
            [
                (way.endpoint, way.port)
                for one in self._guests.values()
                for way in one.candidates
                if way.kind is PathKind.RELAY
            ],
        )
        for member, peer in self._peers.items():
            relay = self._bindings.at(member)
            peer.paths.offer(
                [one for one in peer.candidates if self._may_use(one, relay)], now_ms
            )  # fmt: skip

    def _may_use(self, one: Candidate, relay: tuple[str, int] | None) -> bool:
        """Of relays only this host's own market's, at that peer's port."""
        if one.kind is PathKind.RELAY:
            return (one.endpoint, one.port) == relay
        return self.may_send_to(one.endpoint)

    def sends_to(self, member: int) -> Candidate | None:
        """Where that peer's packets are sent, a guest's until it is heard; None while nobody
        knows.
        """
        with self._lock:
            if member in self._guests:
                return self._first(self._guests[member])
            peer = self._peers.get(member)
            now = peer.paths.current if peer is not None else None
            return None if now is None else Candidate(now.kind, *now.address)

    def begins(self, member: int) -> bool:
        """Whether the device may send to that peer unasked. Of two members the lower one's begins:
        where both do at once, each takes the other's first handshake, drops the answer to its own,
        and waits for 5 s. The other one's begins where nothing came for :data:`FIRST_MS`.
        """
        with self._lock:
            peer = self._peers.get(member)
            return peer is None or self._begins(member, peer, _now_ms())

    def _begins(self, member: int, peer: _Peer, now_ms: int) -> bool:
        late = peer.proven_ms is not None and now_ms - peer.proven_ms >= FIRST_MS
        return self.member < member or late

    def _first(self, guest: MeshPeer) -> Candidate | None:
        told = (one for one in guest.candidates if one.kind is PathKind.PUBLIC)
        return next((one for one in told if self.may_send_to(one.endpoint)), None)

    def candidates(self) -> tuple[Candidate, ...]:
        """Where the relay says that this member is reached."""
        with self._lock:
            return self._bindings.candidates(_now_ms())

    # ---- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                raw = RawPort(self.port)
                try:
                    while not self._over.is_set():
                        self._turn(raw)
                finally:
                    raw.close()
            except (OSError, MeshFault) as fault:
                _log.warning("mesh paths", member=self.member, cause=str(fault))
                self._over.wait(_FAULT_S)

    def _turn(self, raw: RawPort) -> None:
        found = raw.receive(_WAIT_S)
        while found is not None:
            with self._lock:
                self._take(raw, *found)
            found = raw.receive(0)
        with self._lock:
            now = _now_ms()
            self._ask(raw, now)
            self._tell(now)

    def _take(self, raw: RawPort, source: tuple[str, int], data: bytes) -> None:
        now = _now_ms()
        if data.startswith(BIND):
            self._bindings.heard(source, data, now)
            return
        said = probe.read(data)
        peer = self._peers.get(said.member) if said is not None else None
        if said is None or peer is None or not probe.proven(data, peer.probe_key):
            return
        if said.kind is probe.Kind.PONG:
            path = peer.paths.known.get(source)
            if path is not None and path.answered(said.number, now):
                peer.paths.choose(now)
        elif self._answers(said.member, source) and peer.is_new(said.number):
            answer = probe.Probe(probe.Kind.PONG, self.member, said.number)
            raw.send(source, answer.to_bytes(peer.probe_key))
            if source != self._bindings.at(said.member):
                peer.paths.learn(source, now)

    def _answers(self, member: int, source: tuple[str, int]) -> bool:
        return source == self._bindings.at(member) or self.may_send_to(source[0])

    def _ask(self, raw: RawPort, now_ms: int) -> None:
        for address, asked in self._bindings.due(now_ms, time.time_ns()):
            raw.send(address, asked)
        for member, peer in self._peers.items():
            for path in peer.paths.due(now_ms):
                if not path.direct and not self._bindings.is_bound(member, now_ms):
                    continue
                self._number = max(self._number + 1, time.time_ns())
                path.asked(self._number, now_ms, peer.paths.every(path, now_ms))
                said = probe.Probe(probe.Kind.PING, self.member, self._number)
                raw.send(path.address, said.to_bytes(peer.probe_key))

    def _tell(self, now_ms: int) -> None:
        """The device sends to each peer by the path that was chosen. Under the lock: whoever is no
        peer any more is not put back.
        """
        chosen = [
            (number, one, path)
            for number, one in self._peers.items()
            if (path := one.paths.choose(now_ms)) is not None
        ]
        stale = any(
            (path.address, path.proven) != (one.told, one.met)
            for number, one, path in chosen
            if one.told is not None or self._begins(number, one, now_ms)
        )
        if not stale and now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        seen, lines = uapi.get(self.door).peers, ""
        for number, peer, path in chosen:
            known = seen.get(peer.key)
            if known is None:
                continue  # not there yet: it is given its path with it
            if peer.proven_ms is None and path.proven:
                peer.proven_ms = now_ms
            if not known.handshake_s and not self._begins(number, peer, now_ms):
                continue
            if path.proven and not peer.met and not known.handshake_s:
                lines += uapi.anew(known, *path.address)
            elif known.endpoint != "{}:{}".format(*path.address):
                lines += uapi.moved(peer.key, *path.address)
            if path.address != peer.told:
                _log.info("mesh path", member=self.member, kind=path.kind.value)
            peer.told, peer.met = path.address, path.proven
        uapi.put(self.door, lines)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
