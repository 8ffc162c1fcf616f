"""Which hops in are worth a claim, and which are over: decided here, put together and sent by the
market's one planner (:mod:`marketplace.chain.settlement`).
"""

from __future__ import annotations

from marketplace.chain.encoding import address as addresses
from marketplace.chain.settlement.next_step import LOSS_WAITS
from marketplace.chain.settlement.wanted import Wanted
from marketplace.router.eye import origin
from marketplace.router.limits import Limits
from marketplace.router.sights import unclaimed
from marketplace.router.state import HopIn, Seen, State


def wanted(state: State, limits: Limits, now_ms: int, end_cost: int = 0) -> list[Wanted]:
    """What is to be claimed or ended now: by amount, by age, by the sum of all, at once where the
    consumer closes; ended once it asked and nothing lives on it, together with others.

    *end_cost*: lovelace that an end costs alone.
    """
    due = {vk: unclaimed(state, vk) for vk, hop in state.hops_in.items() if _stands(hop)}
    much = sum(due.values()) >= limits.claim_all
    claims = {
        vk
        for vk, owed in due.items()
        if owed and (much or _now(state.hops_in[vk], owed, limits, now_ms))
    }
    ends = {vk for vk in due if state.hops_in[vk].ending and not state.busy(vk, now_ms)}
    late = any(
        now_ms >= _waits_until_ms(state.hops_in[vk], due[vk], limits, end_cost) for vk in ends
    )
    if not (claims or late or len(ends) >= limits.end_together):
        return []
    return [_of(state, state.hops_in[vk], vk in ends) for vk in due if vk in claims | ends]


def _waits_until_ms(hop: HopIn, owed: int, limits: Limits, end_cost: int) -> int:
    """When an end goes whether or not others do: by the rule of adapters' ends, what brings less
    than it costs waits longest.
    """
    return hop.ending_ms + limits.end_wait_ms * (1 if owed > end_cost else LOSS_WAITS)


def waiting(state: State) -> bool:
    """Whether the end of any hop in is asked for."""
    return any(hop.ending and _stands(hop) for hop in state.hops_in.values())


def _stands(hop: HopIn) -> bool:
    return hop.seen in (Seen.OPEN, Seen.CLOSING)


def _now(hop: HopIn, owed: int, limits: Limits, now_ms: int) -> bool:
    old = hop.owed_since_ms and now_ms - hop.owed_since_ms >= limits.claim_age_ms
    return bool(old) or owed >= limits.claim_hop or hop.seen is Seen.CLOSING


def _of(state: State, hop: HopIn, end: bool) -> Wanted:
    vk = hop.session_vk
    last = state.book.hops_in[vk].last
    return Wanted(
        vk, origin(hop), last.voucher if last else None, addresses.from_text(hop.payout_address),
        end=end, drain=True, consts=hop.consts(), owed=state.book.due(vk),
    )  # fmt: skip
