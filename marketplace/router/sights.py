"""What the chain shows of a router's hops, and what follows in its books. Pure.

A hop in that closes, is gone again, or holds too much unclaimed *stops*: its vouchers are taken, as
each can be claimed, and nothing more is passed on that rests on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.messages import Outcome, Send
from marketplace.domain.money.route.router import go_on
from marketplace.domain.money.route.router_book import RouterBook
from marketplace.router.exposure import Fund, Need
from marketplace.router.limits import Limits
from marketplace.router.state import Rest, Seen, State


@dataclass(frozen=True)
class Sight:
    """A hop as the chain shows it: *capacity*: the most that it can pay, *claimed*: what it paid,
    *kept*: lovelace that stay inside it for its end; *funds*: what was put in; *settled*: it ended
    too deep for a rollback, and *refunded* lovelace went back to who opened it.
    """

    seen: Seen
    capacity: int = 0
    claimed: int = 0
    kept: int = 0
    funds: tuple[Fund, ...] = ()
    settled: bool = False
    refunded: int = 0

    @property
    def depth(self) -> int:
        """Blocks over its youngest money; 0 while none holds it."""
        return min((one.depth for one in self.funds), default=0)


def need(book: RouterBook, hop: bytes, sight: Sight) -> Need:
    """What rests on a hop in, and on what it rests."""
    return Need(book.spoken_for(hop), sight.funds, sight.kept)


def unclaimed(state: State, hop: bytes) -> int:
    """Lovelace of a hop in that are due and not on chain."""
    return max(0, state.book.due(hop) - state.hops_in[hop].claimed)


def sighted_in(
    state: State,
    hop: bytes,
    sight: Sight,
    limits: Limits,
    now_ms: int,
    keys: Mapping[bytes, Signer],
) -> Outcome[State]:
    """After a look at a hop in."""
    known = state.hops_in[hop]
    open_ = sight.seen is Seen.OPEN
    new = replace(known, seen=sight.seen, claimed=max(known.claimed, sight.claimed))
    book = state.book
    if open_:
        new = replace(new, claimed=sight.claimed)  # also less: a rollback took a claim back
        earning = replace(book.hops_in[hop], capacity=sight.capacity)
        book = replace(book, hops_in={**book.hops_in, hop: earning})
    state = replace(state, book=book).with_in(new)
    owed = unclaimed(state, hop)
    since = (new.owed_since_ms or now_ms) if owed else 0
    state = state.with_in(replace(new, owed_since_ms=since))
    if not open_ or owed >= limits.hop_cap:
        stopped = replace(state.book, stopped=state.book.stopped | {hop})
        return Outcome(replace(state, book=stopped))
    return _going(state, hop, keys) if hop in state.book.stopped else Outcome(state)


def capped(state: State, hops: Iterable[bytes], limits: Limits) -> State:
    """With those of *hops* in stopped that hold more unclaimed than is borne; a look at the chain
    lets them go on.
    """
    full = frozenset(hop for hop in hops if unclaimed(state, hop) >= limits.hop_cap)
    if full <= state.book.stopped:
        return state
    return replace(state, book=replace(state.book, stopped=state.book.stopped | full))


def sighted_out(state: State, hop: bytes, sight: Sight, now_ms: int) -> State:
    """After a look at a hop out; one that ended is remembered as its provider's last."""
    known, book = state.hops_out[hop], state.book
    if sight.seen is Seen.OPEN:
        book = replace(book, room={**book.room, hop: sight.capacity})
    new = replace(known, seen=sight.seen, claimed=sight.claimed)
    state = replace(state, book=book).with_out(new)
    if sight.seen is not Seen.ENDED:
        return state
    rest = state.rests.get(known.provider, Rest())
    since = rest.ended_ms if known.seen is Seen.ENDED and rest.ended_ms else now_ms
    return state.with_rest(known.provider, replace(rest, ended_ms=since, over=sight.claimed))


def spoken(state: State, hop: bytes, keys: Mapping[bytes, Signer]) -> Outcome[State]:
    """The provider of a hop out has spoken after a restore: *keys* has that hop's again."""
    state = state.with_out(replace(state.hops_out[hop], unsure=False))
    return _going(state, hop, keys)


def _going(state: State, hop: bytes, keys: Mapping[bytes, Signer]) -> Outcome[State]:
    done = go_on(state.book, [hop], keys)
    effects: tuple[Send, ...] = done.effects
    return Outcome(replace(state, book=done.state), effects)
