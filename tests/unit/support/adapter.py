"""One adapter's offer, a job, terms and a consumer, for tests that only decide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from adapter.core.decide import decide
from adapter.core.events import (
    Collected,
    Event,
    Exited,
    Heard,
    LinkUp,
    Measured,
    Outcome,
    Removed,
    Send,
    Sighted,
    Started,
)
from adapter.core.lifecycle import phase_of
from adapter.core.state import Lease, Limits, Now, Own, State
from adapter.core.workload import Handle, Status, Times
from marketplace.domain.isolation import Isolation
from marketplace.domain.keys import Signer
from marketplace.domain.metering.reading import Evidence, Phase, Reading
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.supply.grant import of_block
from marketplace.domain.supply.hardware import Cpu, Gpu, HostHardware
from marketplace.domain.supply.offer import Offer
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import MeshPeer
from marketplace.domain.work.parts import Gang, GpuNeed, Placement, Policy, Range, Resources
from marketplace.domain.work.workload import ExitReason, WorkloadState

ADAPTER = Signer(b"\x01" * 32)
SESSION = Signer(b"\x02" * 32)
OTHER_SESSION = Signer(b"\x03" * 32)
WALL = 1_800_000_000_000
GPU = "GPU-00000000-0000-0000-0000-000000000001"
RATE = 2_000_000_000  # 2000 lovelace per second
IMAGE = "ghcr.io/acme/train@sha256:" + "a" * 64


def offer(**changes: object) -> Offer:
    """A host with one GPU and eight cores on a devnet."""
    host = HostHardware(
        "h1", Cpu("cpu", 8, 8000), 32_768, 100_000, (Gpu(GPU, "NVIDIA H100", 81_559),)
    )
    base = Offer(
        id="offer_1",
        provider=ADAPTER.verify_key.hex(),
        magic=42,
        adapter_vkh=b"\x11" * 28,
        payout=b"\x12" * 28,
        payout_address="addr_test1…",
        host=host,
        gpu_rates={"NVIDIA H100": RATE},
        core_rate=10_000_000,
        isolation=(Isolation.PROCESS, Isolation.CONTAINER),
    )
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]  names are the caller's


def gpu_job(**changes: object) -> JobSpec:
    """A job for one whole GPU."""
    need = Resources(gpu=GpuNeed(count=Range(1, 1)))
    base = JobSpec("job", IMAGE, ("python",), (need,), policy=Policy(max_duration_ms=600_000))
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


def core_job(**changes: object) -> JobSpec:
    """A job for two cores, without an image."""
    need = Resources(cpu=Range(2000, 2000))
    base = JobSpec(
        "job", "", ("sleep", "60"), (need,), placement=Placement(isolation=Isolation.PROCESS),
        policy=Policy(max_duration_ms=600_000),
    )  # fmt: skip
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


def member_job(
    member: int = 0, *, members: int = 3, mesh: bool = False, assemble_ms: int = 60_000,
    hold_ms: int = 120_000, **changes: object,
) -> JobSpec:  # fmt: skip
    """One member of a cluster of cores that begins with two; a *mesh* needs an offer with one."""
    group = core_job(
        gang=Gang(members),
        cluster=Cluster(2, mesh, assemble_ms=assemble_ms, hold_ms=hold_ms),
        **changes,
    )
    return group.members()[member]


def terms_for(
    supply: Offer,
    job: JobSpec,
    lease: str = "lease_1",
    session: Signer = SESSION,
    **changes: object,
) -> Terms:
    """Terms as the market would propose them."""
    gpu = job.resources[0].gpu is not None
    held = of_block(job, 0, (GPU,) if gpu else ())
    units, rate = held.units_milli, supply.rate(held.resource, "NVIDIA H100") or RATE
    duration = job.policy.max_duration_ms
    base = Terms(
        magic=supply.magic,
        lease=lease,
        job="job_1",
        offer=supply.id,
        provider=supply.provider,
        adapter_vk=bytes.fromhex(supply.provider),
        adapter_vkh=supply.adapter_vkh,
        payout=supply.payout,
        session_vk=session.verify_key,
        consumer_vkh=b"\x14" * 28,
        resource=held.resource,
        rate_micro=rate,
        units_milli=units,
        tick_ms=supply.tick_ms,
        grace_ms=supply.grace_ms,
        pause_limit_ms=supply.pause_limit(held.resource),
        close_period_ms=supply.close_period_ms,
        fee_bps=supply.fee_bps,
        ceiling=owed(unit_ms(duration, units), rate),
        max_duration_ms=duration,
        asset="",
        work=job.hash,
        devices=held.hash,
        expires_at_ms=WALL + 60_000,
    )
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


def volume_job(disk_mib: int = 2048, **changes: object) -> JobSpec:
    """A volume."""
    need = Resources(cpu=Range(0), memory=Range(0), disk=Range(disk_mib))
    policy = Policy(max_duration_ms=7 * 86_400_000)
    base = JobSpec("chain", "", (), (need,), kind="volume", policy=policy)
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


@dataclass
class Bench:
    """An adapter's mind on a bench: virtual time, a consumer that pays when told to."""

    own: Own = field(default_factory=lambda: Own(offer(), ADAPTER, Limits()))
    state: State = field(default_factory=State)
    boot_ms: int = 1_000_000
    boot_id: str = "boot"
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    cpu_ns: int = 0
    energy: int = 0
    capacity: int = 10_000_000_000

    @property
    def now(self) -> Now:
        """The bench's clocks."""
        return Now(WALL + self.boot_ms - 1_000_000, self.boot_ms, self.boot_id)

    def do(self, event: Event) -> Outcome:
        """Decide on one event."""
        outcome = decide(self.state, event, self.now, self.own)
        self.state = outcome.state
        self.outcomes.append(outcome)
        return outcome

    def hear(self, message: wire.Message) -> Outcome:
        """A message of the market."""
        return self.do(Heard(message))

    def lease(self, id_: str = "lease_1") -> Lease:
        """A lease that must be there."""
        return self.state.leases[id_]

    def sent(self) -> list[wire.Message]:
        """Everything that was sent so far."""
        return [e.message for o in self.outcomes for e in o.effects if isinstance(e, Send)]

    def stages(self, lease: str = "lease_1") -> list[str]:
        """The progress of a lease, stage by stage."""
        return [
            m.stage for m in self.sent() if isinstance(m, wire.LeaseProgress) and m.lease == lease
        ]

    def receipts(self) -> list[Receipt]:
        """Every receipt, in order."""
        return [m.receipt.receipt for m in self.sent() if isinstance(m, wire.ReceiptSent)]

    def propose(
        self, job: JobSpec | None = None, lease: str = "lease_1", session: Signer = SESSION,
        **changes: object,
    ) -> Outcome:  # fmt: skip
        """The market proposes *job* with these changes to the terms."""
        job = job or gpu_job()
        terms = terms_for(self.own.offer, job, lease, session, **changes)
        return self.hear(wire.LeaseProposed(lease, job, terms.encode()))

    def sign(
        self, lease: str = "lease_1", session: Signer = SESSION, tx: str = "ab" * 32
    ) -> Outcome:
        """The consumer signs."""
        held = self.lease(lease).signed
        both = SignedTerms(held.body, held.adapter_signature, session.sign(held.body))
        return self.hear(wire.LeaseSigned(lease, both, tx, {}))

    def sight(
        self, session: Signer = SESSION, stage: ChannelStage = ChannelStage.OPEN,
        limit: int | None = None,
    ) -> Outcome:  # fmt: skip
        """The chain shows the channel."""
        most = self.capacity
        return self.do(
            Sighted(session.verify_key, stage, 0, most, most if limit is None else limit)
        )

    def start(self, lease: str = "lease_1") -> Outcome:
        """Its workload runs."""
        outcome = self.do(Started(lease, handle(lease, self.now.wall_ms)))
        self.measure(lease, tick=False)
        return outcome

    def running(self, job: JobSpec | None = None, **changes: object) -> Bench:
        """A lease from its proposal to its running workload."""
        self.do(LinkUp(orders=True))
        self.propose(job, **changes)  # pyright: ignore[reportArgumentType]  names are the caller's
        self.sign()
        self.sight()
        self.start()
        return self

    def reading(self, lease: str, phase: Phase | None = None) -> Reading:
        """What the lease's one meter shows now."""
        held = self.lease(lease)
        assert held.handle is not None
        return Reading(
            at_ns=self.boot_ms * 1_000_000,
            mono_ns=self.boot_ms * 1_000_000,
            wall_ms=self.now.wall_ms,
            boot_id=self.boot_id,
            device=held.meters[0].device,
            workload=held.handle.id,
            started_ms=held.handle.started_ms,
            phase=phase or phase_of(held, running=True),
            evidence=Evidence(
                energy_mj=self.boot_ms,
                cpu_ns=self.boot_ms * 1_000_000,
                util_permille=900,
                written_kib=self.boot_ms if held.job.is_volume else None,
            ),
        )

    def measure(self, lease: str = "lease_1", tick: bool = True) -> Outcome:
        """A reading now."""
        return self.do(Measured(lease, (self.reading(lease),), tick))

    def tick(self, lease: str = "lease_1", ms: int = 1000, pay: bool = True) -> Outcome:
        """Let *ms* pass, read, and answer the receipt."""
        self.boot_ms += ms
        outcome = self.measure(lease)
        if pay:
            self.pay()
        return outcome

    def order(
        self, verb: Verb, *peers: MeshPeer, lease: str = "lease_1", version: int = 0,
        session: Signer = SESSION,
    ) -> Outcome:  # fmt: skip
        """Its consumer's next order, or that of *version*."""
        number = version or self.lease(lease).member.version + 1
        signed = SignedOrder.sign(session, ClusterOrder(lease, number, verb, peers))
        return self.hear(wire.OrderSent(lease, signed))

    def pay(self, cumulative: int | None = None, session: Signer = SESSION) -> Outcome:
        """The consumer's voucher: what is owed, or *cumulative*."""
        owed_now = self.state.channels[session.verify_key].owed
        voucher = Voucher.sign(session, owed_now if cumulative is None else cumulative)
        return self.hear(wire.VoucherSent("lease_1", voucher))

    def exit(
        self, lease: str = "lease_1", reason: ExitReason = ExitReason.COMPLETED, code: int = 0
    ) -> Outcome:
        """The workload ends now."""
        times = Times(self.now.wall_ms, self.now.wall_ms, code)
        last = (self.reading(lease, Phase.EXITED),)
        return self.do(Exited(lease, Status(WorkloadState.EXITED, times, reason), last))

    def clear(self, lease: str = "lease_1") -> None:
        """Outputs collected, traces removed."""
        self.do(Collected(lease))
        self.do(Removed(lease))


def handle(lease: str, started_ms: int) -> Handle:
    """A workload's handle."""
    return Handle("docker", lease, f"container-{lease}", started_ms, cgroup=lease)
