"""What the market's operator may do: suspend and restore, set the fee, read the audit log.

Never more than that: no operator can take, move or withhold anybody's money. Everything is audited.
"""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.errors import Malformed, NotFound
from marketplace.domain.money.terms import MAX_FEE_BPS
from marketplace.domain.supply.offer import OFFER, OfferEvent
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.accounts import priority, webhooks
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Account, Audit, Hook, Job, Lease, OfferRecord, Setting
from marketplace.market.context import FEE, Market
from marketplace.market.core.ending import HOLDING
from marketplace.market.core.inputs import Stop
from marketplace.market.jobs import jobs
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.state.directory import MOST_PRIORITY

OPERATOR = "operator"


def _note(market: Market, action: str, subject: str, **detail: object) -> Audit:
    return Audit(market.ids.new("audit"), market.now, OPERATOR, action, subject, dict(detail))


async def note(market: Market, action: str, subject: str, **detail: object) -> None:
    """Something that the operator did outside this module, in the audit log."""
    await market.store.apply(Change(puts=[_note(market, action, subject, **detail)]))


async def _offer(market: Market, provider: str) -> OfferRecord:
    found = await market.store.find(OfferRecord, provider=provider, limit=1)
    if not found:
        raise NotFound("no such provider")
    return found[0]


async def suspend_provider(market: Market, provider: str, why: str) -> int:
    """Nothing new is matched and its leases are stopped; how many. What was earned stays its
    own.
    """
    record = await _offer(market, provider)
    state = OFFER.step(record.state, OfferEvent.SUSPEND)
    gone = replace(record, state=state, suspended=why or "by the operator")
    note = _note(market, "provider.suspend", provider, why=why)
    await market.store.apply(Change(sets=[gone], puts=[note], topics=[f"offer:{record.id}"]))
    leases = await market.store.find(Lease, provider=provider, state=HOLDING)
    for lease in leases:
        await change_lease(market, lease.id, Stop(EndReason.SUSPENDED))
    return len(leases)


async def restore_provider(market: Market, provider: str) -> None:
    """Listed again, at once if its adapter is connected."""
    record = await _offer(market, provider)
    state = OFFER.step(record.state, OfferEvent.RESTORE)
    if not record.away_ms and record.process:
        state = OFFER.step(state, OfferEvent.POSTED)
    note = _note(market, "provider.restore", provider)
    back = replace(record, state=state, suspended="")
    await market.store.apply(Change(sets=[back], puts=[note], topics=[f"offer:{record.id}"]))


async def suspend_account(market: Market, account: str, why: str) -> int:
    """No sign-in, no key works, its jobs are stopped; how many. Its channels stay its own."""
    known = await market.store.get(Account, account)
    if known is None:
        raise NotFound("no such account")
    note = _note(market, "account.suspend", account, why=why)
    gone = replace(known, suspended=why or "by the operator")
    await market.store.apply(Change(sets=[gone], puts=[note]))
    living = [s for s in JobState if s is not JobState.ENDED]
    found = await market.store.find(Job, account=account, state=living, limit=10_000)
    for job in found:
        await jobs.stop_job(market, job, EndReason.SUSPENDED)
    return len(found)


async def restore_account(market: Market, account: str) -> None:
    """It may sign in again."""
    known = await market.store.get(Account, account)
    if known is None:
        raise NotFound("no such account")
    note = _note(market, "account.restore", account)
    await market.store.apply(Change(sets=[replace(known, suspended="")], puts=[note]))


async def set_fee(market: Market, fee_bps: int) -> None:
    """The least settlement fee (basis points of a claim) that an offer must grant to be listed.

    It counts from the next posting of each offer on; signed terms keep the fee they name.
    """
    if not 0 <= fee_bps <= MAX_FEE_BPS:
        raise Malformed(f"the fee is 0 to {MAX_FEE_BPS} basis points")
    known = await market.store.get(Setting, FEE)
    note = _note(market, "fee.set", FEE, fee_bps=fee_bps)
    change = Change(puts=[note])
    if known is None:
        change.puts.append(Setting(FEE, str(fee_bps)))
    else:
        change.sets.append(replace(known, value=str(fee_bps)))
    await market.store.apply(change)


async def rekey_hooks(market: Market, key: bytes) -> int:
    """Webhooks' secrets come from *key* from now on; how many there are.

    Their rotation is 0: no owner has seen the secret that signs now.
    """
    mark = webhooks.fingerprint(key)
    known = await market.store.get(Setting, webhooks.KEY)
    change = Change(puts=[_note(market, "webhooks.rekey", webhooks.KEY, fingerprint=mark)])
    if known is None:
        change.puts.append(Setting(webhooks.KEY, mark))
    else:
        change.sets.append(replace(known, value=mark))
    every = await market.store.find(Hook, limit=1_000_000)
    change.sets += [replace(hook, rotation=0) for hook in every]
    await market.store.apply(change)
    return len(every)


async def grant_priority(market: Market, account: str, most: int) -> None:
    """The highest priority that *account* may ask for; 0 takes the grant back.

    Jobs that wait keep the priority they were posted with in the queue; after this they make nobody
    go.
    """
    if not 0 <= most <= MOST_PRIORITY:
        raise Malformed(f"a priority is 0 to {MOST_PRIORITY}")
    if await market.store.get(Account, account) is None:
        raise NotFound("no such account")
    known = await market.store.get(Setting, priority.setting(account))
    change = Change(puts=[_note(market, "priority.grant", account, most=most)])
    if known is None:
        change.puts.append(Setting(priority.setting(account), str(most)))
    else:
        change.sets.append(replace(known, value=str(most)))
    await market.store.apply(change)


async def audit_log(market: Market, limit: int = 100, actor: str = "") -> list[Audit]:
    """The latest entries, newest first."""
    if actor:
        return await market.store.find(Audit, order=("-id",), limit=limit, actor=actor)
    return await market.store.find(Audit, order=("-id",), limit=limit)
