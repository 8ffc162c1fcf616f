"""What is said to a WireGuard device and what it answers, as text; and which changes make its peers
exactly those that are wanted.

https://www.wireguard.com/xplatform/: ``key=value`` lines, keys in hex, an empty line at the end.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from adapter.mesh.netns import MeshFault

_DEADLINE_S: Final = 5.0
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Peer:
    """Who has *key* is *address* inside, and is reached at *endpoint*:*port*; an empty *endpoint*:
    nobody knows where, so what is known stays. *roams*: it is sent to where it sends from, and to
    *endpoint* only until it is heard.
    """

    key: bytes
    address: str
    endpoint: str
    port: int
    roams: bool = False


@dataclass(frozen=True, slots=True)
class PeerSeen:
    """A peer as the device has it: *endpoint* (``address:port``), *allowed*, when it last shook
    hands (Unix seconds, 0: never), and bytes since it was added.
    """

    key: bytes
    endpoint: str = ""
    allowed: tuple[str, ...] = ()
    handshake_s: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A device: its private *key* (empty: none), the *port* it listens at, and its *peers*."""

    key: bytes
    port: int
    peers: Mapping[bytes, PeerSeen]


def changes(held: Mapping[bytes, PeerSeen], wanted: Sequence[Peer]) -> str:
    """What makes the *held* peers the *wanted* ones: who is not wanted goes first, for an address
    may be another's now. Empty where nothing differs.
    """
    keys = {one.key for one in wanted}
    lines: list[str] = []
    for key in sorted(held.keys() - keys):
        lines += [f"public_key={key.hex()}", "remove=true"]
    for one in wanted:
        allowed, known = f"{one.address}/32", held.get(one.key)
        endpoint = f"{one.endpoint}:{one.port}" if one.endpoint else ""
        if one.roams and known is not None and known.endpoint:
            endpoint = ""
        if known is not None and known.allowed == (allowed,) and endpoint in ("", known.endpoint):
            continue
        lines += [
            f"public_key={one.key.hex()}",
            *([f"endpoint={endpoint}"] if endpoint else []),
            "replace_allowed_ips=true",
            f"allowed_ip={allowed}",
        ]
    return "".join(f"{line}\n" for line in lines)


def moved(key: bytes, endpoint: str, port: int) -> str:
    """What sends to who has *key* there from now on, if it is a peer."""
    return f"public_key={key.hex()}\nupdate_only=true\nendpoint={endpoint}:{port}\n"


def anew(peer: PeerSeen, endpoint: str, port: int) -> str:
    """What makes *peer*, which nobody shook hands with yet, one that begins at once: the device
    waits for 5 s after a try that led nowhere.
    """
    lines = [f"public_key={peer.key.hex()}", "remove=true", f"public_key={peer.key.hex()}"]
    lines += [f"endpoint={endpoint}:{port}", *(f"allowed_ip={one}" for one in peer.allowed)]
    return "".join(f"{line}\n" for line in lines)


def parse(text: str) -> Seen:
    """A device's answer to ``get``; :class:`MeshFault` for what is none."""
    key, port, peers = b"", 0, dict[bytes, PeerSeen]()
    now: PeerSeen | None = None
    try:
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name == "public_key":
                now = PeerSeen(bytes.fromhex(value))
            elif now is not None:
                now = _of_peer(now, name, value)
            elif name == "private_key":
                key = bytes.fromhex(value)
            elif name == "listen_port":
                port = int(value)
            if now is not None:
                peers[now.key] = now
    except ValueError as error:
        raise MeshFault(f"a WireGuard device answers what it should not: {error}") from error
    return Seen(key, port, peers)


def _of_peer(peer: PeerSeen, name: str, value: str) -> PeerSeen:
    match name:
        case "endpoint":
            return replace(peer, endpoint=value)
        case "allowed_ip":
            return replace(peer, allowed=(*peer.allowed, value))
        case "last_handshake_time_sec":
            return replace(peer, handshake_s=int(value))
        case "tx_bytes":
            return replace(peer, sent=int(value))
        case "rx_bytes":
            return replace(peer, received=int(value))
        case _:
            return peer


def get(path: Path) -> Seen:
    """The device behind the socket *path*."""
    return parse(_talk(path, "get=1\n\n"))


def put(path: Path, changed: str) -> None:
    """Tell the device what is *changed*."""
    if changed:
        _talk(path, f"set=1\n{changed}\n")


class DeviceRefused(MeshFault):
    """A WireGuard device takes something not; *number* is the kernel's for why."""

    code = "MESH_DEVICE_REFUSED"

    def __init__(self, number: int) -> None:
        super().__init__(f"the WireGuard device answers error {number}")
        self.number = number


def _talk(path: Path, said: str) -> str:
    answer = b""
    try:
        with closing(socket.socket(socket.AF_UNIX)) as door:
            door.settimeout(_DEADLINE_S)
            door.connect(str(path))
            door.sendall(said.encode())
            while not answer.endswith(b"\n\n") and len(answer) < _MOST:
                piece = door.recv(1 << 16)
                if not piece:
                    break
                answer += piece
    except OSError as error:
        raise MeshFault(f"{path}: {error}") from error
    text, _, rest = answer.decode(errors="replace").rpartition("errno=")
    number = rest.strip()
    if not number.lstrip("-").isdecimal():
        raise MeshFault(f"{path}: the WireGuard device ends its answer early")
    if int(number):
        raise DeviceRefused(abs(int(number)))
    return text
