"""What is to run: jobs, gangs, the room that is made for them, and what they left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.preemption import PreemptionState
from marketplace.market.base.records.record import Json, Record


@dataclass(frozen=True)
class Job(Record):
    """A consumer's job; *needs* names what the consumer must bring before it can go on."""

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {
            "account", "api_key", "name", "kind", "spec", "created_ms", "consumer_vkh", "gang",
            "hop",
        }
    )  # fmt: skip
    id: str
    account: str
    api_key: str
    name: str
    kind: str
    spec: Json
    consumer_vkh: bytes
    channels: list[str]
    state: JobState
    created_ms: int
    updated_ms: int
    session_vk: bytes  # the fresh key for the next channel; empty once it was used
    spares: list[str] = field(default_factory=list[str])
    priority: int = 0
    lease: str = ""
    provider: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    needs: str = ""
    retries: int = 0
    spent_before: int = 0  # owed by earlier leases of this job
    avoid: list[str] = field(default_factory=list[str])  # providers that declined or were lost
    explain: Json = field(default_factory=dict[str, Any])
    gang: str = ""  # the id that it shares with the other members of its gang
    busy: dict[str, int] = field(
        default_factory=dict[str, int]
    )  # by provider: how often it was still clearing up when it was asked
    not_before_ms: int = 0  # no provider is asked until then
    hop: bytes = b""  # to this market's router: its leases may be paid over it; empty: none
    direct: list[str] = field(default_factory=list[str])  # providers that declined a route
    version: int = 0

    @property
    def parsed(self) -> JobSpec:
        """The job as its consumer wrote it."""
        return JobSpec.from_wire(self.spec)


@dataclass(frozen=True)
class Gang(Record):
    """Jobs that are placed, and end, all together: those whose ``gang`` it is, in the order of
    their ids.

    *reason*: why its members are to end, once they are.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset({"account"})
    id: str
    account: str
    state: GangState
    reason: str = ""
    version: int = 0


@dataclass(frozen=True)
class Preemption(Record):
    """Room for a waiting job of higher priority: on which devices, and whose leases make way. One a
    job.
    """

    KEY: ClassVar[tuple[str, ...]] = ("job",)
    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"account", "offer", "gpus", "block", "victims", "created_ms", "deadline_ms", "expires_ms"}
    )
    job: str
    account: str
    state: PreemptionState
    offer: str
    gpus: list[str]
    block: int
    victims: list[str]  # leases
    created_ms: int
    deadline_ms: int  # the victims run until then at most
    expires_ms: int  # the room is kept until then
    version: int = 0


@dataclass(frozen=True)
class Event(Record):
    """Something that happened to a job, in words that both sides may read."""

    id: str
    job: str
    lease: str
    account: str
    at_ms: int
    kind: str
    detail: Json


@dataclass(frozen=True)
class LogRecord(Record):
    """Output bytes of a lease's workload from *offset*; the oldest are dropped beyond the limit."""

    KEY: ClassVar[tuple[str, ...]] = ("lease", "offset")
    lease: str
    job: str
    offset: int
    stream: str
    data: bytes
    at_ms: int = 0  # when it came in; 0: nobody noted it


@dataclass(frozen=True)
class Output(Record):
    """A file that a workload gave back; its bytes are a blob. *signature*: its provider's, hex
    (``SignedOutput``), empty where that does not sign any.
    """

    KEY: ClassVar[tuple[str, ...]] = ("job", "path")
    job: str
    lease: str
    path: str
    sha256: str
    size: int
    at_ms: int
    signature: str = ""


@dataclass(frozen=True)
class Blob(Record):
    """Content-addressed bytes that *account* put or got; the bytes lie in the blob folder."""

    KEY: ClassVar[tuple[str, ...]] = ("account", "sha256")
    account: str
    sha256: str
    size: int
    at_ms: int
