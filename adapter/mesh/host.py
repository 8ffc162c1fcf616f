"""The meshes of one adapter: made before a workload, found again after a crash, and removed.

What a lease has here is its folder: key, hosts file and port, written before anything is made on
the host. So whatever a crash leaves is found by the folder, taken up again or taken away. Every
method blocks, may be repeated, and does what is still missing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from adapter.mesh import device, netns, uapi
from adapter.mesh.keys import MeshKey, key_in
from adapter.mesh.netns import MeshFault
from adapter.mesh.prober import Prober
from adapter.mesh.reach import Reach
from adapter.mesh.sight import Ears
from marketplace import disk
from marketplace.domain.work.mesh import Candidate, Heard, MeshPeer, PathKind
from marketplace.domain.work.mesh_net import Seat, is_guest
from marketplace.domain.work.mesh_relay import RelayPass

HOSTS: Final = "hosts"
LOOKUP: Final = "nsswitch.conf"
"""In a lease's folder: its members' names, and that they are looked up there before anywhere else
(without a word glibc asks DNS, and believes that).
"""
_LISTENS_S: Final = 2.0
DIAL_S: Final = 5.0
SHOOK_S: Final = 180
"""A peer whose last handshake is older sends nothing by it: WireGuard's REJECT_AFTER_TIME."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The public *key* of a member, its UDP *port* here, and where others reach it."""

    key: bytes
    port: int
    candidates: tuple[Candidate, ...]


@dataclass
class _Member:
    """What is remembered of a lease's mesh while this process lives."""

    seat: Seat
    ears: Ears
    prober: Prober
    peers: tuple[MeshPeer, ...] = ()


def folder_of(state: Path, lease: str) -> Path:
    """Where a lease's key and hosts file are, below an adapter's *state*."""
    return state / "mesh" / lease


class MeshHost:
    """Below *state*, for the adapter of that name; *reach*: where it is reached."""

    def __init__(self, state: Path, adapter: str, reach: Reach) -> None:
        self._state = state
        self._adapter = adapter
        self.reach = reach
        self._members: dict[str, _Member] = {}
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def _locked(self, lease: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(lease, threading.Lock())

    def _name(self, lease: str) -> str:
        return netns.name_of(lease, self._adapter)

    def held(self) -> list[str]:
        """The leases that have anything here, also from an earlier run."""
        return sorted(path.name for path in (self._state / "mesh").glob("*") if path.is_dir())

    def up(self, lease: str, seat: Seat, pid: int = 0) -> Placed:
        """The lease's mesh, whole and without peers unless it had some; *pid*: a process of its
        workload, by which a namespace is found again that lost its name.
        """
        with self._locked(lease):
            folder, name = folder_of(self._state, lease), self._name(lease)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = key_in(folder)
            _show(folder / HOSTS, seat.hosts())
            _show(folder / LOOKUP, "hosts: files dns\n")
            netns.make(name, pid)
            fresh = not device.stands(name)
            if fresh:
                device.start(name, seat.address)
            port = self._listen(lease, name, key)
            known = self._members.get(lease)
            if known is None:
                prober = Prober(
                    key, seat.member, port, device.socket_of(name), self.reach.may_send_to
                )  # fmt: skip
                known = self._members[lease] = _Member(seat, Ears(name), prober)
                prober.start()
            elif fresh:
                known.ears.close()
                self._put(lease, known, known.peers)
            return self._placed(known)

    def placed(self, lease: str) -> Placed:
        """Where it is reached by now: as its owner said, and as its market's relay sees it."""
        return self._placed(self._known(lease))

    def _placed(self, member: _Member) -> Placed:
        prober = member.prober
        said = self.reach.candidates(prober.port)
        at = {(one.endpoint, one.port) for one in said}
        found = [one for one in prober.candidates() if (one.endpoint, one.port) not in at]
        return Placed(prober.key.public, prober.port, tuple(sorted((*said, *found))))

    def given(self, lease: str, ticket: RelayPass) -> None:
        """The lease may use the market's relay."""
        member = self._members.get(lease)
        if member is not None:
            member.prober.given(ticket)

    def is_whole(self, lease: str) -> bool:
        """Whether all of it stands."""
        return device.is_whole(self._name(lease))

    def _listen(self, lease: str, name: str, key: MeshKey) -> int:
        """Its own port, the same as ever, else the lowest of the owner's that nobody has."""
        with self._lock:  # two leases do not choose the same
            ports = self._ports()
            asked = [ports[lease]] if lease in ports else [
                one for one in self.reach.ports if one not in ports.values() and _is_free(one)
            ]  # fmt: skip
            for port in asked:
                try:
                    device.configure(name, key.private, port)
                except uapi.DeviceRefused as refused:
                    if refused.number != errno.EADDRINUSE:
                        raise
                    continue
                if _listens(port):
                    told = json.dumps({"port": port}).encode()
                    disk.write_whole(folder_of(self._state, lease) / "about.json", told)
                    return port
        raise MeshFault(
            f"no UDP port is free of {self.reach.first}-{self.reach.first + self.reach.count - 1}"
        )

    def _ports(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for lease in self.held():
            try:
                about = json.loads((folder_of(self._state, lease) / "about.json").read_text())
                found[lease] = int(cast("dict[str, Any]", about)["port"])
            except (OSError, ValueError, KeyError):
                continue  # none yet
        return found

    def meet(self, lease: str, peers: Sequence[MeshPeer]) -> tuple[int, ...]:
        """Make its peers exactly *peers*; the members among them that are left out, for they are
        where this host sends nothing to.
        """
        with self._locked(lease):
            member = self._known(lease)
            at = [one.member for one in peers]
            count = len(member.seat.addresses)
            if any(not (0 <= one < count or is_guest(one)) for one in at):
                raise MeshFault(f"members {at}: the cluster has {count}")
            taken = [
                one for one in peers if self._may(one) and one.member != member.seat.member
            ]  # fmt: skip
            self._put(lease, member, tuple(taken))
            kept = {one.member for one in taken}
            return tuple(one for one in at if one not in kept)

    def _may(self, peer: MeshPeer) -> bool:
        """Whether there is, or may yet be, a way to it: one that is nowhere but in a private
        network has none from a public host. A guest sends first.
        """
        if is_guest(peer.member):
            return True
        able = [
            one.kind is PathKind.RELAY or self.reach.may_send_to(one.endpoint)
            for one in peer.candidates
        ]
        return any(able) or not able

    def _put(self, lease: str, member: _Member, peers: tuple[MeshPeer, ...]) -> None:
        address = member.seat.at
        member.prober.meet(peers)
        wanted: list[uapi.Peer] = []
        for one in peers:
            to = member.prober.sends_to(one.member)
            at = (to.endpoint, to.port) if to and member.prober.begins(one.member) else ("", 0)
            wanted.append(uapi.Peer(one.key, address(one.member), *at, is_guest(one.member)))
        door = device.socket_of(self._name(lease))
        uapi.put(door, uapi.changes(uapi.get(door).peers, wanted))
        stay = {(one.member, one.key) for one in peers}
        for one in member.peers:
            if (one.member, one.key) not in stay:
                member.ears.forget(address(one.member))
        member.peers = peers

    def hear(self, lease: str, wait_s: float) -> tuple[Heard, ...]:
        """One round: who of its peers is heard, by member. A guest is by its last handshake: its
        machine may answer no echo.
        """
        with self._locked(lease):
            member = self._known(lease)
            at = {one.member: member.seat.at(one.member) for one in member.peers}
            try:
                rtts = member.ears.round(at, wait_s, [one for one in at if is_guest(one)])
            except OSError as error:
                member.ears.close()
                raise MeshFault(f"{lease}: {error}") from error
            seen = uapi.get(device.socket_of(self._name(lease))).peers
            now_s = time.time()
            return tuple(
                Heard(
                    one.member, rtts.get(one.member, 0), known.sent, known.received,
                    _kind(member, one, known),
                )
                for one in sorted(member.peers, key=lambda peer: peer.member)
                if (known := seen.get(one.key)) is not None
                and (_shook(known, now_s) if is_guest(one.member) else one.member in rtts)
            )  # fmt: skip

    def dial(self, lease: str, port: int) -> socket.socket:
        """A connection to that port of its workload, from inside: at loopback, where that listens,
        else at its address of the mesh. Not in the way of other calls: it may take a while.
        """
        seat = self._known(lease).seat

        def call() -> socket.socket:
            try:
                return socket.create_connection(("127.0.0.1", port), DIAL_S)
            except ConnectionRefusedError:
                return socket.create_connection((seat.address, port), DIAL_S)

        return netns.inside(self._name(lease), call)

    def _known(self, lease: str) -> _Member:
        member = self._members.get(lease)
        if member is None:
            raise MeshFault(f"{lease} has no mesh here")
        return member

    def down(self, lease: str) -> None:
        """Nothing is left of it; its folder goes last."""
        with self._locked(lease):
            name = self._name(lease)
            known = self._members.pop(lease, None)
            if known is not None:
                known.prober.close()
                known.ears.close()
            device.stop(name)
            netns.remove(name)
            shutil.rmtree(folder_of(self._state, lease), ignore_errors=True)
        with self._lock:
            self._locks.pop(lease, None)

    def close(self) -> None:
        """Hear no more; every mesh lives on."""
        for member in list(self._members.values()):
            member.prober.close()
            member.ears.close()


def remove_all(state: Path, adapter: str) -> None:
    """Every mesh below *state*, of an *adapter* that does not run."""
    host = MeshHost(state, adapter, Reach("", 0, 0))
    for lease in host.held():
        host.down(lease)


def _shook(seen: uapi.PeerSeen, now_s: float) -> bool:
    return bool(seen.handshake_s) and now_s - seen.handshake_s < SHOOK_S


def _kind(member: _Member, of: MeshPeer, seen: uapi.PeerSeen) -> PathKind:
    if is_guest(of.member):
        told = {f"{one.endpoint}:{one.port}": one.kind for one in of.candidates}
        return told.get(seen.endpoint, PathKind.SEEN)
    to = member.prober.sends_to(of.member)
    return PathKind.PUBLIC if to is None else to.kind


def _show(path: Path, text: str) -> None:
    """Readable to every user: it is shown to a workload, whose folder is not."""
    disk.write_whole(path, text.encode())
    os.chmod(path, 0o644)


def _is_free(port: int) -> bool:
    """Whether no program has the UDP *port*, for IPv4."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
        return True


def _listens(port: int) -> bool:
    """Whether somebody has it soon: a device binds once its interface is up, a moment later."""
    deadline = time.monotonic() + _LISTENS_S
    while _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
