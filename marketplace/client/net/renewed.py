"""What this client reads of a lease that was asked to go on (see ``answers``)."""

from __future__ import annotations

from typing import TypedDict


class RenewalAnswer(TypedDict):
    """What a provider signed for a lease to go on, hex."""

    terms: str
    adapter_signature: str


class RenewedAnswer(TypedDict):
    """A lease that was asked to go on, as far as a payer goes by it; *terms*: hex, those that
    both signed.
    """

    terms: str
    renewal: RenewalAnswer | None
    renewal_refused: str
