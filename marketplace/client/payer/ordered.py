"""What was ordered of a cluster's member, and what may be billed for it: rule I12. Pure.

The payer signs the orders itself, so it knows better than anybody what may be billed: nothing
before the first RUN, and nothing from a HOLD (or a MEET) to the next RUN. An adapter that has not
heard of a HOLD yet serves on in good faith: for as long as it serves unpaid at all
(``lease_book.UNSEEN_TICKS``) that is paid for, and from then on it loses no more than it ever may
with a payer that is away. Its own word that it follows the order ends that time early.

Two bounds hold together. The payer's own clock of the lease stands still while the order does not
say RUN (``LeaseBook.elapsed_ms``), so that late or withheld receipts gain nothing; and what a
receipt bills beyond *most* is left out for good, so that time which was not used before cannot be
made up for in a HOLD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.errors import NotFound
from marketplace.domain.money.receipt import Receipt, ReceiptRefused
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import MeshPeer

FOLLOWED: Final = "ORDERED"
"""An adapter's word for the stage of a lease: it acts by the order that is named with it."""
_EVER: Final = -(2**62)


class ReceiptUnordered(ReceiptRefused):
    """It bills time, and no order to RUN was ever signed."""

    code = "RECEIPT_UNORDERED"
    remedy = "stop paying this provider and keep the receipt: a cluster's member is free until RUN"


class OrdersLost(ReceiptUnordered):
    """The same, by a book whose end was damaged: an order may have been in it."""

    code = "ORDERS_LOST"
    remedy = "nothing is paid until the lease's newest order was read again from the market"


class NothingToOrder(NotFound):
    """No member of a cluster that lives, and that this process pays for."""

    code = "NOTHING_TO_ORDER"
    remedy = "orders are given where the member's channel is held, from its agreement to its end"


@dataclass(frozen=True)
class Orders:
    """What was ordered of one lease.

    *ran*: a RUN was signed once; *still_ms*: from when the own clock stands still by the newest
    order, None while that is RUN; *most*: the most unit-ms, in all, that are paid for until the
    next RUN; *denied*: of those that were billed, how many never are; *unsure*: orders may have
    been lost with the end of the book.
    """

    newest: SignedOrder | None = None
    ran: bool = False
    still_ms: int | None = _EVER
    most: int | None = 0
    denied: int = 0
    unsure: bool = False

    @property
    def version(self) -> int:
        """Of the newest; 0 before the first."""
        return self.newest.order.version if self.newest is not None else 0

    @property
    def verb(self) -> Verb:
        """The newest one's; before the first a member does as after a MEET."""
        return self.newest.order.verb if self.newest is not None else Verb.MEET

    @property
    def is_held(self) -> bool:
        """Whether the newest one keeps the lease from being billed."""
        return self.still_ms is not None

    def next(self, lease: str, verb: Verb, peers: Sequence[MeshPeer]) -> ClusterOrder | None:
        """The order to sign; None where the newest says just that. Malformed."""
        meets = tuple(sorted(peers, key=lambda peer: peer.member))
        if self.newest is not None:
            newest = self.newest.order
            if (newest.verb, newest.peers) == (verb, meets):
                return None
        order = ClusterOrder(lease, self.version + 1, verb, meets)
        return ClusterOrder.decode(order.encode())

    def signed(self, order: SignedOrder, billed: int, until_ms: int, more: int) -> Orders:
        """After *order*: *billed* unit-ms are on the newest receipt, and an adapter that has not
        heard of it may bill until *until_ms*, *more* unit-ms in all.
        """
        if order.order.verb is Verb.RUN:
            over = 0 if self.most is None else max(0, billed - self.most)
            return Orders(order, True, None, None, self.denied + over)
        if self.most is not None:  # it has not run since: no further grace
            return replace(self, newest=order, unsure=False)
        return replace(self, newest=order, still_ms=until_ms, most=billed + more, unsure=False)

    def lost(self, billed: int) -> Orders:
        """Its member is given up, with *billed* unit-ms on its newest receipt: the others wait, or
        go on without it, and what is billed beyond is paid by nobody.
        """
        return replace(self, most=billed if self.most is None else min(self.most, billed))

    def followed(self, now_ms: int) -> Orders:
        """The adapter says that it acts by the newest order: what does not say RUN holds now."""
        return self if self.still_ms is None else replace(self, still_ms=min(self.still_ms, now_ms))

    def is_newest(self, detail: Mapping[str, object]) -> bool:
        """Whether an adapter that follows the order of *detail* follows the newest one."""
        return self.newest is not None and detail.get("version") == self.version

    def payable(self, billed: int) -> int:
        """Of *billed* unit-ms, those that are paid for."""
        return max(0, (billed if self.most is None else min(billed, self.most)) - self.denied)

    def check(self, receipt: Receipt) -> None:
        """:class:`ReceiptUnordered` if it bills what no order ever allowed."""
        if self.ran or not receipt.unit_ms_total:
            return
        refused = OrdersLost if self.unsure else ReceiptUnordered
        why = f"{receipt.unit_ms_total} unit-ms are billed, and no RUN was ordered"
        raise refused(why, seq=receipt.seq, lease=receipt.lease)
