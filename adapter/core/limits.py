"""The owner's rules beyond the offer: values of the configuration, as decisions read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Direct:
    """Where the owner opens ports of workloads to the world: at *address*, a name or an IP address,
    those from *first* on, *count* of them; listened for on *bind*.
    """

    address: str
    first: int
    count: int
    bind: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The owner's rules beyond the offer; milliseconds.

    *resume_window_ms*: how long a workload is kept while the market is away; *fund_wait_ms*: how
    long a signed lease may wait for a channel that never paid and of which nothing is seen,
    *fund_blind_ms*: the same on a network where a door shows no transaction that came by another,
    *fund_seen_ms*: for one whose transaction waits for a block, or for its turn; *fault_grace_ms*:
    how long a passing fault of the device is borne; *unread_ms*: how long what the chain shows of a
    channel may be unreadable before its leases pause; *final_wait_ms*: how long the last voucher is
    waited for; *linger_ms*: after which an unused channel with money due is finished, or one that
    never opened forgotten; *keep_channel_ms*: the longest that a consumer's order keeps an unused
    one open; *keep_ms*: how long receipts of a finished channel are kept; *images*: allowed
    repositories, empty = the public registries'; *image_mib*: the most that pulling an image may
    take of the disk; *host_network*: plain processes may use the host's network; *market*: its
    address, whose own registry is one to pull from; *relay_free_ms*: how long a relay may run
    unbilled for want of a tip, beside a tenth of what was billed; 0: none is taken;
    *volume_keep_ms*: how long a volume is kept unpaid in all, or while the market is away;
    *cluster_free_ms*: the most that a member of a cluster may be unbilled while it waits for
    others; 0: none is taken; *direct*: where ports of workloads are opened to the world, None:
    nowhere.
    """

    resume_window_ms: int = 600_000
    fund_wait_ms: int = 10_000
    fund_blind_ms: int = 60_000
    fund_seen_ms: int = 300_000
    fault_grace_ms: int = 180_000
    unread_ms: int = 120_000
    final_wait_ms: int = 30_000
    linger_ms: int = 3_600_000
    keep_channel_ms: int = 86_400_000
    keep_ms: int = 7 * 86_400_000
    stop_grace_ms: int = 10_000
    images: tuple[str, ...] = ()
    image_mib: int = 40_960
    max_leases: int = 64
    max_lease_ms: int = 30 * 86_400_000
    host_network: bool = False
    market: str = ""
    relay_free_ms: int = 0
    volume_keep_ms: int = 3 * 86_400_000
    cluster_free_ms: int = 180_000
    direct: Direct | None = None


@dataclass(frozen=True)
class Rules:
    """The owner's rules for the chain.

    *watch_s*: between looks, at most 30; *claim_above*: unclaimed lovelace worth a claim of its own
    while the channel goes on; *claim_drained*: the same while the adapter drains or the channel
    closes; *claim_wait_ms*: how long more than that may be due without coming on chain;
    *batch_wait_ms*: how long an end waits to be put together with others' (0: not at all; None: as
    long as is usual on the network); *allowance*: the most that is served on a channel before a
    block holds it (0: nothing), which sets what ``before_block`` bounds besides.
    """

    watch_s: float = 20.0
    claim_above: int = 100_000_000
    claim_drained: int = 3_000_000
    claim_wait_ms: int = 240_000
    batch_wait_ms: int | None = None
    allowance: int = 500_000
