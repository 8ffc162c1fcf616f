"""What a router says: payments to providers with only the leaves that they do not have, Paid to
payers. Whom it could not reach is told again when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from marketplace.domain.money.keep import Keep
from marketplace.domain.money.route.hop import Payment
from marketplace.domain.money.route.messages import Send
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.market.base.routing import TellPayer, TellProvider
from marketplace.router.keys import RouterKeys
from marketplace.router.limits import Limits
from marketplace.router.state import HopOut, Seen, State

log = structlog.get_logger("router")
KEPT = 2
"""Times the idle time of a hop out that its provider is asked to keep it: the router ends it."""


class Post:
    """Remembers which payment each provider has; *keys* sign orders about hops out."""

    def __init__(self, keys: RouterKeys, limits: Limits) -> None:
        self._keys = keys
        self._limits = limits
        self._provider: TellProvider = lambda _provider, _message: False
        self._payer: TellPayer = lambda _hop, _message: False
        self._had: dict[bytes, Payment] = {}
        self._again: dict[bytes, int] = {}

    def heard_by(self, tell_provider: TellProvider, tell_payer: TellPayer) -> None:
        """From now on."""
        self._provider, self._payer = tell_provider, tell_payer

    def send(self, state: State, effects: Iterable[Send]) -> None:
        """What was written down; receipts go to the payer by the market itself."""
        for one in effects:
            if isinstance(one.message, Payment):
                self._pay(state.hops_out[one.hop], one.message)
            elif isinstance(one.message, Paid):
                self._payer(one.hop, paid_frame(one.message))

    def _pay(self, hop: HopOut, payment: Payment) -> None:
        vk = hop.session_vk
        if self._provider(hop.provider, frame_of(payment, self._had.get(vk))):
            self._had[vk] = payment
        else:
            self._had.pop(vk, None)

    def refuse(self, hop: bytes, n: int, code: str, message: str) -> None:
        """A consumer's payment was not taken: its payer then sends all leaves."""
        self._payer(hop, wire.HopRefused(hop, n, code, message[:200]))

    def refused(self, state: State, message: wire.HopRefused) -> None:
        """All leaves, once for each number: a second refusal of it is no lost frame."""
        vk, hop = message.session_vk, state.hops_out[message.session_vk]
        last = state.book.hops_out[vk].last
        self._had.pop(vk, None)
        if last is None or self._again.get(vk) == last.signed.statement.n:
            log.warning("hop_refused", hop=vk.hex()[:16], code=message.code, why=message.message)
            return
        self._again[vk] = last.signed.statement.n
        self._pay(hop, last)

    def opened(self, state: State, hop: bytes) -> None:
        """A hop was opened, is to end, or goes on."""
        known = state.hops_out[hop]
        for message in self.about(known, state.book.hops_out[hop].total):
            self._provider(known.provider, message)

    def about(self, hop: HopOut, total: int) -> list[wire.Message]:
        """What a provider is to know of its hop: *total* is signed on it."""
        session = self._keys.session(hop.session_vk)
        said: list[wire.Message] = [wire.HopOpened(hop.session_vk, hop.owner, hop.tx, hop.index)]
        if hop.asked_ms:
            return [*said, wire.EndSent(End.sign(session, total))]
        return [*said, wire.KeepSent(Keep.sign(session, KEPT * self._limits.idle_ms))]

    def welcome(self, state: State, provider: str) -> list[wire.Message]:
        """To an adapter that just connected: it has none of our payments for certain."""
        said: list[wire.Message] = []
        for vk, hop in state.hops_out.items():
            if hop.provider != provider or not hop.tx or hop.seen is Seen.ENDED:
                continue
            paying = state.book.hops_out[vk]
            opened, *orders = self.about(hop, paying.total)
            said.append(opened)
            self._had.pop(vk, None)
            if paying.last is not None:
                said.append(frame_of(paying.last, None))
                self._had[vk] = paying.last
            said += orders
        return said


def resumed(state: State, hop: bytes) -> list[wire.Message]:
    """To a payer that just subscribed to its hop in: what its leases' providers were paid."""
    return [
        paid_frame(one.paid)
        for one in state.book.leases.values()
        if one.hop_in == hop and one.paid is not None and one.paid.amount < max(one.reserve, 1)
    ]


def paid_frame(paid: Paid) -> wire.PaidSent:
    """A provider's word, as it goes on."""
    return wire.PaidSent(paid.lease, paid.amount, paid.signature)
