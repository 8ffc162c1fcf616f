"""A lease: one job on one offer at one price, until it ends. Why it ended is data, not a state."""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final

from marketplace.domain.machine import Machine


class LeaseState(Enum):
    """Where a lease stands in the market's book."""

    PROPOSED = auto()  # the adapter was asked; it has not signed the terms
    OFFERED = auto()  # the adapter signed; the consumer has not
    FUNDED = auto()  # both signed and a channel is named; the workload does not run yet
    ACTIVE = auto()  # the workload runs and ticks flow
    PAUSED = auto()  # no voucher, no connection or a fault: nothing is billed
    ENDING = auto()  # no new usage; the last receipt and voucher are still due
    ENDED = auto()  # settled or nothing owed


class LeaseEvent(Enum):
    """What can happen to one."""

    ACCEPTED = auto()
    DECLINED = auto()
    SIGNED = auto()
    STARTED = auto()
    PAUSE = auto()
    RESUME = auto()
    STOP = auto()  # the consumer, a limit or the market asks it to end
    FINISHED = auto()  # the workload is gone
    LOST = auto()  # the provider is gone
    EXPIRED = auto()  # nobody answered in time
    SETTLED = auto()


class EndReason(StrEnum):
    """Why a lease ended: shown to both sides, and what a retry policy looks at."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DECLINED = "DECLINED"
    QUOTE_EXPIRED = "QUOTE_EXPIRED"
    CHANNEL_REFUSED = "CHANNEL_REFUSED"
    START_FAILED = "START_FAILED"
    UNPAID = "UNPAID"
    CEILING = "CEILING"
    MAX_DURATION = "MAX_DURATION"
    IDLE = "IDLE"
    DISK_LIMIT = "DISK_LIMIT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PROVIDER_FAULT = "PROVIDER_FAULT"
    PROVIDER_LOST = "PROVIDER_LOST"
    CHANNEL_CLOSING = "CHANNEL_CLOSING"
    PREEMPTED = "PREEMPTED"
    MEMBER_ENDED = "MEMBER_ENDED"  # another member of its gang ended, so all do
    SUSPENDED = "SUSPENDED"
    OFF_TIP = "OFF_TIP"  # a relay was not at the tip for longer than its provider bears
    VOLUME_ENDED = "VOLUME_ENDED"  # one that it had mounted
    GROUP_STALLED = "GROUP_STALLED"  # its cluster did not assemble, or was held, for too long


RETRY_ON: Final = (
    EndReason.PROVIDER_LOST,
    EndReason.PROVIDER_FAULT,
    EndReason.START_FAILED,
    EndReason.PREEMPTED,
)
"""Ends after which the same job elsewhere may succeed; written in lower case in a job file."""


_S, _E = LeaseState, LeaseEvent

LEASE: Final = Machine(
    "lease",
    _S.PROPOSED,
    {
        (_S.PROPOSED, _E.ACCEPTED): _S.OFFERED,
        (_S.PROPOSED, _E.DECLINED): _S.ENDED,
        (_S.PROPOSED, _E.STOP): _S.ENDED,
        (_S.PROPOSED, _E.EXPIRED): _S.ENDED,
        (_S.PROPOSED, _E.LOST): _S.ENDED,
        (_S.OFFERED, _E.SIGNED): _S.FUNDED,
        (_S.OFFERED, _E.STOP): _S.ENDED,
        (_S.OFFERED, _E.EXPIRED): _S.ENDED,
        (_S.OFFERED, _E.LOST): _S.ENDED,
        (_S.FUNDED, _E.STARTED): _S.ACTIVE,
        (_S.FUNDED, _E.STOP): _S.ENDING,
        (_S.FUNDED, _E.FINISHED): _S.ENDING,
        (_S.FUNDED, _E.LOST): _S.ENDING,
        (_S.ACTIVE, _E.PAUSE): _S.PAUSED,
        (_S.ACTIVE, _E.STOP): _S.ENDING,
        (_S.ACTIVE, _E.FINISHED): _S.ENDING,
        (_S.ACTIVE, _E.LOST): _S.ENDING,
        (_S.PAUSED, _E.RESUME): _S.ACTIVE,
        (_S.PAUSED, _E.STOP): _S.ENDING,
        (_S.PAUSED, _E.FINISHED): _S.ENDING,
        (_S.PAUSED, _E.LOST): _S.ENDING,
        (_S.ENDING, _E.FINISHED): _S.ENDING,  # the workload's own end after a stop
        (_S.ENDING, _E.SETTLED): _S.ENDED,
    },
)
