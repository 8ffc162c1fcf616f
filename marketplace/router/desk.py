"""The router of a market process: the market's port (``market/base/routing.py``) over the books."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import anyio
import structlog

from marketplace.domain.canonical import want_bytes
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.route.evidence import HopEvidence, RouteEvidence
from marketplace.domain.money.route.hop import HopForked, Payment
from marketplace.domain.money.route.messages import LeaseUnknown, Message, Outcome, Owes
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route, SignedRoute, commit
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import payment_of
from marketplace.domain.supply.offer import Offer
from marketplace.market.base.ports import Clock, Ids
from marketplace.market.base.routing import (
    HopUse,
    HopView,
    RouteAsked,
    RouteMade,
    Sums,
    TellPayer,
    TellProvider,
)
from marketplace.router import making, shown
from marketplace.router.keys import RouterKeys
from marketplace.router.limits import Limits
from marketplace.router.post import Post, resumed
from marketplace.router.sights import Sight, sighted_in, spoken
from marketplace.router.state import HopIn, Routed, Seen, State
from marketplace.router.writer import Word, Writer

log = structlog.get_logger("router")
Look = Callable[[HopIn], Awaitable[Sight]]
"""At the chain, for one hop in."""


class TooManyHops(Refusal):
    """An account that announced many hops which are in no block."""

    code = "ROUTER_TOO_MANY_HOPS"
    remedy = "wait until the chain shows those that you announced, and use them"


class Bell:
    """Something happened that the chain may show more of."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        """Whoever listens now hears it."""
        self._event.set()
        self._event = anyio.Event()

    async def heard(self) -> None:
        """The next ring."""
        await self._event.wait()


class RouterDesk:
    """``Router`` of the market. *look* is its own eye on the chain; *sights*: what it saw last, by
    session key; *payout*: the address (Bech32) that hops in pay.
    """

    def __init__(
        self,
        writer: Writer,
        keys: RouterKeys,
        post: Post,
        limits: Limits,
        offer: SignedRouterOffer,
        payout: str,
        look: Look,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.writer = writer
        self.limits = limits
        self.sights: dict[bytes, Sight] = {}
        self.welcomed: dict[str, int] = {}
        self.bell = Bell()
        self._keys = keys
        self._post = post
        self._offer = offer
        self._payout = payout
        self._look = look
        self._clock = clock
        self._ids = ids

    @property
    def state(self) -> State:
        """What is written down."""
        return self.writer.state

    @property
    def offer(self) -> SignedRouterOffer:
        """What a hop in must be, signed."""
        return self._offer

    @property
    def terms(self) -> RouterOffer:
        """The same, read."""
        return RouterOffer.decode(self._offer.body)

    def free(self) -> int:
        """Lovelace that could still be reserved on hops out."""
        book = self.state.held(self._clock.now_ms())
        usable = [vk for vk, hop in self.state.hops_out.items() if hop.seen is Seen.OPEN]
        return sum(max(0, book.room[vk] - book.reserved(vk)) for vk in usable)

    def hops_out(self) -> int:
        """Those that a block shows open."""
        return sum(hop.seen is Seen.OPEN for hop in self.state.hops_out.values())

    def carries(self, offer: Offer, reserve: int, tick_ms: int) -> bool:
        """Whether a hop goes to the provider of *offer* that such a lease may go out over."""
        try:
            out = making.hop_to(self.state, offer, reserve, tick_ms, self.limits)
        except Refusal:
            return False
        return out.seen is Seen.OPEN

    def heard_by(self, tell_provider: TellProvider, tell_payer: TellPayer) -> None:
        """How it speaks."""
        self._post.heard_by(tell_provider, tell_payer)

    # ---- a consumer's hop ------------------------------------------------------------------------

    async def announce(
        self, account: str, session_vk: bytes, consumer_vkh: bytes, tx: str, index: int
    ) -> HopView:
        """Looked at before it is written down; :class:`ChannelUnfit`, :class:`LeaseUnknown`."""
        known = self.state.hops_in.get(want_bytes(session_vk, 32, "session_vk"))
        if known is not None:
            if (known.account, known.tx, known.index) != (account, tx, index):
                raise LeaseUnknown("this hop was announced otherwise")
            return self.hop(account, session_vk)
        self._may_announce(account, session_vk, consumer_vkh, tx, index)
        hop = HopIn(session_vk, account, consumer_vkh, tx, index, self._offer, self._payout)
        sight = await self._look(hop)
        if sight.seen not in (Seen.AWAITED, Seen.OPEN):
            raise ChannelUnfit(f"what stands there is no open hop to this router: {sight.seen}")
        await self.writer.change(lambda state: self._announced(state, hop, sight))
        self.sights[session_vk] = sight
        self.bell.ring()
        return self.hop(account, session_vk)

    def _may_announce(
        self, account: str, session_vk: bytes, consumer_vkh: bytes, tx: str, index: int
    ) -> None:
        if consumer_vkh.hex() != account:
            raise LeaseUnknown("the hop's consumer is not the account that announces it")
        if len(tx) != 64 or not 0 <= index < 2**16:
            raise Malformed("that names no output")
        if session_vk in self.state.hops_out:
            raise LeaseUnknown("that key is this router's own")
        new = [one for one in self.state.hops_in.values() if one.account == account]
        waiting = sum(one.seen is Seen.AWAITED for one in new)
        if waiting >= self.limits.hops_in_new:
            raise TooManyHops(f"{waiting} hops of this account are in no block")

    def _announced(self, state: State, hop: HopIn, sight: Sight) -> Outcome[State]:
        if hop.session_vk in state.hops_in:
            raise LeaseUnknown("this hop was announced otherwise")
        fresh = state.with_hop_in(hop)
        now = self._clock.now_ms()
        keys = self.writer.signers(fresh)
        return sighted_in(fresh, hop.session_vk, sight, self.limits, now, keys)

    def hop(self, account: str, session_vk: bytes) -> HopView:
        """As its consumer sees it."""
        hop = making.own(self.state, account, session_vk)
        return shown.view(self.state, hop, self.sights.get(session_vk))

    def use(self, hop_in: bytes) -> HopUse:
        """How many leases wait on it, and how many paid."""
        return shown.use(self.state, hop_in)

    async def end(self, end: End) -> bool:
        """The consumer's signed wish: its hop is finished once no lease lives on it."""
        end.verify()
        if end.session_vk not in self.state.hops_in:
            return False

        def ending(state: State) -> Outcome[State]:
            hop = state.hops_in[end.session_vk]
            since = hop.ending_ms or self._clock.now_ms()  # said again, it waits no longer
            return Outcome(state.with_in(replace(hop, ending=True, ending_ms=since)))

        await self.writer.change(ending)
        self.bell.ring()
        return True

    # ---- a lease ---------------------------------------------------------------------------------

    async def make(self, asked: RouteAsked) -> RouteMade:
        """A route, with its reserve kept on both hops until ``kept_ms``."""

        def decide(state: State) -> Outcome[State]:
            now = self._clock.now_ms()
            if asked.lease in state.routes:
                raise LeaseUnknown("a route was made for this lease already")
            state = making.lapsed(state, now)
            made = making.carried(state, asked, self.limits, self.sights, now)
            salts = self._ids.secret(32), self._ids.secret(32)
            route = Route(
                self.terms.magic, self.terms.router_vk, made.lease, made.lease_vk,
                commit(made.hop_in, salts[0]), commit(made.hop_out, salts[1]), made.route_bps,
                self.limits.hop_ms, made.reserve, asked.expires_ms,
            )  # fmt: skip
            body = route.encode()
            signed = SignedRoute(body, self._keys.router.sign(body))
            routed = Routed(made, asked.account, asked.provider, signed, *salts, asked.kept_ms)
            return Outcome(state.with_route(routed))

        routed = (await self.writer.change(decide)).routes[asked.lease]
        made = routed.carried
        return RouteMade(routed.signed, made.hop_in, routed.salt_in, made.hop_out, routed.salt_out)

    async def admit(self, lease: str, terms: bytes) -> None:
        """Both signed: booked, on disk, and its leaf of 0 told. Repeatable."""

        def decide(state: State) -> Outcome[State]:
            return making.admit(
                state, lease, terms, self.writer.signers(state), self._clock.now_ms()
            )

        await self.writer.change(decide)

    async def drop(self, lease: str) -> None:
        """It never began."""
        await self.writer.change(lambda s: Outcome(making.drop(s, lease, self._clock.now_ms())))

    async def owes(self, lease: str, owed: int, final: bool) -> None:
        """A receipt that the market has stored."""
        terms = self._terms(lease)
        await self.writer.hear(Word(lambda _s, _c: Owes(terms, owed), lease if final else ""))

    async def over(self, lease: str) -> None:
        """It will owe no more."""
        await self.writer.change(lambda s: Outcome(making.over(s, lease, self._clock.now_ms())))

    def carried(self) -> Mapping[str, bool]:
        """Leases for which something is kept, and whether both signed."""
        now = self._clock.now_ms()
        return {name: bool(one.terms) for name, one in self.state.routes.items() if one.kept(now)}

    def sums(self, lease: str) -> Sums | None:
        """What is known of its money."""
        return shown.sums(self.state, lease)

    # ---- payments --------------------------------------------------------------------------------

    async def hop_paid(self, message: wire.HopPaid) -> Sequence[str]:
        """The leases of which more is paid now; a refused payment is answered to its payer."""
        vk = message.voucher.session_vk
        if vk not in self.state.hops_in:
            raise LeaseUnknown("there is no such hop")
        payment_of(message, None)  # what cannot be read is the sender's own affair
        before = self.state.book.hops_in[vk]

        def read(state: State, came: Mapping[bytes, Payment]) -> Message:
            return payment_of(message, came.get(vk) or state.book.hops_in[vk].last)

        n = payment_of(message, None).signed.statement.n
        if before.last is not None and n < before.last.signed.statement.n:
            return []  # void, whatever it says
        try:
            await self.writer.hear(Word(read))
        except HopForked as forked:
            self._post.refuse(vk, n, forked.code, forked.message)
            return []
        except Refusal as refusal:
            self._post.refuse(vk, n, refusal.code, refusal.message)
            return []
        after = self.state.book.hops_in[vk]
        return [
            one.carried.lease
            for one in self.state.routes.values()
            if one.carried.hop_in == vk and after.amount(one.terms) > before.amount(one.terms)
        ]

    async def hop_refused(self, provider: str, message: wire.HopRefused) -> None:
        """All leaves are sent again; a provider that speaks is one that was heard."""
        hop = self.state.hops_out.get(message.session_vk)
        if hop is None or hop.provider != provider:
            raise LeaseUnknown("there is no such hop to this provider")
        self._post.refused(self.state, message)
        await self.spoke(hop.session_vk)

    async def paid(self, provider: str, message: wire.PaidSent) -> None:
        """The provider's word, written down and told on."""
        route = self.state.routes.get(message.lease)
        if route is None or not route.terms or route.provider != provider:
            raise LeaseUnknown("this provider serves no such lease over this router")
        made = route.carried
        said = Paid(made.lease_vk, made.lease, message.amount, message.signature)
        await self.writer.hear(Word(lambda _s, _c: said))
        await self.spoke(made.hop_out)

    async def spoke(self, hop: bytes) -> None:
        """After a restore: its provider showed what it has, so signing goes on."""
        if self.state.hops_out[hop].unsure:
            await self.writer.change(
                lambda state: spoken(state, hop, self.writer.signers(state, but=hop))
            )

    def welcome(self, provider: str) -> Sequence[wire.Message]:
        """To an adapter that just connected."""
        self.welcomed[provider] = self._clock.now_ms()
        self.bell.ring()
        return self._post.welcome(self.state, provider)

    def resume(self, session_vk: bytes) -> Sequence[wire.Message]:
        """To a payer that just subscribed."""
        return resumed(self.state, session_vk)

    def evidence(
        self, lease: str, side: shown.Side
    ) -> tuple[RouteEvidence, HopEvidence | None] | None:
        """For a bill."""
        return shown.evidence(self.state, lease, side)

    def _terms(self, lease: str) -> bytes:
        route = self.state.routes.get(lease)
        if route is None or not route.terms:
            raise LeaseUnknown("this router carries no such lease")
        return route.terms
