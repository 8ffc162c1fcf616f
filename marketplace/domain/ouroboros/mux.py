"""Segments of the node-to-node multiplexer: several conversations on one connection.

Ouroboros network specification, chapter 3: four bytes of the sender's clock in microseconds, a bit
for who answers, fifteen for the protocol, two bytes of length, the payload. A message may come in
several segments, and a segment may hold several messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from marketplace.domain import cbor
from marketplace.domain.errors import Malformed

HEAD: Final = 8
SEGMENT_MOST: Final = 12_288  # bytes of payload that a node sends in one
MESSAGE_MOST: Final = 65_535  # of handshake, keep-alive and chain-sync (chapter 3, size limits)
_ANSWERS: Final = 0x8000
LIMITS: Final = cbor.Limits(MESSAGE_MOST, 4_096, 32, 128)


class Protocol(IntEnum):
    """Those that are spoken here; a node that wants another is not answered."""

    HANDSHAKE = 0
    CHAIN_SYNC = 2
    KEEP_ALIVE = 8


def segments(protocol: Protocol, message: bytes, now_us: int) -> bytes:
    """*message* of the side that asks, in as many segments as it takes."""
    parts = [message[at : at + SEGMENT_MOST] for at in range(0, len(message), SEGMENT_MOST)]
    clock = (now_us & 0xFFFF_FFFF).to_bytes(4, "big")
    return b"".join(
        clock + protocol.to_bytes(2, "big") + len(part).to_bytes(2, "big") + part for part in parts
    )


class Segments:
    """What a peer sends, put together: values by protocol. Bounded, whatever comes."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._begun = {protocol: bytearray() for protocol in Protocol}

    def receive(self, data: bytes) -> Iterator[tuple[Protocol, Any]]:
        """The messages that *data* completes; :class:`Malformed` for what no node sends."""
        self._raw += data
        while len(self._raw) >= HEAD:
            size = int.from_bytes(self._raw[6:8], "big")
            if len(self._raw) < HEAD + size:
                return
            named = int.from_bytes(self._raw[4:6], "big")
            payload = bytes(self._raw[HEAD : HEAD + size])
            del self._raw[: HEAD + size]
            if not named & _ANSWERS:
                continue  # it asks us: this side only asks, as its handshake says
            number = named & ~_ANSWERS
            if number not in {*Protocol}:
                raise Malformed(f"an answer of protocol {number}, which was not asked")
            yield from self._complete(Protocol(number), payload)

    def _complete(self, protocol: Protocol, payload: bytes) -> Iterator[tuple[Protocol, Any]]:
        begun = self._begun[protocol]
        begun += payload
        while begun:
            try:
                value, end = cbor.first(bytes(begun[: MESSAGE_MOST + 1]), LIMITS)
            except cbor.Unfinished:
                return
            del begun[:end]
            yield protocol, value
