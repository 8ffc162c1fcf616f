"""Answers about receipts, invoices and channels."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.routing import InvoiceHop, InvoiceRoute
from marketplace.api.schemas.shape import Answer, Next, maybe, names_of, told
from marketplace.api.schemas.spec import Spec, SpecV1
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.transaction import TxState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState


class Receipt(Answer):
    """A receipt with its exact signed bytes."""

    seq: int = told("its number in the channel")
    lease: str = told("the lease's id")
    tick: int = told("its number in the lease, from 1")
    unit_ms: int = told("metered in the lease so far, ms of one whole GPU or core")
    lease_owed: int = told("owed by the lease so far, lovelace")
    channel_owed: int = told("owed over the channel so far, lovelace")
    final: bool = told("the lease's last")
    at_ms: int = told("when it was made, ms since 1970, UTC")
    body: str = told("the signed bytes, hex")
    signature: str = told("the provider's signature over them, hex")


class Receipts(Answer):
    """A page of receipts."""

    items: list[Receipt] = told("by lease and tick")
    next: str | None = Next


class Voucher(Answer):
    """The consumer's promise, which its channel's script pays out."""

    cumulative: int = told("all that it promised over the channel, lovelace")
    signature: str = told("the session key's signature, hex")


class InvoiceLease(Answer):
    """What a lease's cost is recomputed from."""

    lease: str = told("the lease's id")
    state: str = told("where it stands", **names_of(LeaseState))
    reason: str = told("why it ended; empty until then")
    terms: str = told("the terms' exact bytes, hex")
    adapter_signature: str = told("the provider's signature over them, hex")
    session_signature: str = told("the consumer's signature over them, hex")
    channel: str = told("the channel's session key, hex")
    channel_tx: str = told("the transaction that opens the channel, hex; empty: reused")
    device: str = told("what was rented, in words")
    simulated: bool = told("no real device")
    route: InvoiceRoute | None = told("of a routed lease; null: its channel pays")


class InvoiceChannel(Answer):
    """A channel's whole chain of receipts, and its greatest voucher."""

    session_vk: str = told("the channel's session key, hex")
    provider: str = told("the provider's key, hex")
    open_tx: str = told("the transaction that opened it, hex; empty: not told")
    settled_tx: str = told("the transaction that ended it, hex; empty: not yet")
    receipts: list[Receipt] = told("all of the channel, by number, of other jobs as well")
    voucher: Voucher | None = told("the greatest; null: none")


class Invoice(Answer):
    """Everything that an invoice is recomputed from; nothing in it was computed by the market."""

    job: str = told("the job's id")
    name: str = told("what its consumer calls it")
    state: str = told("the job's", **names_of(JobState))
    reason: str = told("why the job ended; empty until then")
    spec: Spec | SpecV1 = told("what was run: its hash is in the terms")
    magic: int = told("the Cardano network's magic number")
    leases: list[InvoiceLease] = told("the signed leases of the job, in order")
    channels: list[InvoiceChannel] = told("that they were paid over; receipts of routed ones")
    hops: list[InvoiceHop] = told("the account's hops to the router that routed ones are paid over")


class LeaseEvidence(Answer):
    """The same of one lease, for either side: of its hops the one that is its own."""

    job: str = told("the job's id")
    leases: list[InvoiceLease] = told("this lease; none while nothing was signed for it over a hop")
    channels: list[InvoiceChannel] = told("its channel, or a routed lease's receipts")
    hops: list[InvoiceHop] = told("the side's own")


class ChannelLease(Answer):
    """A lease that a channel pays."""

    id: str = told("the lease's id")
    job: str = told("the job's id")
    state: str = told("where it stands", **names_of(LeaseState))
    ceiling: int = told("the most it can cost, lovelace")


class OnChain(Answer):
    """A channel as a block shows it."""

    state: ChannelStage = told("the script's stage; ENDED: it has no output any more")
    value: int = told("what lies in it, lovelace")
    claimed: int = told("what was claimed from it, lovelace")
    ref: str = told("its output, `txid#index`; once it has ended, the transaction that ended it")
    depth: int = told("blocks on top; once it has ended, the height of the block")
    expire_at_ms: int = told("when the rest may be sent home, ms since 1970; 0: not closing")
    agreed: bool = told("it lives, and its constants are those of the terms")


class Channel(Answer):
    """A channel, its greatest voucher and what the last receipt owes."""

    session_vk: str = told("its session key, hex: its name")
    provider: str = told("the provider's key, hex")
    state: ChannelStage = told("what was seen last")
    open_tx: str = told("the transaction that opens it, hex; empty: not told")
    settled_tx: str = told("the transaction that ended it, hex; empty: not yet")
    claimed: int = told("what was claimed from it, lovelace")
    created_at_ms: int = told("ms since 1970, UTC")
    owed: int = told("what its last receipt says, lovelace")
    voucher: Voucher | None = told("the greatest; null: none")
    end_asked: bool = told("the consumer has agreed to its end")
    leases: list[ChannelLease] = told("that it pays")
    terms: str = told("the first lease's terms, exact bytes, hex")
    chain: OnChain | None = maybe(
        "when one channel is asked for and a chain is there: null while no block shows it"
    )


class Channels(Answer):
    """All channels of the account, up to 1,000."""

    items: list[Channel] = told("newest first")
    next: str | None = Next


class Step(Answer):
    """What an unsigned transaction does."""

    step: Literal["open", "top up", "close"] = told("the step of the channel")
    session_vk: str = told("the channel's session key, hex")
    amount: int = maybe("what it puts into the channel, lovelace; absent in a close")


class Unsigned(Answer):
    """A transaction for a wallet to sign."""

    tx: str = told("its id, hex")
    cbor: str = told("its exact bytes, hex: witnesses go into these and no others")
    fee: int = told("lovelace")
    summary: Step = told("what it does; the signer decodes and compares")


class Submitted(Answer):
    """A transaction that was given its witnesses."""

    tx: str = told("its id, hex")
    state: str = told("where it stands", **names_of(TxState))
