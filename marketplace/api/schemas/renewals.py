"""A lease that runs shall go on: what is asked for, what its provider signed, and the answer."""

from __future__ import annotations

from pydantic import Field

from marketplace.api.schemas.requests import Body
from marketplace.api.schemas.shape import Answer, told


class RenewalBody(Body):
    """For how much longer a lease shall run, and what that may cost."""

    duration_ms: int = Field(gt=0, le=2**53, examples=[604_800_000], description="so much more, ms")
    budget: int = Field(
        gt=0, le=2**53, examples=[50_000_000], description="the most that is added to it, lovelace"
    )


class RenewalSignBody(Body):
    """The consumer's signature over the renewed terms."""

    session_signature: str = Field(
        pattern="^[0-9a-f]{128}$",
        examples=["5e" * 64],
        description="of the renewed terms' exact bytes, by the session key, hex",
    )


class Renewal(Answer):
    """What the provider signed for a lease to go on: it waits for the consumer's signature."""

    terms: str = told("the terms' exact bytes, hex: those of the lease for longer")
    adapter_signature: str = told("the provider's signature over them, hex")
    max_duration_ms: int = told("how long the lease would then run in all, ms")
    ceiling: int = told("the most it could then cost in all, lovelace")
    expires_at_ms: int = told("until when it can be signed, ms since 1970, UTC")
