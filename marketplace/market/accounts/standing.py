"""Who may ask for more: what an account, or a network address, left unpaid or let lapse.

An account that never paid has few quotes at once and a short time to sign them, and its leases
start one after the other: the market hands a signed lease to its adapter when the one before it was
paid for or is over. Whoever owes gets no new lease; after an unpaid end there is a wait, which
doubles and is forgotten with time. All of that is in the store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Final

from marketplace.domain.client_address import counted_as
from marketplace.domain.errors import Conflict
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import PaymentOwed, TooManyQuotes, UnpaidWait
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Job, Lease, Standing, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.core.ending import LIVE
from marketplace.market.core.inputs import TurnCame, TurnMissed
from marketplace.market.core.standing import address_limited, most_quotes, wait_ms
from marketplace.market.lifecycle import routes
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.state.open_quotes import ASKED, WAITS, unfunded

AGAIN_MS: Final = 2_000
"""When to ask again after TOO_MANY_QUOTES: about as long as a quote is signed and funded in."""
PAGE: Final = 500
_TRIES: Final = 8
_names = count()


def address_name(address: str) -> str:
    """How a network address is kept: by a hash of what it is counted as; empty for none."""
    counted = counted_as(address)
    return f"address.{sha256(counted.encode()).hexdigest()[:32]}" if counted else ""


# ---- asking --------------------------------------------------------------------------------------


async def of(market: Market, name: str) -> Standing:
    """What is remembered; a blank one of a stranger."""
    return await market.store.get(Standing, name) or Standing(name)


async def update(market: Market, name: str, how: Callable[[Standing], Standing]) -> Standing:
    """Apply *how* until nobody else was faster."""
    for _ in range(_TRIES):
        found = await market.store.get(Standing, name)
        new = how(found or Standing(name))
        if found is not None and new == found:
            return new
        with suppress(Conflict):
            put = [] if found is not None else [new]
            await market.store.apply(Change(puts=[*put], sets=[new] if found is not None else []))
            return new
    raise Conflict("what is remembered of this account keeps changing")


async def check(market: Market, known: Standing, address: str = "") -> Standing:
    """PaymentOwed or UnpaidWait unless the account of which *known* was just read may have a new
    lease; what is known of it now.
    """
    owing = [one for one in known.owing if await _owes(market, one)]
    if owing != known.owing:
        gone = set(known.owing) - set(owing)
        known = await update(
            market, known.name, lambda at: replace(at, owing=[x for x in at.owing if x not in gone])
        )
    if owing:
        raise PaymentOwed(f"{owing[0]} is over and not paid for", leases=owing[:10])
    shared = await of(market, address) if address and not known.paid else known
    left = max(wait_ms(market.settings, one, market.now) for one in (known, shared))
    if left:
        raise UnpaidWait(f"a lease ended unpaid: ask again in {left} ms", retry_after_ms=left)
    return known


async def _owes(market: Market, lease_id: str) -> bool:
    lease = await market.store.get(Lease, lease_id)
    last = await market.last_receipt(lease_id)
    if lease is not None and lease.reason == EndReason.PROVIDER_LOST:
        job = await market.store.get(Job, lease.job)
        if job is not None and job.parsed.cluster is not None:
            return False  # what a lost member bills once its provider is back, nobody has to pay
    if lease is not None and lease.hop:
        return last is not None and routes.unpaid(market, lease)
    channel = await market.store.get(Channel, lease.session_vk) if lease is not None else None
    if lease is None or last is None or channel is None or channel.state is ChannelStage.ENDED:
        return False  # nothing is owed, or there is nothing left that it could be paid from
    voucher = await market.store.get(VoucherRecord, lease.session_vk)
    return voucher is None or voucher.cumulative < last.channel_owed


async def addresses(market: Market, accounts: Iterable[str]) -> dict[str, str]:
    """For each of *accounts* the address that its quotes count at, if there is one."""
    asked, found = sorted(set(accounts)), dict[str, str]()
    for at in range(0, len(asked), PAGE):
        for known in await market.store.find(Standing, name=asked[at : at + PAGE], limit=PAGE):
            found[known.name] = address_limited(known)
    return found


@asynccontextmanager
async def admitted(market: Market, who: Caller, members: int = 1) -> AsyncGenerator[Standing]:
    """Places for the quotes of *members* jobs, kept while they are posted, and what is known of
    their account. PaymentOwed, UnpaidWait, TooManyQuotes.
    """
    address, settings, quotes = address_name(who.address), market.settings, market.open_quotes
    known = await check(market, await of(market, who.account), address)
    place = "" if known.paid else address
    most = most_quotes(settings, known, market.now)
    if quotes.count(who.account) + members > most:
        text = f"this account may have {most} open, or signed and not funded, at once"
        raise TooManyQuotes(text, most=most, retry_after_ms=AGAIN_MS)
    if quotes.count(place) + members > settings.quotes_address:
        most = settings.quotes_address
        text = f"accounts at one address that never paid may have {most} open at once"
        raise TooManyQuotes(text, most=most, retry_after_ms=AGAIN_MS)
    places = [f"{ASKED}{next(_names)}" for _ in range(members)]
    for asked in places:
        quotes.add(asked, who.account, place)
    try:
        if address and known.address != address:
            known = await update(market, who.account, lambda at: replace(at, address=address))
        yield known
    finally:
        for asked in places:
            quotes.drop(asked)


async def unblocked(market: Market, account: str, members: int = 1) -> Standing | None:
    """What is known of an account whose waiting job, or gang of *members*, may have its quotes now;
    None where it has to wait on for its account's sake.
    """
    settings, quotes = market.settings, market.open_quotes
    known = await of(market, account)
    try:
        known = await check(market, known, known.address)
    except (PaymentOwed, UnpaidWait):
        return None
    if quotes.count(address_limited(known)) + members > settings.quotes_address:
        return None
    if quotes.count(account) + members > most_quotes(settings, known, market.now):
        return None
    return known


# ---- what happened -------------------------------------------------------------------------------


async def paid(market: Market, account: str) -> None:
    """Money was seen to move over one more channel of it (``paying``)."""
    await update(
        market, account,
        lambda at: replace(at, paid=at.paid + 1, lapses=max(0, at.lapses - 1), turn=""),
    )  # fmt: skip
    await turns(market, account)


# ---- one after the other -------------------------------------------------------------------------


async def takes_turn(market: Market, lease: Lease) -> bool:
    """Whether a signed lease may start now; an account that never paid has one turn, which all
    members of a gang share: none of them pays before all have started.
    """
    known = await of(market, lease.account)
    if known.paid or not market.settings.starts_in_turn:
        return True
    if known.turn and known.turn != lease.id:
        together = await _together(market, known.turn)
        if any(other.id == lease.id for other in together):
            return True
        if any(other.state in LIVE for other in together):
            return False
    mine = await update(
        market, lease.account,
        lambda at: at if at.turn not in (known.turn, lease.id) else replace(at, turn=lease.id),
    )  # fmt: skip
    return mine.turn == lease.id


async def _together(market: Market, lease_id: str) -> list[Lease]:
    """The lease that has the turn, with those of the other members of its gang."""
    lease = await market.store.get(Lease, lease_id)
    job = await market.store.get(Job, lease.job) if lease is not None else None
    if lease is None or job is None or not job.gang:
        return [lease] if lease is not None else []
    members = await market.store.find(Job, gang=job.gang, limit=1_000)
    found = [await market.store.get(Lease, one.lease) for one in members if one.lease]
    return [one for one in found if one is not None]


async def turns(market: Market, account: str = "") -> None:
    """Hand over what waits for its turn: one for each account, all of one that paid by now."""
    where: dict[str, object] = {"account": account} if account else {}
    for lease in await market.store.find(
        Lease, state=LeaseState.FUNDED, stage=WAITS, order=("id",), after=None, limit=500, **where
    ):
        if await _outwaited(market, lease):
            await _end(market, lease)
        elif await takes_turn(market, lease):
            await _hand_over(market, lease)


async def _outwaited(market: Market, lease: Lease) -> bool:
    known = await of(market, lease.account)
    if known.owing or wait_ms(market.settings, known, market.now):
        return True
    first = await market.store.get(Lease, known.turn) if known.turn else None
    settings = market.settings
    wait = settings.turn_wait_ms
    if first is not None and first.state in LIVE and not unfunded(first):
        wait = settings.turn_wait_funded_ms
    return market.now >= lease.created_ms + wait


async def _hand_over(market: Market, lease: Lease) -> None:
    with suppress(Conflict):
        await change_lease(market, lease.id, TurnCame())


async def _end(market: Market, lease: Lease) -> None:
    with suppress(Conflict):
        await change_lease(market, lease.id, TurnMissed())
