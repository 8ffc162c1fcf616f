"""What becomes of routed leases is said to the router, in an order that a crash cannot break.

Before the store has a consumer's signature the router has the lease in its books; a receipt is told
to it once the store has it, an end once that is written. Whatever was not said in time is said by
:func:`reconcile`, at the start and now and then: the store is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import anyio

from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.market.base.errors import RouterAway
from marketplace.market.base.records import Lease, ReceiptRecord
from marketplace.market.base.routing import Router, Sums
from marketplace.market.context import Market, log
from marketplace.market.core.decide import decide
from marketplace.market.core.ending import LIVE, lacks
from marketplace.market.core.inputs import Signed, Stop
from marketplace.market.lifecycle.change import change_lease

MANY: Final = 100_000
_AT_ONCE: Final = 500


async def admit(market: Market, lease: Lease, asked: Signed) -> None:
    """The lease into the router's books, if what its consumer signed holds and its store will have
    it. Refusals as :func:`decide` has them, and the router's.
    """
    if not lease.hop or lease.state is not LeaseState.OFFERED:
        return
    lease, job = await market.lease(lease.id)
    decide(job, lease, asked, market.now)
    await _router(market).admit(lease.id, lease.terms)


async def owes(market: Market, receipt: Receipt) -> None:
    """A receipt that the store has, of a lease whose page is loaded; of a direct one nothing."""
    if market.router is None or receipt.lease not in market.book.page(receipt.session_vk).routed:
        return
    try:
        await market.router.owes(receipt.lease, receipt.lease_owed, receipt.final)
    except Refusal as refusal:  # its books were lost: it is brought to them again, or ended
        log.warning("route", lease=receipt.lease, error=refusal.line())


async def drop(market: Market, lease_id: str) -> None:
    """Nothing comes of a lease that a route was made for; a reserve that is not given back lapses
    by itself.
    """
    if market.router is None:
        return
    try:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await market.router.drop(lease_id)
    except TallyError as error:
        log.warning("route", lease=lease_id, error=error.line())


def sums(market: Market, lease_id: str) -> Sums | None:
    """A routed lease's money, with no more of what its provider confirmed than its payer was told
    here in time to answer. None where no router can say so.
    """
    found = market.router.sums(lease_id) if market.router is not None else None
    if found is None:
        return None
    told = market.told.amount(lease_id, market.now)
    return replace(found, confirmed=min(found.confirmed, told))


def unpaid(market: Market, lease: Lease) -> bool:
    """Whether the consumer of a routed lease owes what it has to pay by now, and could."""
    known = sums(market, lease.id)
    return known is not None and not known.gone and lacks(lease, known)


async def reconcile(market: Market) -> None:
    """Leases that run are in the router's books with what they owe; those that are over keep no
    reserve. What the router refuses to carry is ended.
    """
    router = market.router
    if router is None:
        return
    carried = dict(router.carried())
    running = await market.store.find(
        Lease, state=(*LIVE, LeaseState.ENDING), hop__gt=b"", limit=MANY
    )
    for lease in running:
        await _carry(market, router, lease)
    for at in range(0, len(running), _AT_ONCE):
        await _tell_owed(market, router, [one.id for one in running[at : at + _AT_ONCE]])
    await _free(market, router, carried.keys() - {lease.id for lease in running}, carried)


async def _carry(market: Market, router: Router, lease: Lease) -> None:
    if router.sums(lease.id) is not None:
        return
    try:
        await router.admit(lease.id, lease.terms)
    except Refusal as refusal:
        log.warning("route", lease=lease.id, error=refusal.line())
        if lease.state in LIVE:
            await change_lease(market, lease.id, Stop(EndReason.START_FAILED))


async def _tell_owed(market: Market, router: Router, leases: list[str]) -> None:
    last = await market.store.newest(ReceiptRecord, "lease", "tick", leases)
    for lease in leases:
        known, found = router.sums(lease), last.get(lease)
        if known is None or found is None:
            continue
        if found.final or found.lease_owed > known.owed:
            await router.owes(lease, found.lease_owed, found.final)


async def _free(
    market: Market, router: Router, leases: Iterable[str], carried: dict[str, bool]
) -> None:
    for lease_id in sorted(leases):
        lease = await market.store.get(Lease, lease_id)
        if lease is None:  # it is just being written, or the store is an older one than the books
            if carried[lease_id]:
                await router.over(lease_id)
        elif lease.state is LeaseState.ENDED:
            await (router.over if lease.session_signature else router.drop)(lease_id)


def _router(market: Market) -> Router:
    if market.router is None:
        raise RouterAway("the router that made this lease's route is not here")
    return market.router
