"""A voucher: the consumer's signed cumulative amount for one channel, and the signed wish to end.

The 16 bytes a voucher signs are the cheapest that the contract can check (design of the channel);
everything else that a session key signs starts with another tag and is longer than 16 bytes, so
nothing can be mistaken for a voucher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer, verifies

MAX_CUMULATIVE: Final = 2**63 - 1
_END_TAG: Final = "tally/end/v1"


class VoucherRefused(Refusal):
    """A voucher that is forged, for another channel, or claims more than the channel holds."""

    code = "VOUCHER_REFUSED"
    remedy = "sign the channel's cumulative amount with this channel's session key"


def voucher_message(cumulative: int) -> bytes:
    """``"tally/v1" | cumulative as 8 bytes big-endian``: 16 bytes."""
    return b"tally/v1" + cumulative.to_bytes(8, "big")


@dataclass(frozen=True)
class Voucher:
    """*cumulative* lovelace of channel *session_vk* are the provider's."""

    session_vk: bytes
    cumulative: int
    signature: bytes

    @staticmethod
    def sign(session: Signer, cumulative: int) -> Voucher:
        """By the session key itself."""
        want_int(cumulative, "cumulative", most=MAX_CUMULATIVE)
        return Voucher(session.verify_key, cumulative, session.sign(voucher_message(cumulative)))

    def verify(self) -> None:
        """:class:`VoucherRefused` unless the channel's session key signed it."""
        if not 0 <= self.cumulative <= MAX_CUMULATIVE or not verifies(
            self.session_vk, voucher_message(self.cumulative), self.signature
        ):
            raise VoucherRefused("the voucher is not signed by the channel's session key")

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.session_vk, self.cumulative, self.signature]

    @staticmethod
    def from_wire(value: object) -> Voucher:
        """The reverse; :class:`Malformed` if it is not one. Does not check the signature."""
        a, b, c = canonical.want_list(value, 3, "voucher")
        return Voucher(
            want_bytes(a, 32, "session_vk"),
            want_int(b, "cumulative", most=MAX_CUMULATIVE),
            want_bytes(c, 64, "signature"),
        )


@dataclass(frozen=True)
class End:
    """The consumer's signed wish to finish *session_vk* now: the adapter claims and finishes."""

    session_vk: bytes
    cumulative: int
    signature: bytes

    @staticmethod
    def message(session_vk: bytes, cumulative: int) -> bytes:
        """What is signed: canonical CBOR under its own tag, longer than a voucher's 16 bytes."""
        return canonical.encode([_END_TAG, session_vk, cumulative])

    @staticmethod
    def sign(session: Signer, cumulative: int) -> End:
        """*cumulative* is the last voucher that the consumer signed."""
        vk = session.verify_key
        return End(vk, cumulative, session.sign(End.message(vk, cumulative)))

    def verify(self) -> None:
        """:class:`VoucherRefused` unless the session key signed it."""
        if not verifies(
            self.session_vk, End.message(self.session_vk, self.cumulative), self.signature
        ):
            raise VoucherRefused("the end is not signed by the channel's session key")

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.session_vk, self.cumulative, self.signature]

    @staticmethod
    def from_wire(value: object) -> End:
        """The reverse; does not check the signature."""
        a, b, c = canonical.want_list(value, 3, "end")
        return End(
            want_bytes(a, 32, "session_vk"),
            want_int(b, "cumulative", most=MAX_CUMULATIVE),
            want_bytes(c, 64, "signature"),
        )
