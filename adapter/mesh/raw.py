"""A door to the UDP port of a WireGuard device beside the device: what is sent by it comes from the
same port, so every NAT on the way treats it as the device's own; of what comes in it has a copy of
what is not WireGuard's, which the device drops.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from typing import Final

from marketplace.domain.work.mesh_relay import BIND, PING

_ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER
_UDP: Final = struct.Struct("!HHHH")
_LARGEST: Final = 2048


def _filter(port: int) -> list[tuple[int, int, int, int]]:
    """Classic BPF over the IPv4 header on: UDP to *port* that begins as ours does."""
    magics = [int.from_bytes(one, "big") for one in (PING, BIND)]
    return [
        (0xB1, 0, 0, 0),  # X = length of the IP header
        (0x48, 0, 0, 2),  # A = the port that it is for
        (0x15, 0, 4, port),
        (0x40, 0, 0, 8),  # A = the first four bytes of what it carries
        (0x15, 1, 0, magics[0]),
        (0x15, 0, 1, magics[1]),
        (0x06, 0, 0, _LARGEST),
        (0x06, 0, 0, 0),
    ]


class RawPort:
    """Of UDP *port* of this host. OSError where that may not be opened."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._door = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        lines = _filter(port)
        code = b"".join(struct.pack("HBBI", *line) for line in lines)
        held = ctypes.create_string_buffer(code)
        program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(held))
        try:
            self._door.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        except OSError:
            self._door.close()
            raise

    def send(self, address: tuple[str, int], data: bytes) -> None:
        """One datagram, without a checksum: IPv4 leaves it open, and kernels then join none with
        others. Where the way there is closed it is lost, as any packet may be.
        """
        head = _UDP.pack(self._port, address[1], _UDP.size + len(data), 0)
        with contextlib.suppress(OSError):
            self._door.sendto(head + data, (address[0], 0))

    def receive(self, wait_s: float) -> tuple[tuple[str, int], bytes] | None:
        """What came and from where; None where nothing did in that time."""
        self._door.settimeout(max(0.001, wait_s))
        try:
            packet, (source, _) = self._door.recvfrom(_LARGEST)
        except TimeoutError:
            return None
        start = (packet[0] & 0x0F) * 4
        port = _UDP.unpack_from(packet, start)[0]
        return (source, port), packet[start + _UDP.size :]

    def close(self) -> None:
        """No more."""
        self._door.close()
