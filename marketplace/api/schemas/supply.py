"""Answers about the market, what is offered in it, and by whom."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.shape import Answer, Next, maybe, names_of, told
from marketplace.domain.isolation import Isolation
from marketplace.domain.metering.kinds import Resource
from marketplace.domain.supply.hardware import Health, Sharing
from marketplace.domain.supply.offer import OfferState


class Alive(Answer):
    """The process answers."""

    status: Literal["ok"] = told("always `ok`")


class Ready(Answer):
    """The process can work."""

    status: Literal["ready"] = told("always `ready`; else the answer is a problem")
    chain: Literal["ready", "away", "none"] = told(
        "`away` while the chain does not answer, `none` where none is configured"
    )
    chain_fault: str = told("why the chain does not answer; empty while it does")


class Network(Answer):
    """Facts that a client checks against its own chain."""

    magic: int = told("the Cardano network's magic number")
    version: str = told("this market's release")
    asset: str = told("what prices are in: empty for ADA")
    chain: bool = told("whether this market settles on a chain")
    chain_away: bool = told("whether that chain does not answer just now")
    settle_hash: str = maybe("hash of the settle script, hex; absent without a chain")
    stub_hash: str = maybe("hash of the channels' script, hex; absent without a chain")
    deployed: bool = maybe("whether the reference scripts are on chain; absent without a chain")
    chain_url: str = maybe(
        "where clients may ask this chain; empty: not told; absent without a chain"
    )


class Processor(Answer):
    """A host's CPU."""

    model: str = told("as the host names it")
    cores: int = told("physical cores")
    milli: int = told("what is rented out of it, in thousandths of a core")


class Device(Answer):
    """A GPU of an offer, or the hardware's slice of one."""

    uuid: str = told("the driver's name for it")
    model: str = told("as the driver names it")
    vram_mib: int = told("its memory, MiB")
    sharing: Sharing = told("a whole GPU, or a slice that the hardware walls off")
    health: Health = told("whether it can be rented")
    health_note: str = told("what is wrong with it; empty if nothing is")
    simulated: bool = told("no real device: on a devnet only")
    rate_micro: int = told("price of all of it, micro-lovelace a second")
    free_milli: int = told("what is free of it now, in thousandths; 0 in a quote")


class Maintenance(Answer):
    """Planned: no job is placed that could still run then."""

    start_ms: int = told("ms since 1970, UTC")
    end_ms: int = told("ms since 1970, UTC")
    notice: str = told("the provider's words")


class ExpectedStart(Answer):
    """What a start is expected to take at one provider, from the money's being there: by what its
    host has, what the image is made of, and how its last starts went.
    """

    ms: int = told("until the workload runs, ms")
    here: bool = told("the image is on its host")
    pull_bytes: int | None = told(
        "what its host lacks of the image, packed; null: nobody here knows what it is made of"
    )
    bytes_s: int = told("bytes a second of its last pulls; 0: it told of none")


class Offer(Answer):
    """What one provider offers: its host, prices and terms."""

    id: str = told("its name; it follows from the provider's key")
    provider: str = told("the provider's Ed25519 key, hex")
    name: str = told(
        "what the provider calls itself: its label `name`. Nobody checks it, and two may share one"
    )
    leases: int = told("leases its provider ever had; up to a minute old")
    lost: int = told("of these, such as ended because it was gone")
    uptime_milli: int | None = told(
        "how often its adapter was connected in 30 days, in thousandths; null: nobody looked yet"
    )
    state: str = told("only a LISTED one is matched", **names_of(OfferState))
    region: str = told("where it says it is")
    labels: dict[str, str] = told("the provider's own words, by name")
    isolation: list[Isolation] = told("what workloads can be run in")
    trust: int = told("0 to 100, by the market's operator")
    core_rate_micro: int = told("micro-lovelace per core-second; 0: cores are not rented alone")
    gpu_rates_micro: dict[str, int] = told("micro-lovelace per GPU-second, by model")
    fee_bps: int = told("the fee of settling, in hundredths of a per cent of what is claimed")
    tick_ms: int = told("time between two receipts, ms")
    close_period_ms: int = told("how long a channel stays claimable once it is closed, ms")
    keep_most_ms: int = told(
        "the longest that an idle channel is kept open for its consumer, ms; 0: none is"
    )
    minimum: int = told(
        "the least that a job on a new channel must be able to cost, lovelace; 0: it serves all"
    )
    allowance: int = told(
        "the most that is served on a new channel before a block holds it, lovelace; 0: nothing"
    )
    payout_address: str = told("where the provider is paid, Bech32")
    expected_start: ExpectedStart | None = maybe(
        "of the image that was asked for; null: nobody can say"
    )
    cpu: Processor = told("its CPU")
    memory_mib: int = told("memory, MiB")
    disk_mib: int = told("disk, MiB")
    gpus: list[Device] = told("its devices")
    simulated: bool = told("no real host: on a devnet only")
    windows: list[Maintenance] = told("planned maintenance")
    seen_at_ms: int = told("when its adapter was last heard, ms since 1970, UTC")
    away_since_ms: int = told("since when its adapter is not connected, ms; 0 while it is")
    egress: bool = told("a job that asks may connect out")
    disk_rate_micro: int = told(
        "of volumes, disk that outlives a job: micro-lovelace per GB-second; 0: none are rented"
    )
    volume_keep_ms: int = told("how long a volume is kept unpaid in all, ms")
    relay_free_ms: int = told(
        "how long a Cardano relay may run here unbilled for want of a tip, ms, beside a tenth of"
        " what was billed; 0: no job with `relay` is taken"
    )
    direct_ports: int = told(
        "how many ports of workloads, at an address of the provider's own, its host opens; 0: none"
    )
    cluster_free_ms: int = told(
        "how long a cluster's member may wait here unbilled for others, ms; 0: none is taken"
    )
    mesh: bool = told("a cluster's members here can have a network of their own")
    store: bool = told("a cluster's members here can have a folder that outlives them")
    allow_root: bool = told("a workload may be root in its container")


class Offers(Answer):
    """A page of offers."""

    items: list[Offer] = told("by id")
    next: str | None = Next


class ProviderRow(Answer):
    """A provider, in short."""

    id: str = told("its Ed25519 key, hex")
    name: str = told("what it calls itself: its label `name`; nobody checks it")
    offer: str = told("the id of its offer")
    state: str = told("its offer's", **names_of(OfferState))
    connected: bool = told("whether its adapter is connected")
    region: str = told("where it says it is")
    devices: dict[str, int] = told("how many devices by model, and how many `cores` alone")
    simulated: bool = told("no real host: on a devnet only")
    earned: int = told("what its ended leases owed it, lovelace")
    leases: int = told("leases it ever had")
    lost: int = told("leases that ended because it was gone")
    uptime_milli: int | None = told(
        "how often its adapter was connected in 30 days, in thousandths; null: nobody looked yet"
    )
    since_ms: int = told("when it first posted, ms since 1970, UTC")
    seen_at_ms: int = told("when its adapter was last heard, ms since 1970, UTC")
    away_since_ms: int = told("since when its adapter is not connected, ms; 0 while it is")


class Providers(Answer):
    """A page of providers."""

    items: list[ProviderRow] = told("by key")
    next: str | None = Next


class Losses(Answer):
    """How a provider fared among the last jobs that somebody got."""

    text: str = told("the same in a sentence")
    asked: int = told("jobs that somebody got")
    won: int = told("of these, its own")
    lost: int = told("of these, another's")
    reasons: dict[str, int] = told("lost jobs, by what they were lost on")


class Presence(Answer):
    """How often a provider's adapter was connected on one day."""

    at_ms: int = told("the day's beginning, ms since 1970, UTC")
    looks: int = told("how often the market looked, once a minute")
    uptime_milli: int = told("how often it was connected then, in thousandths of the looks")


class Provider(Answer):
    """A provider, as the market's book has it."""

    id: str = told("its Ed25519 key, hex")
    name: str = told("what it calls itself: its label `name`; nobody checks it")
    region: str = told("where it says it is")
    offer: Offer = told("what it offers")
    connected: bool = told("whether its adapter is connected")
    suspended: bool = told("whether the operator took it off the market")
    leases: int = told("leases it ever had")
    running: int = told("leases that have not ended")
    lost: int = told("leases that ended because it was gone")
    uptime_milli: int | None = told(
        "how often its adapter was connected in 30 days, in thousandths; null: nobody looked yet"
    )
    uptime: list[Presence] = told(
        "the same by day, the oldest first; a day on which it had withdrawn has no row"
    )
    since_ms: int = told("when it first posted, ms since 1970, UTC")
    earned: int = told("what its ended leases owed it, lovelace")
    why_lost: Losses | None = told("null while it takes no part in matching")


class ModelRow(Answer):
    """The listed devices of one model, or the cores."""

    model: str = told("as the driver names it; `cores` for cores that are rented alone")
    resource: Resource = told("what is metered")
    vram_mib: int = told("memory of the first one, MiB; 0 for cores")
    count: int = told("how many are listed")
    free: int = told("how many are wholly free")
    simulated: bool = told("whether the first one is no real device")
    rate_micro_min: int = told("the lowest price, micro-lovelace per GPU-, core- or GB-second")
    rate_micro_max: int = told("the highest price, micro-lovelace per GPU-, core- or GB-second")


class Models(Answer):
    """All models there are."""

    items: list[ModelRow] = told("by model")
    next: str | None = Next


class Trade(Answer):
    """A price that was agreed."""

    device: str = told("what was rented, in words")
    resource: Resource = told("what is metered")
    rate_micro: int = told("micro-lovelace per GPU-, core- or GB-second")
    units_milli: int = told("how much of it, in thousandths of a GPU or core")
    at_ms: int = told("when, ms since 1970, UTC")
    simulated: bool = told("no real device")


class Trades(Answer):
    """Recent trades."""

    items: list[Trade] = told("newest first")
    next: str | None = Next


class Stats(Answer):
    """The market in numbers."""

    offers: int = told("listed offers")
    gpus: int = told("devices of these")
    gpu_milli_held: int = told("what is rented of these, in thousandths of a device")
    core_milli: int = told("their cores, in thousandths")
    core_milli_held: int = told("what is rented of these, alone or with a device, in thousandths")
    jobs_running: int = told("jobs that run, or are paused")
    jobs_waiting: int = told("jobs without a place")
    jobs_all: int = told("jobs ever posted")


class Use(Answer):
    """How much was listed and held: means over an hour or a day, rounded down."""

    at_ms: int = told("its beginning, ms since 1970, UTC")
    looks: int = told("over how many looks, one a minute: few where the market stood still")
    offers_milli: int = told("listed offers, in thousandths")
    gpu_milli: int = told("listed devices, in thousandths of a device")
    gpu_milli_held: int = told("of these, held by leases")
    core_milli: int = told("listed cores, in thousandths of a core")
    core_milli_held: int = told("of these, held by leases, alone or with a device")
    jobs_running_milli: int = told("jobs that ran or were paused, in thousandths")
    jobs_waiting_milli: int = told("jobs without a place, in thousandths")


class Utilisation(Answer):
    """How much of the market was in use."""

    items: list[Use] = told("the oldest first")
    next: str | None = Next
