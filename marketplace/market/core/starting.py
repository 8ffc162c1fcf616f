"""From the question to the adapter until the workload starts: answers, signatures, deadlines.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.money.terms import TermsRefused
from marketplace.domain.protocol import wire
from marketplace.domain.work.job_machine import JOB, JobEvent
from marketplace.domain.work.lease import LEASE, EndReason, LeaseEvent, LeaseState
from marketplace.market.base.errors import QuoteGone
from marketplace.market.base.records import Channel, Job, Lease, LeaseKey
from marketplace.market.core import ending
from marketplace.market.core.inputs import Accepted, Declined, Passed, Signed
from marketplace.market.core.outcome import Keep, Lapse, Outcome, Remember, Say, Story, Tell
from marketplace.market.core.waiting import waits
from marketplace.market.state.open_quotes import WAITS

STILL_TAKEN: Final = ("DEVICE_BUSY", "NO_ROOM")
"""Declines that pass: a workload that has ended is removed from its host a moment later."""
CHANNEL_GONE: Final = "CHANNEL_OVER"
"""The channel that was to be reused is being ended: an idle one ends when its consumer ordered."""
OF_ROUTE: Final = ("HOP_", "ROUTE_")
"""What the codes of declines begin with that are about a route: the same lease may go direct."""
BUSY_TRIES: Final = 5
BUSY_MS: Final = 1_000
_TX: Final = re.compile(r"[0-9a-f]{64}")


def accepted(job: Job, lease: Lease, asked: Accepted, now: int) -> Outcome:
    """The adapter signed: the consumer has a quote. TermsRefused for other terms or no signature of
    its.
    """
    if lease.adapter_signature:
        return Outcome(job, lease)
    if asked.terms != lease.terms:
        raise TermsRefused("these are not the terms that were proposed")
    if lease.state is not LeaseState.PROPOSED:
        gone = wire.LeaseCancelled(lease.id, lease.reason or EndReason.QUOTE_EXPIRED)
        return Outcome(job, lease, (Say(lease.provider, gone),))
    state = LEASE.step(lease.state, LeaseEvent.ACCEPTED)
    lease = replace(lease, state=state, adapter_signature=asked.signature)
    lease.signed.verify_adapter()
    job = replace(job, state=JOB.step(job.state, JobEvent.QUOTE), updated_ms=now)
    return Outcome(job, lease, (Story("QUOTED"),))


def declined(job: Job, lease: Lease, asked: Declined, now: int) -> Outcome:
    """The adapter did not want it: another provider is looked for; or, once both signed, it failed
    to start.

    What is only still taken, by a lease that has just ended, is asked for again where the job
    waits. So is what failed for the channel to be reused: without that one; or for its route:
    without any, with the same key.
    """
    said = f"{asked.code}: {asked.message}"
    if lease.state is LeaseState.OFFERED:
        return ending.lost(job, lease, 0, now)
    if lease.state is LeaseState.FUNDED:
        return ending.finished(job, lease, EndReason.START_FAILED, said, None, asked.owed, now)
    if lease.state is not LeaseState.PROPOSED:
        return Outcome(job, lease)
    out = ending.never_was(job, lease, LeaseEvent.DECLINED, EndReason.DECLINED, said, now)
    if lease.reused and asked.code == CHANNEL_GONE:
        left = [one for one in job.channels if one != lease.session_vk.hex()]
        return replace(out, job=replace(out.job, avoid=job.avoid, channels=left))
    if lease.hop and asked.code.startswith(OF_ROUTE):
        direct = [*job.direct, lease.provider]
        return replace(out, job=replace(out.job, avoid=job.avoid, direct=direct))
    tries = job.busy.get(lease.provider, 0)
    if asked.code not in STILL_TAKEN or not waits(job) or tries >= BUSY_TRIES:
        return out
    job = replace(
        out.job,
        avoid=job.avoid,
        busy={**job.busy, lease.provider: tries + 1},
        not_before_ms=now + BUSY_MS,
    )
    return replace(out, job=job)


def signed(job: Job, lease: Lease, asked: Signed, now: int) -> Outcome:
    """Both signed: the adapter may start as soon as it sees the channel; it is told later if the
    lease *waits* for its account's turn. The same signature again changes nothing.

    QuoteGone, TermsRefused, Malformed.
    """
    if lease.session_signature == asked.session_signature and lease.state is not LeaseState.OFFERED:
        return Outcome(job, lease)
    if lease.state is not LeaseState.OFFERED or now >= lease.expires_ms:
        raise QuoteGone(f"the quote of {lease.id} is over ({lease.state.name})")
    replace(lease, session_signature=asked.session_signature).signed.verify()
    if lease.hop and (asked.channel_tx or asked.open_tx):
        raise Malformed("a lease over a route opens no channel")
    if not lease.reused and not lease.hop and not _TX.fullmatch(asked.channel_tx):
        raise Malformed("channel_tx is the open transaction's id in hex")
    wanted = set(job.parsed.sealed)
    if set(asked.secrets) != wanted:
        raise Malformed(f"sealed secrets are needed for: {', '.join(sorted(wanted)) or 'nothing'}")
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.SIGNED),
        session_signature=asked.session_signature,
        channel_tx=asked.channel_tx,
        secrets={name: sealed.hex() for name, sealed in asked.secrets.items()},
        stage=WAITS if asked.waits else lease.stage,
        open_tx=b"" if lease.reused else asked.open_tx,
    )
    state, key = JOB.step(job.state, JobEvent.SIGN), job.session_vk if lease.reused else b""
    out = Outcome(
        replace(job, state=state, session_vk=key, updated_ms=now), lease, (Story("SIGNED"),)
    )
    if lease.hop:
        key = LeaseKey(lease.session_vk, lease.id, lease.account, lease.provider, lease.hop)
        out = out.and_then(Keep(key))
    elif not lease.reused:
        out = out.and_then(Keep(_channel(lease, asked.payout_address, now)))
    return out if asked.waits else _told(out, lease)


def _channel(lease: Lease, payout_address: str, now: int) -> Channel:
    return Channel(
        lease.session_vk, lease.account, lease.provider, lease.terms, payout_address, now,
        lease.channel_tx,
    )  # fmt: skip


def lease_signed(lease: Lease) -> wire.LeaseSigned:
    """The message that lets the adapter start."""
    secrets = {name: bytes.fromhex(sealed) for name, sealed in lease.secrets.items()}
    return wire.LeaseSigned(lease.id, lease.signed, lease.channel_tx, secrets, lease.open_tx)


def _told(out: Outcome, lease: Lease) -> Outcome:
    """Its adapter is told to start: what was only relayed is not kept."""
    kept = replace(out, lease=replace(lease, open_tx=b""))
    return kept.and_then(Tell(lease.provider, lease_signed(lease)))


def _in_line(lease: Lease) -> bool:
    return lease.state is LeaseState.FUNDED and lease.stage == WAITS


def turn_came(job: Job, lease: Lease, now: int) -> Outcome:
    """What waited to be started is handed to its adapter, whose time to start it begins now."""
    if not _in_line(lease):
        return Outcome(job, lease)
    job, lease = replace(job, updated_ms=now), replace(lease, stage="")
    return _told(Outcome(job, lease), lease)


def turn_missed(job: Job, lease: Lease, now: int) -> Outcome:
    """What waited to be started is not wanted any more."""
    if not _in_line(lease):
        return Outcome(job, lease)
    reason, why = EndReason.QUOTE_EXPIRED, "the account's lease before it was not paid for in time"
    out = ending.finished(job, lease, reason, why, None, 0, now)
    return out.and_then(Tell(lease.provider, wire.LeaseCancelled(lease.id, reason)))


def passed(job: Job, lease: Lease, asked: Passed, now: int) -> Outcome:
    """What time alone brings about: a proposal that nobody answered goes elsewhere, a quote that
    nobody signed ends its job (its session key may be on chain already), what nobody starts has
    failed. A provider that was not told to start is not blamed: its lease has missed its turn.
    """
    match lease.state:
        case LeaseState.PROPOSED if lease.created_ms < now - asked.rules.propose_ttl_ms:
            reason, event = EndReason.DECLINED, LeaseEvent.EXPIRED
            out = ending.never_was(job, lease, event, reason, "no answer in time", now)
            return out.and_then(_cancelled(lease, EndReason.QUOTE_EXPIRED))
        case LeaseState.OFFERED if lease.expires_ms < now:
            reason = EndReason.QUOTE_EXPIRED
            state = LEASE.step(lease.state, LeaseEvent.EXPIRED)
            gone = replace(lease, state=state, reason=reason, ended_ms=now)
            out = ending.job_over(
                Outcome(job, gone), reason, "the quote was not signed in time", now
            )
            return out.and_then(_cancelled(lease, reason), Remember(Lapse.LET_LAPSE))
        case LeaseState.FUNDED:
            latest = now - asked.start_ttl_ms
            changed_ms = job.updated_ms if job.lease == lease.id else 0
            if max(lease.created_ms, changed_ms) >= latest:
                return Outcome(job, lease)
            if _in_line(lease):
                return turn_missed(job, lease, now)
            reason, why = EndReason.START_FAILED, "the provider did not start it in time"
            out = ending.finished(job, lease, reason, why, None, 0, now)
            return out.and_then(_cancelled(lease, reason), Remember(Lapse.NEVER_STARTED))
        case _:
            return Outcome(job, lease)


def _cancelled(lease: Lease, reason: str) -> Tell:
    return Tell(lease.provider, wire.LeaseCancelled(lease.id, reason))
