"""A keep: the consumer's signed order how long its channel stays open while no lease uses it.

A consumer that is gone cannot ask for the end.  So it orders one ahead: whoever has the order may
finish the channel once it was idle for that long.  The longest that was ever ordered counts, so
that an old order shown again changes nothing; a shorter one needs the End.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.units import parse_duration_ms

AT_ONCE: Final = "0"
"""The keep by which a channel ends with its last lease."""
KEEP: Final = "10m"
"""The keep of a consumer who says nothing."""
KEEP_MS: Final = 600_000
"""The same; also that of a channel that was kept before a time could be said."""
MOST_MS: Final = 30 * 86_400_000
_TAG: Final = "tally/keep/v1"


def read_keep(text: str) -> int:
    """``10m`` in milliseconds; ``0`` ends a channel with its last lease. :class:`Malformed` for
    anything else, and for more than 30 days.
    """
    keep_ms = 0 if text.strip() == AT_ONCE else parse_duration_ms(text)
    if keep_ms > MOST_MS:
        raise Malformed(f"{text!r} is longer than the 30 days that a channel may be kept for")
    return keep_ms


class KeepRefused(Refusal):
    """A keep that its channel's session key did not sign."""

    code = "KEEP_REFUSED"
    remedy = "sign the order with this channel's session key"


@dataclass(frozen=True)
class Keep:
    """Channel *session_vk* is to stay open for *keep_ms* milliseconds after its last lease."""

    session_vk: bytes
    keep_ms: int
    signature: bytes

    @staticmethod
    def message(session_vk: bytes, keep_ms: int) -> bytes:
        """What is signed: canonical CBOR under its own tag, longer than a voucher's 16 bytes."""
        return canonical.encode([_TAG, session_vk, keep_ms])

    @staticmethod
    def sign(session: Signer, keep_ms: int) -> Keep:
        """By the session key itself; *keep_ms* is 1 to :data:`MOST_MS`."""
        want_int(keep_ms, "keep_ms", 1, MOST_MS)
        vk = session.verify_key
        return Keep(vk, keep_ms, session.sign(Keep.message(vk, keep_ms)))

    def verify(self) -> None:
        """:class:`KeepRefused` unless the session key signed it."""
        message = Keep.message(self.session_vk, self.keep_ms)
        if not verifies(self.session_vk, message, self.signature):
            raise KeepRefused("the keep is not signed by the channel's session key")

    def to_wire(self) -> list[object]:
        """For a message."""
        return [self.session_vk, self.keep_ms, self.signature]

    @staticmethod
    def from_wire(value: object) -> Keep:
        """The reverse; :class:`Malformed` if it is not one. Does not check the signature."""
        a, b, c = canonical.want_list(value, 3, "keep")
        return Keep(
            want_bytes(a, 32, "session_vk"),
            want_int(b, "keep_ms", 1, MOST_MS),
            want_bytes(c, 64, "signature"),
        )
