"""Whether the adapter runs a job under proposed terms: filters in order, each with a stable code.

The cheapest and most damning checks stand first: terms that are not ours or of another network need
no look at the devices; the devices come before the channel, because a rematch helps there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from adapter.core import clusters, debt, direct_ports, registries, routed, volumes
from adapter.core.state import Now, Own, State
from adapter.core.workload import runtime_for
from marketplace.domain.errors import Refusal
from marketplace.domain.metering.kinds import KINDS
from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import Terms, close_period_floor
from marketplace.domain.protocol import wire
from marketplace.domain.supply import grant as grants
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.hardware import Gpu
from marketplace.domain.supply.offer import Offer
from marketplace.domain.units import most_owed
from marketplace.domain.work.cluster_store import FOLDER, OF_STORE, TOLD_STORE
from marketplace.domain.work.job import TOLD_MESH_ADDRESS, JobSpec
from marketplace.domain.work.workload import EgressMode, WorkloadSpec

DISK_DEFAULT_MIB: Final = 1024
SHM_MOST_MIB: Final = 8192
MEMORY_LEAST_MIB: Final = 6  # the least that a container takes


@dataclass(frozen=True, slots=True)
class Declined:
    """No, with a stable code, and what the consumer can do where somebody knows it."""

    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Yes: these terms, with these devices, cores, memory and disk."""

    terms: Terms
    grant: Grant


Rule = tuple[bool, str, str]
Asked = wire.LeaseProposed | wire.RouteProposed


def check(state: State, own: Own, proposal: wire.LeaseProposed, now: Now) -> Plan | Declined:
    """The plan for *proposal*, or the first rule that it breaks."""
    try:
        terms = Terms.decode(proposal.terms)
    except Refusal as refusal:
        return Declined(refusal.code, refusal.message, refusal.remedy)
    plan = fit(state, own, terms, proposal, now)
    if isinstance(plan, Declined):
        return plan
    for holds, code, why in (*_channel_rules(state, terms), *_worth_rules(state, own, terms)):
        if not holds:
            return Declined(code, why)
    owing = debt.refusal(state, terms, now)
    return plan if owing is None else Declined(*owing)


def fit(state: State, own: Own, terms: Terms, proposal: Asked, now: Now) -> Plan | Declined:
    """The same for all that does not depend on the channel which pays."""
    job = proposal.job
    for rules in (_identity, _bargain, _openness):
        for holds, code, why in rules(state, own, terms, proposal, now):
            if not holds:
                return Declined(code, why)
    try:
        grant = grants.find(job, own.offer.host, terms)
    except Refusal as refusal:
        return Declined("DEVICES_UNKNOWN", refusal.message, refusal.remedy)
    for rule in (_device_rules, _room_rules):
        for holds, code, why in rule(state, own, terms, grant):
            if not holds:
                return Declined(code, why)
    try:
        job.check_isolation()
        job.check_volume()
        job.check_cluster()
        workload(own, terms, job, grant, files={file.dst: b"" for file in job.files})
    except Refusal as refusal:
        return Declined(refusal.code, refusal.message, refusal.remedy)
    return Plan(terms, grant)


def _identity(state: State, own: Own, terms: Terms, proposal: Asked, now: Now) -> Iterator[Rule]:
    """The terms name this adapter, this network and this job."""
    offer = own.offer
    yield terms.magic == offer.magic, "WRONG_NETWORK", f"terms are for network {terms.magic}"
    yield (
        terms.close_period_ms >= close_period_floor(terms.magic),
        "CLOSE_PERIOD_SHORT",
        f"close_period_ms is {terms.close_period_ms}, too short on a public network",
    )
    known = terms.lease in state.leases or any(
        terms.lease in channel.leases for channel in state.channels.values()
    )
    yield (
        terms.lease == proposal.lease and not known,
        "LEASE_CONFLICT",
        "the terms name another lease, or the lease is known already",
    )
    yield (
        terms.adapter_vk == own.signer.verify_key
        and terms.provider == offer.provider
        and terms.adapter_vkh == offer.adapter_vkh,
        "NOT_OURS",
        "the terms name another adapter's keys",
    )
    yield terms.payout == offer.payout, "PAYOUT_DIFFERS", "the payout is not the owner's"
    yield terms.work == proposal.job.hash, "WORK_DIFFERS", "the terms are for another job"
    yield now.wall_ms < terms.expires_at_ms, "QUOTE_EXPIRED", "the quote has expired"


def _bargain(state: State, own: Own, terms: Terms, proposal: Asked, now: Now) -> Iterator[Rule]:
    """The rules of the offer are those of the terms, and the ceiling is sane."""
    offer, limits = own.offer, own.limits
    same = (
        ("tick_ms", terms.tick_ms, offer.tick_ms),
        ("grace_ms", terms.grace_ms, offer.grace_ms),
        ("pause_limit_ms", terms.pause_limit_ms, offer.pause_limit(terms.resource)),
        ("close_period_ms", terms.close_period_ms, offer.close_period_ms),
        ("fee_bps", terms.fee_bps, offer.fee_bps),
        ("asset", terms.asset, offer.asset),
    )
    for name, theirs, ours in same:
        yield theirs == ours, "TERMS_DIFFER", f"{name} is {theirs!r}, the offer says {ours!r}"
    most = most_owed(terms.max_duration_ms, terms.units_milli, terms.rate_micro)
    yield (
        terms.tick_owed() <= terms.ceiling <= max(most, terms.tick_owed()),
        "CEILING_ODD",
        f"a ceiling of {terms.ceiling} is less than a tick or more than the longest run costs",
    )
    yield (
        0 < terms.max_duration_ms <= limits.max_lease_ms,
        "TOO_LONG",
        f"leases last at most {limits.max_lease_ms} ms here",
    )


def _openness(state: State, own: Own, terms: Terms, proposal: Asked, now: Now) -> Iterator[Rule]:
    """The owner takes new work, of this kind, now."""
    yield not state.draining, "DRAINING", "the adapter drains: no new leases"
    yield not state.unable, "FEES_SHORT", f"the provider cannot pay for settling: {state.unable}"
    until = now.wall_ms + terms.max_duration_ms
    for window in own.offer.windows:
        clear = until < window.start_ms or now.wall_ms >= window.end_ms
        yield clear, "MAINTENANCE", f"maintenance from {window.start_ms}: {window.notice}"
    yield (
        len(state.leases) < own.limits.max_leases,
        "FULL",
        f"{own.limits.max_leases} leases are held already",
    )
    job = proposal.job
    is_routed = isinstance(proposal, wire.RouteProposed)
    yield from volumes.rules(state, own, terms, job, is_routed)
    if job.is_volume:
        return
    here = not job.image or job.image.startswith(
        "sha256:"
    )  # no image, or one that lies on the host
    why = "" if here else registries.refused(job.image, own.limits.images, own.limits.market)
    yield not why, "IMAGE_REFUSED", why
    yield from _network(own, job)
    yield from _relay(own, job)
    yield from direct_ports.rules(state, own, job)
    yield from clusters.rules(state, own, job, is_routed)
    yield (
        runtime_for(job.placement.isolation, own.offer.isolation) is not None,
        "ISOLATION",
        f"this host offers {', '.join(own.offer.isolation)}",
    )


def _relay(own: Own, job: JobSpec) -> Iterator[Rule]:
    """Who takes a relay says for how long it may be unbilled."""
    yield (
        job.relay is None or own.limits.relay_free_ms > 0,
        "RELAYS_REFUSED",
        "no relays are taken here: take a provider whose offer says relay_free_ms",
    )


def _network(own: Own, job: JobSpec) -> Iterator[Rule]:
    """Nothing connects out but what asked to, where the owner allows it.

    A plain process has the host's whole network or none, so its ports come with all of it; but for
    a member of a mesh, which has that network alone.
    """
    asked, contained = job.egress.mode, job.placement.isolation.takes_image
    shared = contained or own.limits.host_network
    yield (
        asked is EgressMode.NONE or (own.offer.egress and shared),
        "EGRESS_REFUSED",
        "nothing connects out from here: leave egress out, or take another provider",
    )
    meshed = job.seat is not None  # its ports are called from inside, by the adapter alone
    yield (
        contained or not meshed or asked is EgressMode.NONE,
        "EGRESS_REFUSED",
        "a plain process in a mesh has no network beside it: use an image",
    )
    yield (
        contained or asked is not EgressMode.LIST,
        "EGRESS_REFUSED",
        "a plain process is not held to a list: use an image",
    )
    yield (
        contained or not job.ports or meshed or own.limits.host_network,
        "PORTS_REFUSED",
        "plain processes get no network here: use an image",
    )
    yield (
        contained or not job.ports or meshed or asked is EgressMode.OPEN,
        "PORTS_REFUSED",
        "a plain process's ports come with egress: open: ask for it, or use an image",
    )


def _device_rules(state: State, own: Own, terms: Terms, grant: Grant) -> Iterator[Rule]:
    """Each device is priced, healthy and free."""
    offer = own.offer
    if not KINDS[terms.resource].devices:
        rate = offer.rate(terms.resource)
        unit = KINDS[terms.resource].word
        yield rate > 0, "CORES_NOT_OFFERED", f"a {unit} is not rented alone here"
        yield terms.rate_micro >= rate, "PRICE_BELOW", f"a {unit} is {rate}"
        return
    for uuid in grant.gpus:
        gpu = offer.host.gpu(uuid)
        if gpu is None:
            yield False, "DEVICES_UNKNOWN", f"{uuid} is gone"
            return
        rate = offer.rate(terms.resource, gpu.model)
        yield rate > 0, "PRICE_MISSING", f"{gpu.model} has no price"
        yield terms.rate_micro >= rate, "PRICE_BELOW", f"{gpu.model} is {rate} now"
        yield gpu.rentable, "DEVICE_UNHEALTHY", f"{uuid}: {gpu.health.value} {gpu.health_note}"
        yield _free(state, terms, gpu, grant.share), "DEVICE_BUSY", f"{uuid} is taken"


def _free(state: State, terms: Terms, gpu: Gpu, share: int) -> bool:
    holders = [x for x in state.leases.values() if x.occupies and gpu.uuid in x.grant.gpus]
    held = [(x.terms.consumer_vkh, x.grant.share) for x in holders]
    return gpu.takes(share, terms.consumer_vkh, held)


def _room_rules(state: State, own: Own, terms: Terms, grant: Grant) -> Iterator[Rule]:
    """Cores, memory and disk are still there beside what is leased."""
    host = own.offer.host
    held = [lease.grant for lease in state.leases.values() if lease.occupies]
    rows = (
        ("cpu", grant.cpu_milli, host.cpu.milli - sum(g.cpu_milli for g in held)),
        ("memory", grant.memory_mib, host.memory_mib - sum(g.memory_mib for g in held)),
        ("disk", grant.disk_mib, host.disk_mib - sum(g.disk_mib for g in held)),
    )
    for name, ask, free in rows:
        yield ask <= free, "NO_ROOM", f"{name}: {ask} asked, {free} free"


def _channel_rules(state: State, terms: Terms) -> Iterator[Rule]:
    """A session key that was ever seen is good for its own open channel only.

    Whether that channel can pay is looked at when the terms come back signed: its consumer tops it
    up for the quote that it accepts, and for no other.
    """
    fresh = terms.session_vk not in state.past.keys
    yield fresh, "CHANNEL_OVER", "this channel was used and is over"
    routed_key = terms.session_vk in routed.keys(state)
    yield not routed_key, "CHANNEL_DIFFERS", "this is the key of a lease that a router pays"
    known = state.channels.get(terms.session_vk)
    if known is None:
        return
    usable = known.stage in USABLE
    ending = known.end_asked or known.settling
    yield usable and not ending, "CHANNEL_OVER", "this channel was used and is over"
    same = known.hop is None and known.agreed.consts() == terms.consts()
    yield same, "CHANNEL_DIFFERS", "the channel has other constants"
    yield not known.starved, "CLAIM_STARVED", "what is due on this channel does not come on chain"


def _worth_rules(state: State, own: Own, terms: Terms) -> Iterator[Rule]:
    """The channel may bring what ending it costs us.

    What its consumer signed for and got counts, and this lease's ceiling: nothing that was only
    said of leases to come.
    """
    known = state.channels.get(terms.session_vk)
    spent = 0 if known is None else known.due
    yield (
        own.offer.worth(terms.ceiling, spent),
        "BELOW_MINIMUM",
        f"a job costs at most {terms.ceiling} and the channel brought {spent}: below the offer's"
        f" minimum of {own.offer.minimum}",
    )


def _simulated(offer: Offer, uuid: str) -> bool:
    gpu = offer.host.gpu(uuid)
    return gpu is not None and gpu.simulated


def _told(job: JobSpec) -> dict[str, str]:
    """The job's own environment, and what its adapter says."""
    mesh = {TOLD_MESH_ADDRESS: at} if (at := job.mesh_address) else {}
    return {**job.env, **mesh, **({TOLD_STORE: FOLDER} if job.store is not None else {})}


def workload(
    own: Own,
    terms: Terms,
    job: JobSpec,
    grant: Grant,
    secrets: Callable[[], dict[str, str]] = dict,
    files: dict[str, bytes] | None = None,
) -> WorkloadSpec:
    """What the runtime is asked to run; refuses what no adapter runs (``WorkloadRefused``).

    *secrets* opens the sealed values; it is called once, when the workload is about to start.
    """
    offer = own.offer
    of_host = OF_STORE if job.store is not None else frozenset[str]()
    # A simulated device cannot be handed into a container; it is metered all the same.
    real = tuple(uuid for uuid in grant.gpus if not _simulated(offer, uuid))
    spec = WorkloadSpec(
        lease=terms.lease,
        image=job.image,
        command=job.command,
        env=_told(job),
        secrets={name: value for name, value in secrets().items() if name not in of_host},
        cpu_milli=max(grant.cpu_milli, 1),  # of a volume none
        memory_mib=max(grant.memory_mib, MEMORY_LEAST_MIB),
        disk_mib=grant.disk_mib or DISK_DEFAULT_MIB,
        shm_mib=max(16, min(grant.memory_mib // 2, SHM_MOST_MIB)),
        gpus=real,
        files=files or {},
        outputs=job.outputs,
        ports=tuple(port.port for port in job.ports),
        volumes=job.volumes,
        root_allowed=offer.allow_root,
        egress=job.egress,
        mesh=job.seat,
        store=job.store is not None,
        labels={"job": terms.job},
        stop_grace_ms=own.limits.stop_grace_ms,
    )
    if job.image:
        spec.pinned_image()
    return spec
