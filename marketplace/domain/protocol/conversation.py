"""The protocol between a client (adapter or payer) and the market, without IO.

``receive(frame)`` and ``send(message)`` return what to write; the caller owns the socket and the
clock.  Messages are numbered, kept until acknowledged, and sent again after a reconnect of the same
session: nothing is lost, and nothing that had its effect is handled twice.  A message is
acknowledged *after* the caller made its effect durable.

What one side has and the other lacks is not used (``agreed``), and nothing that is signed, paid or
decided upon hangs on it: a market that hides a capability gets shorter texts and nothing else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal

from marketplace.domain import canonical, cbor
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.protocol import codec, wire

Role = Literal["adapter", "payer"]
_TAG: Final = "tally/hello/v2"
MAX_UNACKED: Final = 10_000
MAX_WAITING: Final = 16 << 20  # bytes that a market keeps for one client which acknowledges nothing
MOST_CAPABILITIES: Final = 32


class HelloRefused(Refusal):
    """The connection's first frames are not a valid hello."""

    code = "HELLO_REFUSED"
    remedy = "check the key, the network and the version of this adapter or payer"


class MarketOlder(HelloRefused):
    """The market's version refuses a hello that states capabilities: the next one states none."""

    code = "MARKET_OLDER"
    remedy = "dial again"


class Backlog(Refusal):
    """The other side has not acknowledged for too long."""

    code = "BACKLOG_FULL"
    remedy = "reconnect; what is unacknowledged is kept"


def hello_message(nonce: bytes, hello: wire.Hello) -> bytes:
    """What the client signs: its own tag, the nonce, and every field of its hello but what it says
    of its software. The market's address as the client dialled it is one, so that a market cannot
    pass the proof on to another.
    """
    h = hello
    return canonical.encode([_TAG, nonce, h.market, h.role, h.key, h.session, h.received, h.magic])


def subscribe_message(nonce: bytes, market: str, session_vk: bytes) -> bytes:
    """What a session key signs so that a payer may speak for its channel, at the *market* it
    dialled.
    """
    return canonical.encode(["tally/subscribe/v2", nonce, market, session_vk])


def agreed(stated: list[str]) -> frozenset[str]:
    """What both sides have, of what the other *stated*; unknown names are for others."""
    if len(stated) > MOST_CAPABILITIES or stated != sorted(set(stated)):
        raise HelloRefused(f"capabilities are sorted, each once, at most {MOST_CAPABILITIES}")
    return frozenset(codec.CAPABILITIES).intersection(stated)


class Phase(Enum):
    """Where a connection stands."""

    GREETING = auto()
    PROVING = auto()
    OPEN = auto()


@dataclass
class Numbering:
    """Both directions of one session: survives reconnects, dies with the process that owns it.

    *done* and *ahead* are the market's, which handles several messages at a time: up to *done*
    every message has had its effect, of those after it the ones in *ahead*. *agreed*: what both
    sides of the connection that stands can do; *unacked* is kept whole, for the next one may agree
    on more.
    """

    session: bytes
    sent: int = 0
    received: int = 0
    done: int = 0
    ahead: set[int] = field(default_factory=set[int])
    unacked: deque[tuple[int, bytes]] = field(default_factory=deque[tuple[int, bytes]])
    most_bytes: int | None = None
    waiting_bytes: int = 0
    agreed: frozenset[str] = frozenset()

    def wrap(self, message: wire.Message) -> bytes:
        """*message* as the next numbered frame, kept until acknowledged."""
        if len(self.unacked) >= MAX_UNACKED:
            raise Backlog(f"{len(self.unacked)} messages wait for an acknowledgement")
        payload = codec.to_bytes(message)
        if self.most_bytes is not None and self.waiting_bytes + len(payload) > self.most_bytes:
            raise Backlog(f"{self.waiting_bytes} bytes wait for an acknowledgement")
        self.sent += 1
        self.waiting_bytes += len(payload)
        self.unacked.append((self.sent, payload))
        return self._frame(self.sent, payload, message)

    def _frame(self, seq: int, payload: bytes, message: wire.Message) -> bytes:
        """*payload*, which is *message*, as the other side takes it."""
        if codec.SKIPS not in self.agreed and codec.has_optional(type(message)):
            payload = codec.to_bytes(message, optional=False)
        return codec.to_bytes(wire.Data(seq, payload))

    def acked(self, seq: int) -> None:
        """Forget everything up to *seq*."""
        while self.unacked and self.unacked[0][0] <= seq:
            self.waiting_bytes -= len(self.unacked.popleft()[1])

    def take(self, data: wire.Data) -> wire.Message | None:
        """The payload if it is the next one, None for a repetition; a gap is refused.
        :class:`codec.UnknownKind` for one that is taken and means nothing here."""
        if data.seq <= self.received:
            return None
        if data.seq != self.received + 1:
            raise HelloRefused(f"message {data.seq} after {self.received}: one is missing")
        self.received = data.seq
        if data.seq <= self.done or data.seq in self.ahead:
            return None
        return codec.from_bytes(data.payload)

    def finish(self, seq: int) -> None:
        """Message *seq* has had its effect, whatever is still being handled."""
        self.ahead.add(seq)
        while self.done + 1 in self.ahead:
            self.done += 1
        self.ahead = {seq for seq in self.ahead if seq > self.done}

    def again(self, received: int) -> list[bytes]:
        """What the other side has not received yet."""
        self.acked(received)
        return [self._frame(seq, one, codec.from_bytes(one)) for seq, one in self.unacked]

    def anew(self) -> None:
        """Count from 1 again: the other side is a new process that remembers no numbers."""
        payloads = [payload for _, payload in self.unacked]
        self.received, self.sent = 0, len(payloads)
        self.unacked = deque(enumerate(payloads, start=1))


@dataclass
class Client:
    """The adapter's or payer's side. One per process; ``connected`` starts each connection.
    *market*: the origin that it dials (``site.origin_of``), which everything that it signs names;
    *older*: the last hello was refused as an older market refuses one with capabilities.
    """

    role: Role
    signer: Signer
    magic: int
    software: str
    numbering: Numbering
    market: str
    phase: Phase = Phase.GREETING
    market_session: bytes = b""
    nonce: bytes = b""
    now_ms: int = 0
    older: bool = False

    def connected(self) -> bytes:
        """The first frame of a new connection."""
        self.phase = Phase.GREETING
        return codec.to_bytes(self._hello())

    def receive(self, frame: bytes) -> tuple[list[bytes], wire.Message | None]:
        """(frames to write, message to handle). A message must be answered by ``handled``.

        Raises :class:`HelloRefused` when the market rejects the connection, :class:`MarketOlder`
        when it may be dialled again at once. What is of an unknown kind is acknowledged and is no
        message.
        """
        message = codec.from_bytes(frame)
        match message:
            case wire.Challenge(nonce):
                self.phase, self.nonce = Phase.PROVING, nonce
                signature = self.signer.sign(hello_message(nonce, self._hello()))
                return [codec.to_bytes(wire.Proof(signature))], None
            case wire.Welcome(received, session, now_ms, stated):
                self.numbering.agreed = agreed([] if self.older else stated)
                self.older = False  # by the next connection it may be another version
                if self.market_session and session != self.market_session:
                    self.numbering.anew()
                self.market_session, self.phase, self.now_ms = session, Phase.OPEN, now_ms
                return self.numbering.again(received), None
            case wire.Data():
                try:
                    return [], self.numbering.take(message)
                except codec.UnknownKind:
                    return [self.handled()], None
            case wire.Ack(seq):
                self.numbering.acked(seq)
                return [], None
            case wire.Rejected(code, text, remedy):
                if self.phase is Phase.GREETING and code == Malformed.code and not self.older:
                    self.older = True
                    raise MarketOlder(f"{code}: {text}")
                if self.phase is not Phase.OPEN:
                    raise HelloRefused(f"{code}: {text}", remedy=remedy)
                return [], message
            case _:
                raise HelloRefused(f"unexpected {type(message).__name__}")

    def send(self, message: wire.Message) -> bytes:
        """The frame; write it if connected, else it goes out after the next welcome."""
        return self.numbering.wrap(message)

    def handled(self) -> bytes:
        """Acknowledges everything received so far."""
        return codec.to_bytes(wire.Ack(self.numbering.received))

    def _hello(self) -> wire.Hello:
        n = self.numbering
        return wire.Hello(
            self.role, self.signer.verify_key, n.session, n.received, self.magic, self.software,
            self.market, [] if self.older else list(codec.CAPABILITIES),
        )  # fmt: skip


@dataclass
class Server:
    """The market's side of one connection. *numberings* outlives it: (key, session) → numbering.
    *names*: the origins that this market is dialled at, its public one first.
    """

    magic: int
    nonce: bytes
    session: bytes
    numberings: dict[tuple[bytes, bytes], Numbering]
    names: tuple[str, ...]
    phase: Phase = Phase.GREETING
    hello: wire.Hello | None = None
    numbering: Numbering | None = None

    def receive(self, frame: bytes, now_ms: int) -> tuple[list[bytes], wire.Message | None]:
        """(frames to write, message to handle). Raises a Refusal: send it and close.

        Whoever has not proven a key yet is heard for a small frame only. A message of an unknown
        kind has had its effect: it goes into the next acknowledgement.
        """
        limits = cbor.FRAME if self.phase is Phase.OPEN else cbor.HELLO
        message = codec.from_bytes(frame, limits)
        match self.phase, message:
            case Phase.GREETING, wire.Hello():
                if message.magic != self.magic:
                    raise HelloRefused(f"this market is on network {self.magic}")
                if message.role not in ("adapter", "payer") or len(message.key) != 32:
                    raise HelloRefused("role is adapter or payer, key is 32 bytes")
                if message.market not in self.names:
                    raise HelloRefused(
                        f"this is {self.names[0] if self.names else 'no named market'}, and was"
                        f" dialled as {message.market[:200]!r}",
                        remedy=(
                            "dial the market's own address; its operator: --public-url, --also-url"
                        ),
                    )
                if len(message.session) != 16:
                    raise HelloRefused("session is 16 random bytes")
                agreed(message.capabilities)
                self.hello, self.phase = message, Phase.PROVING
                return [codec.to_bytes(wire.Challenge(self.nonce))], None
            case Phase.PROVING, wire.Proof(signature):
                return self._prove(signature, now_ms), None
            case Phase.OPEN, wire.Data(seq):
                assert self.numbering is not None
                try:
                    return [], self.numbering.take(message)
                except codec.UnknownKind:
                    self.numbering.finish(seq)
                    return [], None
            case Phase.OPEN, wire.Ack(seq):
                assert self.numbering is not None
                self.numbering.acked(seq)
                return [], None
            case _:
                raise HelloRefused(f"unexpected {type(message).__name__}")

    def send(self, message: wire.Message) -> bytes:
        """The frame to write."""
        assert self.numbering is not None
        return self.numbering.wrap(message)

    def handled(self) -> bytes:
        """Acknowledges everything received so far: all of it has had its effect."""
        assert self.numbering is not None
        self.numbering.done = self.numbering.received
        self.numbering.ahead.clear()
        return self.acknowledgement()

    def acknowledgement(self) -> bytes:
        """Acknowledges what has had its effect without a gap."""
        assert self.numbering is not None
        return codec.to_bytes(wire.Ack(self.numbering.done))

    def _prove(self, signature: bytes, now_ms: int) -> list[bytes]:
        hello = self.hello
        assert hello is not None
        if not verifies(hello.key, hello_message(self.nonce, hello), signature):
            raise HelloRefused("the proof is not signed by the key of the hello")
        key = (hello.key, hello.session)
        known = self.numberings.get(key)
        if known is None:
            # One numbering per key: a new process run of the same client ends the old one's.
            for old in [k for k in self.numberings if k[0] == hello.key]:
                del self.numberings[old]
            known = self.numberings[key] = Numbering(hello.session, most_bytes=MAX_WAITING)
        self.numbering, self.phase = known, Phase.OPEN
        known.received = known.done  # what was cut off while it was handled comes again
        known.agreed = agreed(hello.capabilities)
        received = hello.received if known.sent else 0
        own = list(codec.CAPABILITIES) if hello.capabilities else []
        welcome = codec.to_bytes(wire.Welcome(known.received, self.session, now_ms, own))
        return [welcome, *known.again(received)]
