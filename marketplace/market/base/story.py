"""What can happen to a job, by name: the kinds of its events, which webhooks may ask for.

A provider's words are stages of its own making; none may be taken for the market's.
"""

from __future__ import annotations

from typing import Final

STAGES: Final[dict[str, str]] = {
    "CHANNEL_SEEN": "its provider sees the channel on chain",
    "PULLING": "its provider fetches the image",
    "STARTING": "its provider starts it",
    "STOPPING": "it is being stopped; `reason`",
    "AT_TIP": "a relay is at the tip of its chain: it is billed",
    "OFF_TIP": "a relay does not serve, and is not billed; `code` is the cause",
    "DIRECT_PORTS": "its provider opened ports of it at `address`; `ports` are pairs of the"
    " workload's and the address's, `signature` is the provider's",
    "ORDERED": "a member of a cluster took your order; `verb`: MEET, RUN or HOLD, `version` grows",
    "RENEWED": "it goes on under renewed terms; `max_duration_ms` and `ceiling` are those in all",
}
"""What an adapter tells of a lease; other short words are kept as they come."""

KINDS: Final[dict[str, str]] = {
    "POSTED": "it was posted; `gang` for a member of one",
    "QUEUED": "it waits for a place; why nothing fits",
    "ROOM": "others were asked to make room for it",
    "MATCHED": "a provider was asked; `provider`",
    "QUOTED": "a provider signed its terms: they wait for your signature",
    "DECLINED": "a provider said no; `code` and `text`",
    "NEEDS": "it needs something of you to go on; `needs`",
    "SIGNED": "you signed its terms",
    **STAGES,
    "STARTED": "it runs",
    "PAUSED": "it is paused, unbilled; `message`",
    "RESUMED": "it runs again",
    "LOOKED": "the market looked at a relay itself; `standing`, `why`, and what its provider says",
    "RENEWAL_QUOTED": "its provider signed terms by which it would go on: they wait for you",
    "RENEWAL_DECLINED": "its provider will not renew it: it ends when agreed; `code`, `message`",
    "NOTICE": "it is to end for a job of higher priority; `deadline_ms`",
    "NOTICE_WITHDRAWN": "it may stay",
    "PROVIDER_LOST": "its provider is gone; `reason`",
    "FINISHED": "it has finished; `reason`, `message`, `exit_code`",
    "SETTLED": "its channel was settled; `tx`",
    "ENDED": "nothing more will happen; `reason`",
}

TEST: Final = "TEST"
"""The kind of a delivery that was asked for, of no job."""


def is_ours(kind: str) -> bool:
    """Whether only the market itself says so."""
    return kind in KINDS and kind not in STAGES
