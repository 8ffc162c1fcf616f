"""Answers about jobs: their quotes, what happens to them, and what they give back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from marketplace.api.schemas.jobfile import JobFile
from marketplace.api.schemas.ports import JobPort
from marketplace.api.schemas.renewals import Renewal
from marketplace.api.schemas.routing import QuotedRoute
from marketplace.api.schemas.shape import Answer, Next, maybe, names_of, told
from marketplace.api.schemas.spec import Spec, SpecV1
from marketplace.api.schemas.supply import ExpectedStart, Offer
from marketplace.domain.metering.kinds import Resource
from marketplace.domain.money.transaction import TxState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState


class Other(Answer):
    """Another offer that would do."""

    offer: str = told("its id")
    provider: str = told("its provider's key, hex")
    rate_micro: int = told("micro-lovelace per GPU-, core- or GB-second")
    why: str = told("how it differs, in words")


_STARTS = "what its start is expected to take; null: nobody can say, or it runs no image"


class JobFees(Answer):
    """What the chain takes for a job, by its parameters now: at most this, as long as one or two
    outputs of a wallet pay."""

    consumer: int = told("of the consumer, for opening a channel; 0 on one that is open, lovelace")
    provider: int = told("of the provider, for ending the channel alone, lovelace")
    together: int = told(
        "of whoever ends it with nine others', who charges nobody for it, lovelace"
    )
    top_up: int = told("of the consumer, if an open channel is too small for the job, lovelace")
    smallest: int = told(
        "what the job must be able to cost to make sense: below it the chain takes more than its"
        " provider gets, or its provider does not serve it, lovelace"
    )


class RouteFees(Answer):
    """What this market's router would take for a job, in place of a channel to its provider."""

    carried: bool = told(
        "it has a channel to this provider and carries jobs of this price; whether there is room on"
        " it at the moment, a posted job's quote says"
    )
    route_bps: int = told("its fee, in hundredths of a per cent of what is owed")
    fee: int = told("the same if the job costs all that it can, lovelace")
    hop_fee: int = told(
        "once, for a consumer's new channel to it, lovelace; the network takes for opening it what"
        " it takes for one to a provider"
    )


class MemberQuote(Answer):
    """What a job, or a member of a gang, would cost, and where."""

    offer: str = told("the offer's id")
    provider: str = told("the provider's key, hex")
    device: str = told("what would be rented, in words")
    simulated: bool = told("no real device")
    resource: Resource = told("what is metered")
    rate_micro: int = told("micro-lovelace per GPU-, core- or GB-second")
    units_milli: int = told("how much of it, in thousandths of a GPU or core")
    block: int = told("which of the job's resource blocks, from 0")
    ceiling: int = told("the most it can cost, lovelace")
    fee_bps: int = told("the fee of settling, in hundredths of a per cent of what is claimed")
    minimum: int = told(
        "the least that a job on a new channel must be able to cost there, lovelace; 0: any does"
    )
    allowance: int = told(
        "the most that is served there on a new channel before a block holds it, lovelace; 0: a"
        " block is waited for"
    )
    fees: JobFees | None = told(
        "what the chain takes for it on a new channel; null where no chain says so, and in a token"
    )
    tick_ms: int = told("time between two receipts, ms")
    expected_start: ExpectedStart | None = told(_STARTS)


class JobDryRun(MemberQuote):
    """What a job would cost now; nothing is reserved."""

    routed: RouteFees | None = told(
        "what it would be over this market's router; null: it has none, or the price is in a token"
    )
    alternatives: list[Other] = told("the cheapest other offers")
    job: JobFile = maybe("what was asked, as a job file says it; not within `Explanation`")


class GangDryRun(Answer):
    """What a gang would cost now; nothing is reserved."""

    members: list[MemberQuote] = told("one for each member")
    ceiling: int = told("the most that all can cost, lovelace")
    offers: int = told("how many offers they would be on")
    job: JobFile = maybe("what was asked, as a job file says it; not within `Explanation`")


class JobForms(Answer):
    """A job in each form in which it can be posted."""

    job: JobFile = told("as a job file says it")
    spec: Spec | SpecV1 = told("the compact form, as it is signed")
    text: str = told("the job file as YAML text")


class Relaxation(Answer):
    """A change by which the job would fit."""

    change: str = told("in words")
    hosts: int = told("how many would then fit")
    rate_micro_per_s: int = told("the lowest price among them, micro-lovelace a second")


class Refused(Answer):
    """Why a job fits nowhere now, counted."""

    text: str = told("the same in a sentence")
    hosts: int = told("how many were looked at")
    reasons: dict[str, int] = told("how many hosts fail for it, by reason")
    words: dict[str, str] = told("each reason in words, by reason")
    relaxations: list[Relaxation] = told("the nearest changes that would do")
    members: int = maybe("of a gang only: how many members would fit")


class Nothing(Answer):
    """An empty object."""

    model_config = ConfigDict(json_schema_extra={"maxProperties": 0})


class Explanation(Answer):
    """Whether a job fits now; what it would cost, or why not."""

    matches: bool = told("whether it fits")
    quote: JobDryRun | GangDryRun | None = told("what it would cost; null if it does not fit")
    explain: Refused | None = told("why it does not; null if it fits")


class Why(Answer):
    """What the quote was chosen among."""

    others: list[Other] = told("the cheapest other offers")


class Quote(Answer):
    """Everything that the payer verifies before it signs."""

    lease: str = told("the lease's id")
    terms: str = told("the terms' exact bytes, hex: these are signed")
    adapter_signature: str = told("the provider's signature over them, hex")
    provider: str = told("the provider's key, hex")
    offer: Offer | None = told("the offer; null if it is gone")
    device: str = told("what is rented, in words")
    simulated: bool = told("no real device")
    resource: Resource = told("what is metered")
    units_milli: int = told("how much of it, in thousandths of a GPU or core")
    rate_micro: int = told("micro-lovelace per GPU-, core- or GB-second")
    ceiling: int = told("the most it can cost, lovelace")
    why: Why = told("what it was chosen among")
    expected_start: ExpectedStart | None = told(_STARTS)
    fees: JobFees | None = told(
        "what the chain takes for it; null where no chain says so, and in a token"
    )
    direct: JobFees | None = told(
        "of a routed lease: what the chain would take for it on a new channel to its provider; else"
        " null"
    )
    routed: RouteFees | None = told(
        "of a lease on a channel to its provider: what it would be over this market's router; null:"
        " it has none"
    )
    expires_at_ms: int = told("until when it can be signed, ms since 1970, UTC")
    channel: Literal["reused", "fresh", "routed"] = told(
        "a channel that is open, or one to be opened; routed: the account's hop to the router pays"
    )
    session_vk: str = told("the channel's session key, hex; of a routed lease its own key")
    route: QuotedRoute | None = told("of a routed lease; null: a channel to the provider pays")


class Transaction(Answer):
    """A transaction of a job's channel."""

    id: str = told("the transaction's id, hex")
    kind: str = told("open, topup, close, claim or finish")
    state: str = told("where it stands", **names_of(TxState))
    fee: int = told("lovelace; 0 where the market did not build it")


class Job(Answer):
    """A job with its current lease, what it has cost and, while it is quoted, the quote."""

    id: str = told("its name in this market")
    name: str = told("what its consumer calls it")
    kind: Literal["job", "service", "volume"] = told(
        "a job ends by itself, a service is stopped, a volume is disk alone"
    )
    state: str = told("where it stands", **names_of(JobState))
    reason: str = told("why it ended, or was stopped; empty until then")
    message: str = told("the same in words; may be empty")
    needs: str = told("what its consumer must bring: `session_vk`; empty: nothing")
    ports: list[JobPort] = told("where its workload is reached while it is RUNNING")
    created_at_ms: int = told("ms since 1970, UTC")
    updated_at_ms: int = told("ms since 1970, UTC")
    spec: Spec | SpecV1 = told("what is to be run, as it is hashed into the terms")
    job: JobFile = told("the same as a job file says it")
    lease: str = told("its current lease; empty: none")
    leases: list[str] = told("all it ever had, in order")
    provider: str = told("the key of the provider, hex; empty: none yet")
    exit_code: int | None = told("of its workload; null: none")
    retries: int = told("how often it was placed again")
    gang: str = told("the gang that it is a member of; empty: none")
    spent: int = told("owed so far, over all leases, lovelace")
    budget: int = told("the most it may cost, lovelace")
    explain: Refused | Nothing = told("why it has no place; empty if it has one")
    simulated: bool = told("its last lease is on no real device")
    ceiling: int = told("the most its last lease can cost, lovelace")
    rate_micro: int = told("of its last lease, micro-lovelace per GPU-, core- or GB-second")
    resource: Resource | Literal[""] = told("what is metered; empty: nothing yet")
    device: str = told("what is rented, in words")
    stage: str = told("how far the provider is with its last lease")
    channel: str = told("the session key of its last lease's channel, or a routed one's own, hex")
    started_at_ms: int = told("when the workload started, ms since 1970; 0: not yet")
    finished_at_ms: int = told("when the workload was gone, ms since 1970; 0: not yet")
    unit_ms: int = told("metered in its last lease, ms of one whole GPU or core")
    ticks: int = told("receipts of its last lease")
    transactions: list[Transaction] = told("open, claims and finish, as far as the market knows")
    expected_wait_ms: int | None = told("a guess at how long it waits; null: it does not, or none")
    quote: Quote | None = told("to be signed; null unless it is QUOTED")


class Jobs(Answer):
    """A page of jobs."""

    items: list[Job] = told("newest first")
    next: str | None = Next


class Gang(Answer):
    """A gang: its members' jobs, and what they cost together."""

    id: str = told("its name in this market")
    members: list[Job] = told("in their order")
    spent: int = told("owed so far by all, lovelace")
    ceiling: int = told("the most that their last leases can cost, lovelace")
    budget: int = told("the most that all may cost, lovelace")


class Lease(Answer):
    """One job on one offer at one price."""

    id: str = told("its name in this market")
    job: str = told("the job's id")
    offer: str = told("the offer's id")
    provider: str = told("the provider's key, hex")
    state: str = told("where it stands", **names_of(LeaseState))
    reason: str = told("why it ended; empty until then")
    message: str = told("the same in words; may be empty")
    stage: str = told("how far the provider is with it")
    terms: str = told("the terms' exact bytes, hex")
    adapter_signature: str = told("the provider's signature over them, hex; empty: not yet")
    session_signature: str = told("the consumer's signature over them, hex; empty: not yet")
    channel: str = told("the channel's session key, hex; of a routed lease its own key")
    channel_tx: str = told("the transaction that opens the channel, hex; empty: not told")
    hop: str = told("the hop to the router that pays it, hex; empty: a channel to the provider")
    rate_micro: int = told("micro-lovelace per GPU-, core- or GB-second")
    ceiling: int = told("the most it can cost, lovelace")
    resource: Resource = told("what is metered")
    units_milli: int = told("how much of it, in thousandths of a GPU or core")
    gpus: list[str] = told("the rented devices' uuids")
    device: str = told("what is rented, in words")
    simulated: bool = told("no real device")
    exit_code: int | None = told("of its workload; null: none")
    owed: int = told("what it cost, once it ended, lovelace")
    created_at_ms: int = told("ms since 1970, UTC")
    expires_at_ms: int = told("until when it can be signed, ms since 1970, UTC")
    started_at_ms: int = told("when the workload started, ms since 1970; 0: not yet")
    finished_at_ms: int = told("when the workload was gone, ms since 1970; 0: not yet")
    ended_at_ms: int = told("when it was settled, ms since 1970; 0: not yet")
    settled_tx: str = told("the transaction that settled it, hex; empty: not yet")
    max_duration_ms: int = told("how long it may run in all, ms")
    renewal: Renewal | None = told("terms by which it would go on; null: none wait")
    renewal_refused: str = told("why its provider would not renew it; empty: it did not say so")


class Event(Answer):
    """Something that happened to a job."""

    id: str = told("its name; later ones are greater")
    job: str = told("the job's id")
    lease: str = told("the lease's id; empty: none")
    at_ms: int = told("when, ms since 1970, UTC")
    kind: str = told("what happened, e.g. QUOTED, STARTED, FINISHED")
    detail: dict[str, Any] = told("plain facts of that kind, e.g. `reason` or `exit_code`")


class Events(Answer):
    """A page of what happened."""

    items: list[Event] = told("oldest first")
    next: str | None = Next


class Sample(Answer):
    """What a workload used at one time; further measures are integers by name."""

    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": {"type": "integer", "description": "a measure"}}
    )
    at_ms: int = told("when, ms since 1970, UTC")


class Samples(Answer):
    """The last samples."""

    items: list[Sample] = told("oldest first")
    next: str | None = Next


class LogLine(Answer):
    """Of the stream of logs: some of what the workload printed."""

    lease: str = told("the lease's id")
    offset: int = told("of its beginning in the lease's log, bytes")
    stream: str = told("stdout or stderr")
    text: str = told("what was printed; bytes that are no UTF-8 are replaced")


class LogEnd(Answer):
    """The end of the stream of logs: the job has ended."""

    reason: str = told("why it ended")
    exit_code: int | None = told("of its workload; null: none")


class Tick(Answer):
    """Of the stream of events: the last receipt of the current lease."""

    lease: str = told("the lease's id")
    tick: int = told("its number in the lease, from 1")
    unit_ms: int = told("metered in the lease so far, ms of one whole GPU or core")
    owed: int = told("owed by the lease so far, lovelace")
    spent: int = told("owed by the job so far, over all leases, lovelace")
    at_ms: int = told("when it was made, ms since 1970, UTC")


class JobEnd(Answer):
    """The end of the stream of events: the job has ended, or no more was asked for."""

    state: str = told("where the job stands", **names_of(JobState))
    reason: str = told("why it ended; empty until then")
    exit_code: int | None = told("of its workload; null: none")


STREAMED = (LogLine, LogEnd, Tick, JobEnd)
"""What is in streams alone, so that no route brings it into the document."""


class Done(Answer):
    """What a command did."""

    exit_code: int = told("the command's")
    output: str = told("what it printed, as text")
    output_hex: str = told("the same bytes, hex")


class Output(Answer):
    """A file that the workload gave back."""

    path: str = told("where it lay")
    sha256: str = told("of its bytes, hex: its name")
    size: int = told("bytes")
    lease: str = told("the lease that it is of")
    at_ms: int = told("when it was there, ms since 1970, UTC")
    signature: str = told("""of the lease's provider, hex, over canonical CBOR of
        `["tally/output/v1", BLAKE2b-256 of the lease's terms, path, sha256, size]`;
        empty where it signs none""")


class Outputs(Answer):
    """All that a workload gave back."""

    items: list[Output] = told("by path")
    next: str | None = Next
