"""Channels: what the market knows of them, and unsigned transactions for wallets.

The wallet's witnesses go into the original bytes (`marketplace.chain.actions.external_wallet`); the
browser decodes and compares before it asks the wallet, so nothing here has to be believed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import Parts, PartsDep, Reader, Treasurer
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, once
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import money
from marketplace.api.schemas.names import SessionVk
from marketplace.api.schemas.requests import ChannelBody, OpenBody, WitnessBody, unhex
from marketplace.api.schemas.shape import Shape
from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import TxState
from marketplace.domain.work.lease import LeaseState
from marketplace.market.accounts import access
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import ChainAway, NoChain, QuoteGone
from marketplace.market.base.ports import Change, Ledger, UnsignedTx
from marketplace.market.base.records import Channel, Tx
from marketplace.market.jobs import jobs, views
from marketplace.market.money import settle

router = APIRouter(prefix="/v1/channels", tags=["channels"], responses=documented(*EVERYWHERE))


def ledger_of(parts: PartsDep) -> Ledger:
    """The chain; NoChain, or ChainAway while it has not come yet."""
    if parts.market.ledger is None:
        if parts.chain_fault:
            raise ChainAway(f"the chain has not answered yet: {parts.chain_fault}")
        raise NoChain("this market has no chain configured")
    return parts.market.ledger


async def owned(parts: PartsDep, who: Caller, session_vk: str) -> Channel:
    """The caller's channel; NotFound for anybody else's."""
    if len(session_vk) != 64:
        raise Malformed("a channel is named by its session key: 64 hex digits")
    found = await parts.market.store.get(Channel, unhex(session_vk, "session_vk"))
    if found is None or found.account != who.account:
        raise NotFound("no such channel")
    return found


@router.get("", summary="Your channels")
async def list_channels(
    parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(money.Channels)]:
    """With their greatest vouchers."""
    found = await parts.market.store.find(Channel, account=who.account, limit=1000)
    found.sort(key=lambda c: -c.created_ms)
    return {"items": [await views.channel_view(parts.market, c) for c in found], "next": None}


@router.get("/{session_vk}", summary="One channel")
async def get_channel(
    session_vk: SessionVk, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(money.Channel)]:
    """What is known here and, where a chain is configured, what the chain says."""
    channel = await owned(parts, who, session_vk)
    view = await views.channel_view(parts.market, channel)
    ledger = parts.market.ledger
    if ledger is not None and channel.open_tx:
        seen = await ledger.channel(Terms.decode(channel.terms), channel.open_tx)
        view["chain"] = None if seen is None else vars(seen)
    return view


@router.post(
    "",
    summary="An unsigned transaction that opens a lease's channel",
    response_model=money.Unsigned,
)
async def open_channel(
    request: Request, body: OpenBody, parts: PartsDep, who: Treasurer, key: OnceKey = ""
) -> JSONResponse:
    """For the wallet at *address*; *amount* 0 means the ceiling and the reserve."""

    async def make(remember: Remember) -> Answer:
        ledger = ledger_of(parts)
        lease, _ = await jobs.owned_lease(parts.market, who, body.lease)
        if lease.state.name != "OFFERED" or lease.reused:
            raise QuoteGone("this lease needs no channel to be opened")
        amount = body.amount or lease.ceiling + await ledger.reserve(lease.agreed)
        utxos = [unhex(u, "utxos") for u in body.utxos]
        unsigned = await ledger.unsigned_open(lease.agreed, amount, body.address, utxos)
        tx = _tx(parts, who, "open", lease.session_vk, lease.id, unsigned)
        return await _keep(parts, tx, unsigned, remember)

    return await once(request, parts, who, key, make, status=200)


@router.post(
    "/{session_vk}/topup",
    summary="An unsigned transaction that adds money",
    response_model=money.Unsigned,
)
async def top_up(
    session_vk: SessionVk,
    request: Request,
    body: ChannelBody,
    parts: PartsDep,
    who: Treasurer,
    key: OnceKey = "",
) -> JSONResponse:
    """Signed by the consumer's wallet."""

    async def make(remember: Remember) -> Answer:
        channel, ledger = await owned(parts, who, session_vk), ledger_of(parts)
        if body.amount <= 0:
            raise Malformed("amount is what to add, in lovelace")
        utxos = [unhex(u, "utxos") for u in body.utxos]
        unsigned = await ledger.unsigned_top_up(
            Terms.decode(channel.terms), channel.open_tx, body.amount, body.address, utxos
        )
        tx = _tx(parts, who, "topup", channel.session_vk, "", unsigned)
        return await _keep(parts, tx, unsigned, remember)

    return await once(request, parts, who, key, make, status=200)


@router.post(
    "/{session_vk}/close",
    summary="An unsigned transaction that starts closing",
    response_model=money.Unsigned,
)
async def close(
    session_vk: SessionVk,
    request: Request,
    body: ChannelBody,
    parts: PartsDep,
    who: Treasurer,
    key: OnceKey = "",
) -> JSONResponse:
    """For when the adapter is gone; after the close period anybody may send the rest home."""

    async def make(remember: Remember) -> Answer:
        channel, ledger = await owned(parts, who, session_vk), ledger_of(parts)
        utxos = [unhex(u, "utxos") for u in body.utxos]
        unsigned = await ledger.unsigned_close(
            Terms.decode(channel.terms), channel.open_tx, body.address, utxos
        )
        tx = _tx(parts, who, "close", channel.session_vk, "", unsigned)
        return await _keep(parts, tx, unsigned, remember)

    return await once(request, parts, who, key, make, status=200)


def _tx(
    parts: Parts, who: Caller, kind: str, session_vk: bytes, lease: str, made: UnsignedTx
) -> Tx:
    return Tx(
        made.id, kind, who.account, session_vk, lease, TxState.BUILT, made.body, made.fee,
        parts.market.now,
    )  # fmt: skip


async def _keep(parts: Parts, tx: Tx, made: UnsignedTx, remember: Remember) -> Answer:
    """Remember the exact bytes: the witnesses go into these and no others."""
    store = parts.market.store
    told = {"tx": made.id, "cbor": made.body.hex(), "fee": made.fee, "summary": made.summary}
    if await store.get(Tx, tx.id) is None:
        try:
            await store.apply(Change(puts=[tx, *remember(told)]))
            return told
        except Conflict:
            if await store.get(Tx, tx.id) is None:
                raise  # another transaction was built under the same idempotency key
    # The very same transaction was built before: it stays as it is, whatever became of it.
    if kept := remember(told):
        await store.apply(Change(puts=kept))
    return told


async def _still_wanted(parts: Parts, who: Caller, tx: Tx) -> None:
    """QuoteGone for an open whose quote is over: its money would lie in a channel of no job."""
    if tx.kind != "open":
        return
    lease, _ = await jobs.owned_lease(parts.market, who, tx.lease)
    lapsed = lease.state is LeaseState.OFFERED and lease.expires_ms <= parts.market.now
    if lapsed or lease.state not in (LeaseState.OFFERED, LeaseState.FUNDED):
        raise QuoteGone(f"the quote of {lease.id} is over: nothing was sent")


async def _one_open(parts: Parts, tx: Tx) -> None:
    """Conflict if another open of the channel was signed and may still come: a voucher names no
    output, so two pages that open one channel twice would pay its provider twice.
    """
    if tx.kind != "open":
        return
    for other in await parts.market.store.find(Tx, session_vk=tx.session_vk):
        signed = other.version > 0  # the witnesses are the first thing that changes it
        alike = other.kind == "open" and other.id != tx.id
        if alike and signed and other.state is not TxState.EXPIRED:
            raise Conflict(f"this channel is being opened already, by transaction {other.id}")


@router.post("/{session_vk}/witness", summary="Add the wallet's witnesses, and submit")
async def witness(
    session_vk: SessionVk, body: WitnessBody, parts: PartsDep, who: Treasurer
) -> Annotated[dict[str, Any], Shape(money.Submitted)]:
    """The transaction's id; stored before it is sent."""
    ledger = ledger_of(parts)
    tx = await parts.market.store.get(Tx, body.tx)
    if tx is None or tx.account != who.account or tx.session_vk != unhex(session_vk, "session_vk"):
        raise NotFound("no such transaction")
    if tx.state is TxState.BUILT:
        await _still_wanted(parts, who, tx)
        await _one_open(parts, tx)
        tx_id, signed = await ledger.witness(tx.body, unhex(body.witness, "witness"))
        if tx_id != tx.id:
            raise Malformed("the witnesses are for another transaction")
        facts: dict[str, object] = {"kind": tx.kind, "channel": tx.session_vk.hex(), "fee": tx.fee}
        note = access.audit(parts.market, who, "tx.submit", tx.id, facts)
        try:
            if signed != tx.body:
                await parts.market.store.apply(Change(sets=[replace(tx, body=signed)], puts=[note]))
            await settle.send(parts.market, tx.id)
        except Conflict:  # the same witnesses twice at once: whoever was first says how it stands
            again = await parts.market.store.get(Tx, body.tx)
            if again is None or again.body != signed:
                raise
        tx = await parts.market.store.get(Tx, body.tx) or tx
    return {"tx": tx.id, "state": tx.state.name}
