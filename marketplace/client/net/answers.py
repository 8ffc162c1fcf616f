"""What this client reads of a market's answers: field for field, with the units of the API.

The answers stay the maps that came, so whatever else a market says is there for programs. A class
without ``total=False`` names what every answer of its kind must have; the rest may be missing at an
older market. ``marketplace.client.net.reading`` reads them; a test holds them against OpenAPI.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from marketplace.client.net.expected import ExpectedStartAnswer


class NetworkAnswer(TypedDict, total=False):
    """The market's network; *magic* is Cardano's number of it."""

    magic: int
    chain_url: str


class ChallengeAnswer(TypedDict):
    """What is to be signed to sign in, hex."""

    message: str


class SessionAnswer(TypedDict):
    """A session of *account*."""

    token: str
    account: str


class DeviceAnswer(TypedDict):
    """A GPU of an offer: MiB, micro-lovelace a second, thousandths of it that are free."""

    model: str
    vram_mib: int
    rate_micro: int
    free_milli: int
    simulated: bool


class ProcessorAnswer(TypedDict):
    """A host's CPU; *milli*: thousandths of a core that are rented out."""

    model: str
    milli: int


class _OfferAlways(TypedDict):
    id: str
    provider: str
    region: str
    labels: dict[str, str]
    isolation: list[str]
    trust: int
    core_rate_micro: int
    cpu: ProcessorAnswer
    memory_mib: int
    disk_mib: int
    gpus: list[DeviceAnswer]
    egress: bool


class OfferAnswer(_OfferAlways, total=False):
    """Standing supply. MiB; micro-lovelace per core-second, 0: cores are not rented alone."""

    keep_most_ms: int
    relay_free_ms: int
    direct_ports: int
    away_since_ms: int
    disk_rate_micro: int
    expected_start: ExpectedStartAnswer | None


class OtherAnswer(TypedDict):
    """Another offer that would do, and how it differs, in words."""

    provider: str
    rate_micro: int
    why: str


class FeesAnswer(TypedDict):
    """What the chain takes for a job, lovelace
    (:class:`~marketplace.domain.money.chain_fees.JobFees`).
    """

    consumer: int
    provider: int
    together: int
    top_up: int
    smallest: int


class RouteFeesAnswer(TypedDict):
    """What a market's router would take for a job
    (:class:`~marketplace.domain.money.chain_fees.RouteFees`).
    """

    carried: bool
    route_bps: int
    fee: int
    hop_fee: int


class MemberQuoteAnswer(TypedDict):
    """What a job would cost, and where: micro-lovelace per GPU- or core-second, *ceiling* in
    lovelace, thousandths of a GPU or core; *minimum* and *allowance*, lovelace, as its offer states
    them; *fees*: the chain's, None where no chain says them. Markets of before state none of these.
    """

    provider: str
    device: str
    simulated: bool
    resource: str
    rate_micro: int
    units_milli: int
    ceiling: int
    minimum: NotRequired[int]
    allowance: NotRequired[int]
    fees: NotRequired[FeesAnswer | None]
    expected_start: NotRequired[ExpectedStartAnswer | None]


class JobQuoteAnswer(MemberQuoteAnswer):
    """A dry run of a job alone; *routed*: the same over the market's router, None where there is
    none. Markets of before do not state it.
    """

    routed: NotRequired[RouteFeesAnswer | None]
    alternatives: list[OtherAnswer]


class GangQuoteAnswer(TypedDict):
    """A dry run of a gang; *ceiling*: lovelace for all members together."""

    members: list[MemberQuoteAnswer]
    ceiling: int


QuoteAnswer = JobQuoteAnswer | GangQuoteAnswer


class RefusedAnswer(TypedDict, total=False):
    """Why a job fits nowhere now; empty if it has a place."""

    text: str
    hosts: int
    reasons: dict[str, int]


class ExplainAnswer(TypedDict):
    """Whether a job fits now; what it would cost, or why not."""

    matches: bool
    quote: QuoteAnswer | None
    explain: RefusedAnswer | None


class TransactionAnswer(TypedDict):
    """A transaction of a job's channel; *fee* in lovelace, 0 where the market did not build it."""

    id: str
    kind: str
    state: str
    fee: int


class PortAnswer(TypedDict):
    """A port of a job; *url* is empty where the market has no domain for addresses of their own."""

    port: int
    auth: str
    url: str


class JobAnswer(TypedDict):
    """A job as its market shows it. Money in lovelace, times in ms since 1970 (0: not yet),
    *unit_ms* in ms of one whole GPU or core. *spec* and *quote* are checked where they are used:
    by :class:`~marketplace.domain.work.job.JobSpec` and the payer.
    """

    id: str
    name: str
    kind: str
    state: str
    reason: str
    message: str
    needs: str
    ports: NotRequired[list[PortAnswer]]  # a market of before knew none
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    spec: dict[str, Any]
    lease: str
    leases: list[str]
    provider: str
    exit_code: int | None
    retries: int
    gang: str
    spent: int
    budget: int
    explain: RefusedAnswer
    simulated: bool
    ceiling: int
    rate_micro: int
    resource: str
    device: str
    channel: str
    unit_ms: int
    ticks: int
    transactions: list[TransactionAnswer]
    quote: dict[str, Any] | None


class SpendRowAnswer(TypedDict):
    """What one day, job or API key spent; lovelace, ms since 1970."""

    of: str
    name: str
    from_ms: int
    jobs: int
    owed: int


class KeyAnswer(TypedDict):
    """An API key, without its secret."""

    id: str
    name: str
    verbs: list[str]
    budget: int
    committed: int
    month_cap: int
    month_committed: int
    expires_at_ms: int
    revoked_at_ms: int


class NewKeyAnswer(KeyAnswer):
    """An API key that was just made; its *secret* is shown this once."""

    secret: str | None


class GangAnswer(TypedDict):
    """A gang and its members' jobs, in their order."""

    id: str
    members: list[JobAnswer]


class TicketAnswer(TypedDict):
    """What opens a port in one browser."""

    url: str


class LinkAnswer(TypedDict):
    """A link that opens a port until then, ms since 1970."""

    id: str
    port: int
    expires_at_ms: int


class NewLinkAnswer(LinkAnswer):
    """And the link itself; None in a repetition."""

    url: str | None


class LinksAnswer(TypedDict):
    """The links that open a port."""

    items: list[LinkAnswer]


class LeaseAnswer(TypedDict):
    """Where a lease stands, and why it ended (empty until then)."""

    state: str
    reason: str


class EventAnswer(TypedDict):
    """Something that happened to a job, at ms since 1970."""

    id: str
    job: str
    lease: str
    at_ms: int
    kind: str
    detail: dict[str, Any]


class TickAnswer(TypedDict):
    """The last receipt of a job's current lease: lovelace, and ms of one whole GPU or core."""

    lease: str
    tick: int
    unit_ms: int
    owed: int
    spent: int
    at_ms: int


class SampleAnswer(TypedDict):
    """What a workload used at ms since 1970; further measures are integers by name."""

    at_ms: int


class JobEndAnswer(TypedDict):
    """The end of a job's story."""

    state: str
    reason: str
    exit_code: int | None


StoryAnswer = EventAnswer | TickAnswer | SampleAnswer | JobEndAnswer


class LogAnswer(TypedDict):
    """Some of what a workload printed; *offset*: of its beginning in the lease's log, bytes."""

    lease: str
    offset: int
    text: str


class DoneAnswer(TypedDict):
    """What a command inside the workload did."""

    exit_code: int
    output: str


class OutputAnswer(TypedDict):
    """A file that the workload gave back: *sha256* of its bytes in hex, *size* in bytes; the
    *signature* of the provider of *lease*, hex, which a market of before does not tell.
    """

    path: str
    sha256: str
    size: int
    lease: NotRequired[str]
    signature: NotRequired[str]


class OutputsAnswer(TypedDict):
    """All that a workload gave back."""

    items: list[OutputAnswer]


class VoucherAnswer(TypedDict):
    """The greatest voucher of a channel: lovelace, and the signature in hex."""

    cumulative: int
    signature: str


class ChannelAnswer(TypedDict, total=False):
    """A channel as its market has it; *voucher* is null where there is none."""

    voucher: VoucherAnswer | None


class ReplicaAnswer(TypedDict):
    """A job of a service; *serving*: in rotation; *busy*: requests that it is answering."""

    job: str
    serving: bool
    busy: int
    state: str
    provider: str


class ServiceLoadAnswer(TypedDict):
    """Requests to a service: answered now, waiting now, all, and those without an answer."""

    busy: int
    held: int
    requests: int
    failed: int


class ServiceAnswer(TypedDict):
    """A service; *url* is empty where the market has no domain for addresses of their own."""

    name: str
    auth: str
    url: str
    replicas: list[ReplicaAnswer]
    load: ServiceLoadAnswer
