"""Which leases are quotes still, or signed and not funded: one process's view, kept beside the
matcher's.

Only the process that matches adds to it, and it asks here before; the store mends it with each
refresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.records import Lease

ASKED: Final = "asked:"
"""What the names of places begin with that are kept for jobs which are just being posted."""
WAITS: Final = "TURN"
"""The stage of a signed lease whose adapter was not told yet: an account that never paid starts one
after the other."""


def unfunded(lease: Lease) -> bool:
    """Whether it holds devices without money: no adapter has seen its channel."""
    if lease.state is LeaseState.FUNDED:
        return lease.stage in ("", WAITS)
    return lease.state in (LeaseState.PROPOSED, LeaseState.OFFERED)


class OpenQuotes:
    """Leases by account and by network address."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, str]] = {}
        self._count: Counter[str] = Counter()

    def add(self, lease: str, account: str, address: str = "") -> None:
        """It holds devices from now on."""
        if lease not in self._of:
            self._of[lease] = (account, address)
            self._count.update((account, address))

    def drop(self, lease: str) -> None:
        """It is funded, or over."""
        known = self._of.pop(lease, None)
        if known is not None:
            self._count.subtract(known)
            self._count += Counter()

    def sync(self, live: Iterable[Lease], addresses: Mapping[str, str]) -> None:
        """As the store has it: *live* are all leases that hold something, *addresses* by
        account.
        """
        waiting = {lease.id: lease.account for lease in live if unfunded(lease)}
        known = {lease for lease in self._of if not lease.startswith(ASKED)}
        for gone in known - waiting.keys():
            self.drop(gone)
        for lease, account in waiting.items():
            self.add(lease, account, addresses.get(account, ""))

    def count(self, name: str) -> int:
        """How many, of an account or an address."""
        return self._count[name] if name else 0
