"""What an operator may choose of a market's rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What an operator may choose; times in ms, sizes in bytes."""

    magic: int = 42
    quote_ttl_ms: int = 300_000
    propose_ttl_ms: int = 10_000
    start_ttl_ms: int = (
        1_800_000  # from signature to start: the channel's block and a large image ...
    )
    start_ttl_new_ms: int = 600_000  # ... and at a provider of which no receipt was ever paid
    starts_new: int = 4  # leases at once at such a provider, while another would do
    start_wait_ms: int = 60_000  # behind all others after a start that lapsed; doubles with each
    start_wait_most_ms: int = 86_400_000
    let_down_ms: int = 3_600_000  # so long an account that one let down is given proven ones first
    resume_window_ms: int = 600_000
    cluster_lost_ms: int = 15_000  # the same for members of clusters: the others wait for them ...
    redial_ms: int = 30_000  # ... but none is lost until adapters could find a market that was away
    process_lease_ms: int = 10_000
    end_grace_ms: int = 3_000
    unpaid_grace_ms: int = 600_000
    lost_grace_ms: int = 86_400_000
    notice_ms: int = 60_000  # before a lease ends for a job of higher priority
    room_ttl_ms: int = 180_000  # after it, until the room made is given up
    log_limit: int = 4 << 20
    blob_limit: int = 64 << 20
    blob_quota: int = 4 << 30  # of one account's files together ...
    blob_quota_new: int = 512 << 20  # ... and of one that never paid
    registry: str = ""  # host[:port]: the name of this market's registry of images; none
    image_quota: int = 20 << 30  # of one account's images together ...
    image_quota_new: int = 2 << 30  # ... and of one that never paid
    queued_jobs: int = 1_000  # of one account, waiting for a place
    quotes_new: int = 4  # open or not funded at once, of an account that never paid ...
    quotes_paying: int = 64  # ... and of one that did
    quotes_address: int = 16  # of all accounts at one network address that never paid
    quote_ttl_new_ms: int = 45_000  # to sign within, for an account that never paid
    starts_in_turn: bool = True  # of an account that never paid: one lease after the other
    turn_wait_ms: int = 55_000  # so long a signed lease waits for its turn ...
    turn_wait_funded_ms: int = 110_000  # ... while a channel of the one before it is seen
    unpaid_wait_ms: int = 10_000  # after a lease that ended unpaid; doubles with each
    unpaid_wait_most_ms: int = 3_600_000
    unpaid_forget_ms: int = 3_600_000  # one lapse or unpaid end less in each such time
    settle_every_ms: int = 30_000
    end_share: int = 60_000  # lovelace: the most that the operator pays for ending a channel ...
    end_budget: int = 5_000_000  # ... and for all of them in a day; 0: each provider ends its own
    token_ttl_ms: int = 43_200_000
    challenge_ttl_ms: int = 300_000
    requests_per_minute: int = 1_200
    logins_per_minute: int = 30
    hellos_per_minute: int = 600  # of one address: websockets that are to prove a key
    open_per_address: int = 2_000  # requests and sockets at once
    blob_folder: str = ""
    allow_private_hooks: bool = False
    loopback_hooks: bool = False  # this machine may be called: a devnet on one's own alone
