"""The relay's UDP ports, and what goes in and out by them."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import time
from typing import Any, Final, cast

from marketplace.mesh_relay.table import Address, Table

SWEEP_S: Final = 5.0


class _Port(asyncio.DatagramProtocol):
    """Number *number* of the relay."""

    def __init__(self, number: int, table: Table, ports: list[asyncio.DatagramTransport]) -> None:
        self._number = number
        self._table = table
        self._ports = ports

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """One packet; what follows is sent at once, and dropped where the kernel is full."""
        source = cast(Address, addr)
        for port, to, said in self._table.take(self._number, source, data, now_ms()):
            self._ports[port].sendto(said, to)


def now_ms() -> int:
    """By the clock that tickets end by."""
    return time.time_ns() // 1_000_000


async def listen(
    table: Table, host: str, first: int, count: int
) -> list[asyncio.DatagramTransport]:
    """Take packets at *count* ports of *host* from *first* on."""
    loop = asyncio.get_running_loop()
    ports: list[asyncio.DatagramTransport] = []
    own = host if _is_own(host) else "0.0.0.0"  # behind a NAT that passes on to this machine
    for number in range(count):
        made, _ = await loop.create_datagram_endpoint(
            lambda number=number: _Port(number, table, ports), local_addr=(own, first + number)
        )
        ports.append(made)
    return ports


def _is_own(host: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        try:
            door.bind((host, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True


async def serve(secret: bytes, host: str, first: int, count: int) -> None:
    """Until what began it closes this program's input."""
    table = Table(secret, count)
    ports = await listen(table, host, first, count)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: over.done() or over.set_result(None))
    while not over.done():
        await asyncio.wait([over], timeout=SWEEP_S)
        table.sweep(now_ms())
    for port in ports:
        port.close()


def main() -> None:
    """``HOST FIRST COUNT``; the secret is the first line of its input, in hex."""
    host, first, count = sys.argv[1:]
    secret = bytes.fromhex(sys.stdin.readline())
    asyncio.run(serve(secret, host, int(first), int(count)))


if __name__ == "__main__":
    main()
