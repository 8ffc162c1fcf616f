"""Who is heard in a mesh: an echo (ICMP) to each peer from inside, and how long its answer took.

The kernel of the peer's namespace answers, also while the workload there is frozen or busy; no
workload has the right to answer in its place, and WireGuard takes an answer only from the key whose
address it bears.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from adapter.mesh.netns import inside

MISSED: Final = 3
"""Rounds without an answer after which a peer is heard no more."""
GUEST_S: Final = 0.2
_ASK, _ANSWER = 8, 0  # ICMP's types of an echo
_TOKEN: Final = 16
_HEAD: Final = struct.Struct("!BBHHH")


def echo(kind: int, number: int, token: bytes) -> bytes:
    """An ICMP echo of *kind*, the *number*-th of the one who has *token*."""
    identity = int.from_bytes(token[:2], "big")
    bare = _HEAD.pack(kind, 0, 0, identity, number & 0xFFFF) + token
    return _HEAD.pack(kind, 0, checksum(bare), identity, number & 0xFFFF) + token


def checksum(data: bytes) -> int:
    """Of the internet (RFC 1071); *data* has an even length."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def answered(packet: bytes, token: bytes) -> int | None:
    """Which of our echoes the IPv4 *packet* answers; None for anything else."""
    start = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) != start + _HEAD.size + len(token) or packet[start + _HEAD.size :] != token:
        return None
    kind, _, _, _, number = _HEAD.unpack_from(packet, start)
    return number if kind == _ANSWER else None


@dataclass
class Ears:
    """Of one member, in namespace *name*. Not for two threads at once."""

    name: str
    _token: bytes = field(default_factory=lambda: os.urandom(_TOKEN))
    _number: int = 0
    _socket: socket.socket | None = None
    _rtts: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def round(
        self, peers: Mapping[int, str], wait_s: float, guests: Collection[int] = ()
    ) -> dict[int, int]:
        """Ask every one of *peers* (addresses by member), wait for their answers as long as that at
        most, and tell who is heard: round trips in microseconds, the latest of each. For *guests*
        among them alone, whose machines may answer none, nobody waits longer than
        :data:`GUEST_S`.
        """
        door = self._open()
        self._number = (self._number + 1) & 0xFFFF
        missing, begun = set(peers.values()), time.monotonic_ns()
        for address in missing:
            with contextlib.suppress(OSError):  # its key is not there yet, or the queue is full
                door.sendto(echo(_ASK, self._number, self._token), (address, 0))
        began = time.monotonic()
        patient = {address for member, address in peers.items() if member not in guests}
        while missing:
            most = wait_s if missing & patient else min(wait_s, GUEST_S)
            left = began + most - time.monotonic()
            if left <= 0:
                break
            door.settimeout(left)
            try:
                packet, (address, _) = door.recvfrom(2048)
            except TimeoutError:
                break
            if address in missing and answered(packet, self._token) == self._number:
                missing.discard(address)
                took = max(1, (time.monotonic_ns() - begun) // 1000)
                self._rtts[address] = (self._number, took)
        return {
            member: self._rtts[address][1]
            for member, address in peers.items()
            if address in self._rtts and self._age(address) < MISSED
        }

    def _age(self, address: str) -> int:
        return (self._number - self._rtts[address][0]) & 0xFFFF

    def forget(self, address: str) -> None:
        """It is another peer's now: whoever was heard there is not this one."""
        self._rtts.pop(address, None)

    def close(self) -> None:
        """Hear no more; the next round opens anew."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _open(self) -> socket.socket:
        if self._socket is None:
            self._socket = inside(self.name, _raw)
        return self._socket


def _raw() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
