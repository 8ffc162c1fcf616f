"""Which hops in are worth a claim, and which are over: decided here, put together and sent by the
market's one planner (:mod:`marketplace.chain.settlement`).
"""

from __future__ import annotations

from marketplace.chain.encoding import address as addresses
from marketplace.chain.settlement.wanted import Wanted
from marketplace.router.eye import origin
from marketplace.router.limits import Limits
from marketplace.router.sights import unclaimed
from marketplace.router.state import HopIn, Seen, State


def wanted(state: State, limits: Limits, now_ms: int) -> list[Wanted]:
    """What is to be claimed or ended now: by amount, by age, by the sum of all, at once where the
    consumer closes; ended once it asked and nothing lives on it.
    """
    due = {vk: unclaimed(state, vk) for vk, hop in state.hops_in.items() if _stands(hop)}
    much = sum(due.values()) >= limits.claim_all
    found: list[Wanted] = []
    for vk, owed in due.items():
        hop = state.hops_in[vk]
        end = hop.ending and not state.busy(vk, now_ms)
        if end or (owed and (much or _now(hop, owed, limits, now_ms))):
            found.append(_of(state, hop, end))
    return found


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
