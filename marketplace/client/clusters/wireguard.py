"""The file by which a machine of the consumer's joins a cluster's mesh, as ``wg-quick`` takes it,
and ``wg setconf`` after ``wg-quick strip``.  Its private key is made here and stands nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nacl.public import PrivateKey

from marketplace import disk
from marketplace.client.clusters.guests import Guest
from marketplace.domain.errors import Conflict, Malformed
from marketplace.domain.work.mesh_net import MTU, address, host_name

KEEPALIVE_S: Final = 25
"""What keeps a NAT's mapping open, as WireGuard's own pages advise."""
_FIRST: Final = "# tally mesh of "
_KEY: Final = "PrivateKey = "
_NAME: Final = re.compile(r"[a-zA-Z0-9_=+.-]{1,15}\.conf")
"""wg-quick(8) calls the interface so, and Linux takes no longer name."""


class FileTaken(Conflict):
    """Something else is in the file that was named."""

    code = "FILE_TAKEN"
    remedy = "name a file that is not there yet, or the one that joined this cluster before"


@dataclass(frozen=True)
class GuestKey:
    """32 bytes each; *private* is never printed."""

    private: bytes = field(repr=False)
    public: bytes

    @staticmethod
    def of(private: bytes) -> GuestKey:
        """With the public part that belongs to it."""
        return GuestKey(private, bytes(PrivateKey(private).public_key))


@dataclass(frozen=True)
class Reached:
    """A member as a guest finds it: its *key*, empty while nobody said it, and where it is sent to,
    ``HOST:PORT``. *endpoint* empty: it sends first, or, with a *why*, it is not reached.
    """

    member: int
    key: bytes
    endpoint: str
    why: str = ""


def text_of(
    gang: str,
    group: bytes,
    guest: Guest,
    key: GuestKey,
    members: Sequence[Reached],
    listen: int = 0,
) -> str:
    """The whole file; *listen*: the UDP port that others send to, 0 for any."""
    lines = [
        f"{_FIRST}{gang}, as {host_name(guest.number)}",
        "# Made by `tally job mesh --join`, which writes it anew. Whoever has it is in.",
        "[Interface]",
        f"{_KEY}{_text(key.private)}",
        f"Address = {address(group, guest.number)}/32",
        f"MTU = {MTU}",
        *([f"ListenPort = {listen}"] if listen else []),
    ]
    for one in sorted(members, key=lambda one: one.member):
        why = "".join(c if c.isprintable() else " " for c in one.why)  # others' words, in one line
        lines += ["", f"# {host_name(one.member)}{': ' if why else ''}{why}"]
        if not one.key:
            continue
        said = [
            "[Peer]",
            f"PublicKey = {_text(one.key)}",
            f"AllowedIPs = {address(group, one.member)}/32",
            *([f"Endpoint = {one.endpoint}"] if one.endpoint else []),
            f"PersistentKeepalive = {KEEPALIVE_S}",
        ]
        lines += [f"# {line}" for line in said] if one.why else said
    return "\n".join(lines) + "\n"


def key_in(path: Path, gang: str) -> GuestKey:
    """That with which *path* joined *gang* before, a fresh one where there is no such file.
    :class:`FileTaken` where something else is there; :class:`Malformed` for a name that wg-quick
    would not take.
    """
    if not _NAME.fullmatch(path.name):
        raise Malformed(
            f"{path.name} is no name for wg-quick: call it NAME.conf, with at most 15 of"
            " a-z, A-Z, 0-9 and _=+.- before the dot"
        )
    try:
        held = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return GuestKey.of(bytes(PrivateKey.generate()))
    except OSError as error:
        raise disk.fault(error, "a WireGuard file cannot be read", path) from error
    if not held or not held[0].startswith(f"{_FIRST}{gang},"):
        raise FileTaken(f"{path} is no file by which this machine joined {gang}")
    said = next((line.removeprefix(_KEY) for line in held if line.startswith(_KEY)), "")
    try:
        private = base64.b64decode(said, validate=True)
    except binascii.Error:
        private = b""
    if len(private) != PrivateKey.SIZE:
        raise FileTaken(f"{path} has no private key that could be used again")
    return GuestKey.of(private)


def write(path: Path, text: str) -> None:
    """In one step, readable by its owner alone."""
    disk.write_whole(path, text.encode())


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
