"""A lasting connection to a Cardano relay, over which its tip is read."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from marketplace.domain.errors import Malformed
from marketplace.domain.ouroboros.asking import (
    Accepted,
    Alive,
    Asking,
    AtEnd,
    Event,
    HandshakeRefused,
    Point,
    Tip,
    Told,
)
from marketplace.domain.ouroboros.reading import Network, Standing, judge

WITHIN_S: Final = 5.0
_READ: Final = 64 * 1024


@dataclass(frozen=True)
class Reading:
    """Of a relay, at one look: *rtt_ms* until it answered; *why* in words where it is not at the
    tip, in part a stranger's; *tip* None where it said none.
    """

    standing: Standing
    tip: Tip | None = None
    rtt_ms: int = 0
    version: int = 0
    why: str = ""


class Unanswered(Exception):
    """No answer in time, or the connection ended."""


class Line(Protocol):
    """A connection to a relay, as anyio's streams are one. What it raises besides is an OSError."""

    async def send(self, item: bytes, /) -> None:
        """All of it."""
        ...

    async def receive(self, max_bytes: int = ..., /) -> bytes:
        """What came next; EndOfStream once it is over."""
        ...

    async def aclose(self) -> None:
        """Hang up."""
        ...


Dial = Callable[[], Awaitable[Line]]


def tcp(host: str, port: int) -> Dial:
    """By a connection of one's own."""

    async def dial() -> Line:
        return await anyio.connect_tcp(host, port)

    return dial


class Relay:
    """``async with Relay(tcp(host, port), network, lag_ms) as relay: await relay.look(…)``. It
    connects when it is looked at, and anew after a connection that failed.
    """

    def __init__(
        self, dial: Dial, network: Network, lag_ms: int, within_s: float = WITHIN_S
    ) -> None:
        self._dial, self.network = dial, network
        self.lag_ms, self._within_s = lag_ms, within_s
        self._stream: Line | None = None
        self._asking, self._version = Asking(network.magic), 0
        self._tip: Tip | None = None
        self._follows, self._proven = False, False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.hang_up()

    async def look(self, now_ms: int) -> Reading:
        """Where it stands now."""
        begun = time.monotonic()
        try:
            with anyio.fail_after(self._within_s):
                if self._stream is None:
                    await self._connect()
                await self._answer(self._asking.ask_alive(_now_us()), Alive)
                await self._catch_up(now_ms)
        except HandshakeRefused as no:
            return await self._failed(_refused(no), no.message)
        except Malformed as no:
            return await self._failed(Standing.MALFORMED, no.message)
        except (Unanswered, TimeoutError):
            said = Standing.SILENT if self._stream is not None else Standing.UNREACHABLE
            return await self._failed(said, f"no answer within {self._within_s:g} s")
        except OSError as error:
            return await self._failed(Standing.UNREACHABLE, error.strerror or "no connection")
        tip, rtt_ms = self._tip, round((time.monotonic() - begun) * 1000)
        assert tip is not None
        standing = judge(tip, self.network.clock, now_ms, self.lag_ms)
        if standing is Standing.AT_TIP and not self._proven:
            standing = Standing.UNPROVEN
        return Reading(standing, tip, rtt_ms, self._version, _why(standing, tip, self, now_ms))

    async def knows(self, point: Point) -> bool | None:
        """Whether that block is on its chain; None where it does not answer. By a connection of its
        own: on the lasting one nothing may be asked while the next block is waited for.
        """
        async with Relay(self._dial, self.network, self.lag_ms, self._within_s) as beside:
            try:
                with anyio.fail_after(self._within_s):
                    return await beside._meets(point)
            except (HandshakeRefused, Malformed, Unanswered, TimeoutError, OSError):
                return None

    async def _meets(self, point: Point) -> bool:
        await self._shake_hands()
        await self._answer(self._asking.follow(point, _now_us()), Told)
        return self._asking.at == point.hash

    async def _shake_hands(self) -> None:
        self._stream = await self._dial()
        self._asking, self._tip = Asking(self.network.magic), None
        self._follows, self._proven = False, False
        accepted = await self._answer(self._asking.propose(_now_us()), Accepted)
        assert isinstance(accepted, Accepted)
        self._version = accepted.version

    async def _connect(self) -> None:
        """Up to the tip that it says, and on from there: each block is told when it comes."""
        await self._shake_hands()
        told = await self._answer(self._asking.ask_tip(_now_us()), Told)
        assert isinstance(told, Told)
        await self._answer(self._asking.follow(told.tip.point, _now_us()), Told)
        self._follows = True
        await self._answer(self._asking.ask_next(_now_us()), Told, AtEnd)

    async def _catch_up(self, now_ms: int) -> None:
        """To the tip that it says, block by block, so that it hands out what it says. Where that
        tip is old, at once: a relay that syncs has thousands in a second.
        """
        while self._asking.behind and self._tip is not None:
            if judge(self._tip, self.network.clock, now_ms, self.lag_ms) is Standing.AT_TIP:
                await self._answer(self._asking.ask_next(_now_us()), Told, AtEnd)
            else:
                await self._answer(self._asking.follow(self._tip.point, _now_us()), Told)
                return

    async def _answer(self, asked: bytes, *kinds: type[Event]) -> Event:
        """The next event of *kinds*; what it says of its chain meanwhile is followed."""
        stream = self._stream
        assert stream is not None
        try:
            await stream.send(asked)
            while True:
                found: Event | None = None
                for event in self._asking.receive(await stream.receive(_READ)):
                    if isinstance(event, Told):
                        self._tip = event.tip
                        self._proven |= self._asking.at == event.tip.point.hash
                    elif isinstance(event, AtEnd):
                        self._proven = event.proven
                    found = event if isinstance(event, kinds) else found
                may_ask = self._follows and not self._asking.behind
                if may_ask and (more := self._asking.ask_next(_now_us())):
                    await stream.send(more)
                if found is not None:
                    return found
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Unanswered from None

    async def _failed(self, standing: Standing, why: str) -> Reading:
        await self.hang_up()
        return Reading(standing, version=self._version, why=why)

    async def hang_up(self) -> None:
        """The next look connects anew."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await _cut(stream)


async def _cut(line: Line) -> None:
    """At once, whatever it had to say: a cancelled scope closes forcefully (anyio's streams)."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await line.aclose()


def _refused(no: HandshakeRefused) -> Standing:
    return Standing.OTHER_NETWORK if "network" in no.message else Standing.REFUSING


def _why(standing: Standing, tip: Tip, relay: Relay, now_ms: int) -> str:
    if standing is Standing.AHEAD:
        return f"its tip is at slot {tip.point.slot}, which has not come yet"
    if standing is Standing.LAGGING:
        behind = (now_ms - relay.network.clock.when(tip.point.slot)) // 1000
        return f"its tip is {behind} s old"
    if standing is Standing.UNPROVEN:
        return "it says a tip, and hands out another block as the last"
    return ""


def _now_us() -> int:
    return time.monotonic_ns() // 1000
