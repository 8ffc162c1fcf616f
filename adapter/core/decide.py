"""The adapter's mind: ``decide(state, event, now, own) -> Outcome``.  Pure.

    market ──Heard──▶        ┌────────┐ ──▶ Send      to the market, by way of the journal
    chain ──Sighted─▶  state │ decide │ ──▶ Drive     the workload to the lease's wish
    host ──Measured─▶        └────────┘ ──▶ Settle    the channel on chain

The daemon puts a durable outcome on disk before it performs an effect; every effect may be
performed twice.  :func:`recover` names the effects that a state found in the journal still needs.
What each event is answered with stands in ``answers``, by where the event comes from; how a lease
begins, pauses and ends in ``lifecycle``.
"""

from __future__ import annotations

from dataclasses import replace

from adapter.core import clusters, direct_ports, lifecycle
from adapter.core.answers import cluster
from adapter.core.answers.chain import expected, settled, sighted, unfit, unread
from adapter.core.answers.host import measured
from adapter.core.answers.market import heard, link_down, link_up
from adapter.core.answers.opening import not_taken, taken, void
from adapter.core.answers.time import passed
from adapter.core.draft import Draft
from adapter.core.events import (
    ChannelUnfit,
    Collected,
    Drain,
    Drive,
    Effect,
    Event,
    Exited,
    Expected,
    Failed,
    Heard,
    LinkDown,
    LinkUp,
    Logged,
    Measured,
    MeshHeard,
    MeshUp,
    OpenNotTaken,
    OpenTaken,
    OpenVoid,
    Outcome,
    Passed,
    PortsOpened,
    Preparing,
    Purse,
    Removed,
    Settle,
    Settled,
    Sighted,
    Started,
    Unread,
    Watch,
)
from adapter.core.state import (
    Lease,
    Now,
    Own,
    PauseCause,
    State,
)
from adapter.core.wish import Wish
from marketplace.domain.protocol import wire


def decide(state: State, event: Event, now: Now, own: Own) -> Outcome:
    """What becomes of *state* through *event*, and what is to be done."""
    draft = Draft(state, own, now)
    match event:
        case Heard(message):
            heard(draft, message)
        case LinkUp(orders):
            link_up(draft, orders)
        case LinkDown():
            link_down(draft)
        case Sighted():
            sighted(draft, event)
        case Unread():
            unread(draft, event)
        case Expected():
            expected(draft, event)
        case OpenTaken() | OpenNotTaken() | OpenVoid():
            _of_open(draft, event)
        case ChannelUnfit():
            unfit(draft, event)
        case Settled():
            settled(draft, event)
        case Drain(on):
            draft.state, draft.durable = replace(state, draining=on), True
            draft.send(wire.OfferPosted(own.offer, on), durable=False)
        case Passed():
            passed(draft)
        case Purse(short):
            draft.state = replace(state, unable=short)
        case _:
            lease = state.leases.get(event.lease)
            if lease is not None:
                _of_lease(draft, lease, event)
    return draft.outcome()


def recover(state: State) -> tuple[Effect, ...]:
    """What a state from the journal still needs done: its effects may have been lost in a kill."""
    effects: list[Effect] = [
        Drive(lease.id)
        for lease in state.leases.values()
        if lease.wish is not Wish.WAIT and not lease.removed
    ]
    for lease in state.leases.values():
        effects += clusters.meetings(lease)
    for channel in state.channels.values():
        if not channel.final:
            effects.append(Watch(channel.session_vk))
            if channel.settling:
                effects.append(Settle(channel.session_vk))
    return tuple(effects)


def wake(state: State, now: Now) -> State:
    """A state from the journal, as of *now*: the time that the adapter was away is nobody's
    pause.
    """
    leases: dict[str, Lease] = {}
    for lease in state.leases.values():
        if lease.pause is PauseCause.UNPAID:
            lease = replace(lease, pause=PauseCause.OFFLINE)
        leases[lease.id] = replace(
            lease, paused_at_ms=now.boot_ms, fault_since_ms=0, idle_since_ms=0,
            started_at_ms=min(lease.started_at_ms, now.boot_ms),
        )  # fmt: skip
    channels = {
        vk: replace(one, exposed_at_ms=max(1, now.boot_ms)) if one.exposed_at_ms else one
        for vk, one in state.channels.items()
    }  # a boot clock of another start says nothing; what was starved stays so
    return replace(
        state, leases=leases, channels=channels, offline_since_ms=now.boot_ms,
        awake_ms=now.boot_ms, sights={},
    )  # fmt: skip


def _of_open(draft: Draft, event: OpenTaken | OpenNotTaken | OpenVoid) -> None:
    match event:
        case OpenTaken():
            taken(draft, event)
        case OpenNotTaken():
            not_taken(draft, event)
        case OpenVoid():
            void(draft, event)


def _of_lease(
    draft: Draft,
    lease: Lease,
    event: Preparing
    | Started
    | PortsOpened
    | Failed
    | Measured
    | Exited
    | Collected
    | Removed
    | Logged
    | MeshUp
    | MeshHeard,
) -> None:
    match event:
        case Preparing():
            lifecycle.preparing(draft, lease, event)
        case Started():
            lifecycle.started(draft, lease, event)
        case PortsOpened():
            direct_ports.opened(draft, lease)
        case Failed():
            lifecycle.failed(draft, lease, event)
        case Measured():
            measured(draft, lease, event)
        case Exited():
            lifecycle.exited(draft, lease, event)
        case Collected():
            lifecycle.collected(draft, lease, event)
        case Removed():
            lifecycle.removed(draft, lease)
        case MeshUp():
            cluster.mesh_up(draft, lease, event)
        case MeshHeard():
            cluster.mesh_heard(draft, lease, event)
        case Logged(_, offset):
            draft.put(replace(lease, log_offset=offset), durable=False)
