"""Paid: the provider's word, after its disk has it, that a routed lease was paid so far.

It goes from the provider through the router to the consumer, who signs at most one tick beyond it:
a router that takes and passes nothing on is stopped there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_int
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer, verifies

_TAG: Final = "tally/paid/v1"


class PaidRefused(Refusal):
    """A Paid that the lease's adapter did not sign."""

    code = "PAID_REFUSED"
    remedy = "count on no more than the last Paid that the adapter of the terms has signed"


@dataclass(frozen=True)
class Paid:
    """*amount* lovelace of *lease* (its key: *lease_vk*) have reached the provider, in all."""

    lease_vk: bytes
    lease: str
    amount: int
    signature: bytes

    @staticmethod
    def message(lease_vk: bytes, lease: str, amount: int) -> bytes:
        """What is signed: canonical CBOR under its own tag."""
        return canonical.encode([_TAG, lease_vk, lease, amount])

    @staticmethod
    def sign(adapter: Signer, lease_vk: bytes, lease: str, amount: int) -> Paid:
        """By the adapter's metering key (``Terms.adapter_vk``)."""
        want_int(amount, "amount")
        return Paid(lease_vk, lease, amount, adapter.sign(Paid.message(lease_vk, lease, amount)))

    def verify(self, adapter_vk: bytes) -> None:
        """:class:`PaidRefused` unless *adapter_vk* signed it."""
        message = Paid.message(self.lease_vk, self.lease, self.amount)
        if not verifies(adapter_vk, message, self.signature):
            raise PaidRefused("the adapter of the terms did not sign this Paid")
