"""A bill that holds: its lines by lease, its totals by channel, and what they sum up to.

Money is lovelace, time milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from marketplace.domain.metering.kinds import Resource


@dataclass(frozen=True)
class LostTime:
    """Time of a lease that was not billed, with its cause; always 0 lovelace."""

    cause: str
    ms: int


@dataclass(frozen=True)
class Line:
    """One lease: what was delivered, at which rate, and what that makes."""

    lease: str
    provider: str
    channel: bytes
    resource: Resource
    units_milli: int
    rate_micro: int
    ticks: int
    started_wall_ms: int
    ended_wall_ms: int
    lease_ms: int
    unit_ms: int
    owed: int
    ceiling: int
    final: bool
    lost: tuple[LostTime, ...]


@dataclass(frozen=True)
class Total:
    """One channel: what its leases owe, what was signed for, claimed, sent home and is still held.

    *signed* is the greatest voucher. What it holds beyond *owed* is *ahead*: an allowance for later
    ticks, no word about what was delivered, and nobody's due.
    """

    channel: bytes
    owed: int
    signed: int
    ahead: int
    claimed: int | None
    refunded: int | None
    held: int | None
    funded: int | None
    ended: bool | None


@dataclass(frozen=True)
class RouteLine:
    """One routed lease: what it costs beyond *owed*, and how far its money came.

    *signed_in*, *signed_out*: its leaf in each hop, the first with the router's *fee*; None where
    that hop is not shown. *paid*: the provider's own word. *reached*: what the provider has by
    either; *withheld*: what the consumer signed for beyond that, which the router did not pass on.
    """

    lease: str
    router: bytes
    route_bps: int
    owed: int
    fee: int
    signed_in: int | None
    signed_out: int | None
    paid: int | None
    reached: int
    withheld: int


@dataclass(frozen=True)
class HopTotal:
    """One hop, *into* the router or out of it: what may be claimed, and what was.

    *due* is the most: *blind* lovelace of it are for leases that are not in the evidence.
    *unshown*: what was claimed beyond the rest, so for those leases alone.
    """

    hop: bytes
    into: bool
    due: int
    blind: int
    unshown: int | None
    signed: int
    ahead: int
    claimed: int | None
    refunded: int | None
    held: int | None
    funded: int | None
    ended: bool | None

    @property
    def settled(self) -> bool:
        """Whether it ended with all that was due for what is shown, and for the rest with no more
        than was signed for it.
        """
        claimed = self.claimed
        return (
            bool(self.ended)
            and claimed is not None
            and (self.due - self.blind <= claimed <= self.due)
        )


@dataclass(frozen=True)
class Invoice:
    """A bill that holds: *owed* is this job's share of its channels.

    *routes*: this job's routed leases; *hops*: the channels that pay for routed leases.
    """

    job: str
    lines: tuple[Line, ...]
    channels: tuple[Total, ...]
    routes: tuple[RouteLine, ...] = ()
    hops: tuple[HopTotal, ...] = ()

    @property
    def owed(self) -> int:
        """What the job cost, routers' fees apart."""
        return sum(line.owed for line in self.lines)

    @property
    def route_fee(self) -> int:
        """What routers are due for this job's leases, apart from a hop's own fee."""
        return sum(one.fee for one in self.routes)

    @property
    def unsigned(self) -> int:
        """Delivered and never paid for: the provider's loss, two ticks a lease at most."""
        direct = sum(max(total.owed - total.signed, 0) for total in self.channels)
        return direct + sum(one.owed - one.reached for one in self.routes)

    @property
    def withheld(self) -> int:
        """Signed for to a router, delivered, and not seen to reach the provider."""
        return sum(one.withheld for one in self.routes)

    @property
    def ahead(self) -> int:
        """Signed for beyond what was delivered; none of it may be claimed."""
        return sum(total.ahead for total in (*self.channels, *self.hops))

    @property
    def unshown(self) -> int:
        """Claimed over hops for leases that are not in the evidence: no part of this bill, and no
        more than was signed for them.
        """
        return sum(hop.unshown or 0 for hop in self.hops)

    @property
    def reconciled(self) -> bool:
        """Whether every channel and hop has ended on the ledger, with what is due for the leases
        of the evidence to the lovelace; :attr:`unshown` is the rest.
        """
        return bool(self.channels or self.hops) and (
            all(t.ended and t.claimed == min(t.signed, t.owed) for t in self.channels)
            and all(hop.settled for hop in self.hops)
        )

    def to_json(self) -> dict[str, Any]:
        """For programs; bytes as hex. What only routed leases have is there only with them."""
        routed = {
            "route_fee": self.route_fee,
            "withheld": self.withheld,
            "unshown": self.unshown,
            "routes": [_plain(one) for one in self.routes],
            "hops": [_plain(hop) for hop in self.hops],
        }
        return {
            "job": self.job,
            "owed": self.owed,
            "unsigned": self.unsigned,
            "ahead": self.ahead,
            "reconciled": self.reconciled,
            "lines": [_plain(line) for line in self.lines],
            "channels": [_plain(total) for total in self.channels],
            **(routed if self.hops else {}),
        }


def _plain(value: Line | Total | RouteLine | HopTotal) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, part in vars(value).items():
        if isinstance(part, bytes):
            row[name] = part.hex()
        elif isinstance(part, tuple):
            lost = cast("tuple[LostTime, ...]", part)
            row[name] = [{"cause": item.cause, "ms": item.ms} for item in lost]
        else:
            row[name] = part
    return row
