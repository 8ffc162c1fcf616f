"""What the adapter knows: its leases, its channels, and whether the market hears it.

Frozen values; ``decide`` makes new ones.  All of it lives in the journal too, so that a killed
adapter comes back as it was.  Marks named ``*_at_ms`` are the host's boot clock unless ``wall``
stands in their name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from adapter.core.hop import Hop, Routed
from adapter.core.limits import Direct as Direct
from adapter.core.limits import Limits as Limits
from adapter.core.limits import Rules as Rules
from adapter.core.member import Member
from adapter.core.wish import Wish
from adapter.core.workload import Handle
from adapter.core.young import Loss, Young
from marketplace.domain.keys import Signer
from marketplace.domain.metering.meter import Meter
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason, LeaseState


@dataclass(frozen=True, slots=True)
class Now:
    """One look at the clocks: boot time counts, the wall clock only labels and dates quotes."""

    wall_ms: int
    boot_ms: int
    boot_id: str


class PauseCause(StrEnum):
    """Why a workload is frozen."""

    UNPAID = "UNPAID"  # two ticks without a voucher
    OFFLINE = "OFFLINE"  # the same, while the market cannot be reached
    DEPTH = "DEPTH"  # the channel's transaction is too young for more
    BLIND = (  # its channel was not seen for too long (a Close may be half over), or cannot be read
        "BLIND"
    )
    EXPOSED = "EXPOSED"  # too much is due that no claim brought on chain for minutes
    HELD = "HELD"  # its consumer holds the cluster of which it is a member


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel that pays this adapter.

    *terms*: the first lease's bytes, whose constants the datum must hold (empty for a hop);
    *origin*: hex id of the open transaction; *capacity*: the most that vouchers may reach; *limit*:
    what may be relied upon at the present depth; *expected*: the open transaction was seen to wait;
    *voucher*: the greatest; *last*: the last receipt of the channel's chain; *leases*: all that it
    ever paid; *final*: its end lies too deep for a rollback, which was first seen at
    *final_wall_ms*; *exposed_at_ms*: when unclaimed money passed the owner's limit (0: it did not),
    *exposed_due*: what was due then, *starved*: it did not come on chain in time; *keep_ms*: how
    long its consumer ordered it to be kept while it is idle (0: it said nothing); *young*: what it
    was trusted with before a block held it, None where that was nothing; *hop*: what it is beside
    that where a router pays over it: its leases have chains of their own then.
    """

    session_vk: bytes
    terms: bytes
    origin: str
    stage: ChannelStage = ChannelStage.OPENING
    capacity: int = 0
    limit: int = 0
    claimed: int = 0
    expire_at_wall_ms: int = 0
    voucher: Voucher | None = None
    last: Receipt | None = None
    leases: tuple[str, ...] = ()
    end_asked: bool = False
    settling: bool = False
    settled_tx: str = ""
    idle_since_wall_ms: int = 0
    final: bool = False
    final_wall_ms: int = 0
    exposed_at_ms: int = 0
    exposed_due: int = 0
    starved: bool = False
    expected: bool = False
    keep_ms: int = 0
    young: Young | None = None
    hop: Hop | None = None

    @property
    def agreed(self) -> Agreed:
        """What it must be on the chain."""
        return self.hop or Terms.decode(self.terms)

    @property
    def used(self) -> bool:
        """Whether anything was ever served or signed on it."""
        return self.last is not None or (self.hop is not None and self.hop.last is not None)

    @property
    def owed(self) -> int:
        """Lovelace owed by all of the channel's leases so far; of a hop's leases as far as they
        have a leaf each.
        """
        if self.hop is not None:
            return self.hop.due
        return self.last.channel_owed if self.last else 0

    @property
    def relied(self) -> int:
        """Lovelace of it that served leases rely on."""
        return self.owed if self.hop is None else self.hop.relied

    @property
    def paid(self) -> int:
        """Lovelace that the greatest voucher is over."""
        return self.voucher.cumulative if self.voucher else 0

    @property
    def due(self) -> int:
        """Lovelace that are ours: delivered, signed for, and in the channel. What a voucher was
        signed ahead over is no due yet.
        """
        return min(self.paid, self.owed, self.capacity)

    @property
    def unclaimed(self) -> int:
        """Lovelace of it that are not on chain yet."""
        return max(0, self.due - self.claimed)


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease at the provider.

    *begun_ns*: boot clock at which the lease's time began (its receipts' zero); *unpaid*: channel
    totals of its receipts that no voucher covers; *lost_told*: lost milliseconds by cause that
    receipts stated already; *paused_ms*: pause time that counts against the limit, *frozen_ms*: all
    of it; *hard*: the stop has no grace left; *routed*: the hop that pays it, None of a lease that
    its consumer's own channel pays: then *unpaid* are the lease's own totals; *renewal*: the terms
    by which it would go on, as signed here, while its consumer has not; *direct*: pairs of a port
    of the workload and the host's own that leads to it, *direct_at*: the address that its consumer
    was told; *member*: what is held of it as a member of a cluster.
    """

    id: str
    job: JobSpec
    signed: SignedTerms
    terms: Terms
    grant: Grant
    state: LeaseState = LeaseState.OFFERED
    wish: Wish = Wish.WAIT
    secrets: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    channel_tx: str = ""
    boot_id: str = ""
    signed_wall_ms: int = 0
    begun_ns: int = 0
    started_at_ms: int = 0
    handle: Handle | None = None
    meters: tuple[Meter, ...] = ()
    last: Receipt | None = None
    unpaid: tuple[int, ...] = ()
    lost_told: Mapping[str, int] = field(default_factory=dict[str, int])
    lost_before: Mapping[str, int] = field(default_factory=dict[str, int])
    pause: PauseCause | None = None
    paused_at_ms: int = 0
    paused_ms: int = 0
    frozen_ms: int = 0
    fault_since_ms: int = 0
    idle_since_ms: int = 0
    reason: EndReason | None = None
    message: str = ""
    exit_code: int | None = None
    hard: bool = False
    exited: bool = False
    removed: bool = False
    final_wall_ms: int = 0
    log_offset: int = 0
    routed: Routed | None = None
    renewal: SignedTerms | None = None
    direct: tuple[tuple[int, int], ...] = ()
    direct_at: str = ""
    member: Member = Member()

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of its GPUs; empty for a lease of cores."""
        return self.grant.gpus

    @property
    def channel(self) -> bytes:
        """The channel that pays it."""
        return self.terms.session_vk if self.routed is None else self.routed.hop

    @property
    def owed(self) -> int:
        """Lovelace by its receipts."""
        return self.last.lease_owed if self.last else 0

    @property
    def awaits_money(self) -> bool:
        """True while it is signed and its channel does not carry it yet."""
        return self.state is LeaseState.FUNDED and self.wish is Wish.WAIT

    @property
    def signed_for(self) -> bool:
        """True from where its start was decided on."""
        return self.wish is not Wish.WAIT

    @property
    def runs(self) -> bool:
        """True between its start and its workload's end."""
        return self.handle is not None and not self.exited

    @property
    def occupies(self) -> bool:
        """True while its devices are not anybody else's."""
        return not self.removed and self.state is not LeaseState.ENDED


@dataclass(frozen=True, slots=True)
class Own:
    """What the adapter brings to every decision: its offer as of now, its key and its rules."""

    offer: Offer
    signer: Signer
    limits: Limits = Limits()
    rules: Rules = Rules()


@dataclass(frozen=True, slots=True)
class Past:
    """What is left of channels that are finished and forgotten: their session keys, which are never
    good again, and the lovelace that they paid and that came on chain."""

    keys: frozenset[bytes] = frozenset()
    paid: int = 0
    claimed: int = 0

    def plus(self, channel: Channel) -> Past:
        """What is remembered once *channel* is forgotten too."""
        keys = self.keys | {channel.session_vk}
        return Past(keys, self.paid + channel.paid, self.claimed + channel.claimed)


@dataclass(frozen=True, slots=True)
class Sight:
    """How well one channel is seen on the chain: when it was last read, and since when what the
    chain shows of it cannot be read (None while it can).
    """

    seen_ms: int
    unread_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Debtor:
    """How often leases of a consumer's key ended for want of payment, and when the last one did."""

    strikes: int
    at_wall_ms: int


@dataclass(frozen=True, slots=True)
class State:
    """Everything.  *offline_since_ms* is None while the market hears us; *awake_ms*: when this
    process began to look at the chain; *sights*: what it saw since, each channel by itself;
    *unable*: why the fee key cannot pay for a Finish, empty while it can or nobody looked yet;
    *debtors*: by consumer's key hash, see ``debt``; *losses*: of opens, see ``before_block``;
    *orders*: the market passes on what members of clusters are ordered.
    """

    leases: Mapping[str, Lease] = field(default_factory=dict[str, Lease])
    channels: Mapping[bytes, Channel] = field(default_factory=dict[bytes, Channel])
    offline_since_ms: int | None = None
    awake_ms: int = 0
    sights: Mapping[bytes, Sight] = field(default_factory=dict[bytes, Sight])
    draining: bool = False
    past: Past = Past()
    unable: str = ""
    debtors: Mapping[bytes, Debtor] = field(default_factory=dict[bytes, Debtor])
    losses: tuple[Loss, ...] = ()
    orders: bool = False

    @property
    def earned(self) -> int:
        """Lovelace by vouchers, of all channels ever."""
        return self.past.paid + sum(channel.paid for channel in self.channels.values())

    @property
    def claimed(self) -> int:
        """Lovelace that came on chain, of all channels ever."""
        return self.past.claimed + sum(channel.claimed for channel in self.channels.values())

    def sight(self, session_vk: bytes) -> Sight:
        """How well the channel is seen: one not read yet since the adapter came back has its
        time.
        """
        return self.sights.get(session_vk, Sight(self.awake_ms))

    def with_sight(self, session_vk: bytes, sight: Sight) -> State:
        """This state with *sight* of the channel put in its place."""
        return replace(self, sights={**self.sights, session_vk: sight})

    def with_lease(self, lease: Lease) -> State:
        """This state with *lease* put in its place."""
        return replace(self, leases={**self.leases, lease.id: lease})

    def with_channel(self, channel: Channel) -> State:
        """This state with *channel* put in its place."""
        return replace(self, channels={**self.channels, channel.session_vk: channel})

    def without(self, lease: str) -> State:
        """This state without that lease."""
        return replace(self, leases={k: v for k, v in self.leases.items() if k != lease})

    def without_channel(self, session_vk: bytes, past: Past) -> State:
        """This state without that channel; *past* is what is left of it."""
        left = {vk: one for vk, one in self.channels.items() if vk != session_vk}
        sights = {vk: one for vk, one in self.sights.items() if vk != session_vk}
        return replace(self, channels=left, sights=sights, past=past)

    def on(self, session_vk: bytes) -> Iterator[Lease]:
        """The leases of a channel."""
        return (lease for lease in self.leases.values() if lease.channel == session_vk)
