"""What a lapse is counted as, and against whom: written with whatever else the decision changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from marketplace.market.base.ports import Change
from marketplace.market.base.records import Lease, Standing
from marketplace.market.context import Market
from marketplace.market.core import standing
from marketplace.market.core.outcome import Lapse

LET_DOWN = "letdown."
"""What the name of a standing begins with that says when an unproven provider let an account down.
"""


@dataclass
class Remembered:
    """Standings as a transaction is to leave them; each is read once and written once."""

    market: Market
    _read: dict[str, Standing | None] = field(default_factory=dict[str, Standing | None])
    _now: dict[str, Standing] = field(default_factory=dict[str, Standing])
    _providers: set[str] = field(default_factory=set[str])

    async def count(self, lapse: Lapse, lease: Lease) -> None:
        """*lapse*, against whoever is to blame for what became of *lease*."""
        rules, now = self.market.settings, self.market.now
        match lapse:
            case Lapse.LET_LAPSE:
                await self._change(lease.account, lambda at: standing.lapsed(rules, at, now))
            case Lapse.ENDED_UNPAID:
                known = await self._change(
                    lease.account, lambda at: standing.struck(rules, at, now, owing=lease.id)
                )
                if known.address and not known.paid:
                    await self._change(known.address, lambda at: standing.struck(rules, at, now))
            case Lapse.ANSWERS_LATE:
                await self._change(lease.account, lambda at: standing.owes(at, lease.id))
            case Lapse.NEVER_STARTED:
                known = await self._change(
                    lease.provider, lambda at: standing.struck(rules, at, now)
                )
                self._providers.add(lease.provider)
                if not known.paid:
                    name = LET_DOWN + lease.account
                    await self._change(name, lambda at: standing.struck(rules, at, now))

    async def _change(self, name: str, how: Callable[[Standing], Standing]) -> Standing:
        if name not in self._read:
            self._read[name] = await self.market.store.get(Standing, name)
        before = self._now.get(name) or self._read[name] or Standing(name)
        self._now[name] = how(before)
        return self._now[name]

    def write(self, change: Change) -> None:
        """Into *change*: what differs from what was read."""
        for name, known in self._now.items():
            before = self._read[name]
            if before is None:
                change.puts.append(known)
            elif known != before:
                change.sets.append(known)

    def show(self) -> None:
        """To this process's own view of providers, after the commit."""
        self.market.starts.take([self._now[name] for name in self._providers])
