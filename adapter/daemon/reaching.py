"""How the ports of a workload are called from its host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import SocketStream

from adapter.core.state import Lease

Reach = Callable[[Lease, tuple[str, int]], Awaitable[SocketStream]]
"""A connection to a running workload's port, which the host has at that (address, port)."""


async def reach(_: Lease, place: tuple[str, int]) -> SocketStream:
    """Of a workload in a network that the host is in, too."""
    return await anyio.connect_tcp(*place)
