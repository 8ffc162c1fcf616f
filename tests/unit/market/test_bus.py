"""Who listens hears of what changed, once, and leaves nothing behind."""

from __future__ import annotations

import pytest

from marketplace.market.base.bus import Bus

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_topic_that_is_named_twice_is_heard_and_left_once() -> None:
    """A job whose two leases are on one channel: its story ended in the middle of an answer."""
    bus = Bus()
    with bus.listening("job:1", "channel:a", "channel:a") as inbox, bus.listening("channel:a"):
        bus.tell(["channel:a"])
        assert await inbox.wait(1.0)
    bus.tell(["channel:a"])
    with bus.listening("channel:a", "channel:a") as again:
        assert not await again.wait(0.01)
