"""Who is asked before a quote is agreed to: a person takes time, meanwhile it may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from marketplace.client.jobs.core.quotes import CheckedQuote

Confirm = Callable[[CheckedQuote], Awaitable[bool]]
Shown = Callable[[CheckedQuote], Awaitable[object]]


@dataclass
class Asking:
    """*confirm* answers for a job, *shown* is only told; *agreed*: what was said yes to."""

    confirm: Confirm | None = None
    shown: Shown | None = None
    agreed: CheckedQuote | None = None

    def has_to_be_asked(self, offered: CheckedQuote) -> bool:
        """Whether nobody has said yes to these terms, for as much money paid in."""
        if self.confirm is None:
            return False
        known = self.agreed
        return (
            known is None
            or known.quote.signed.body != offered.quote.signed.body
            or known.amount < offered.amount
        )

    async def ask(self, offered: CheckedQuote) -> bool:
        """The answer; a yes is remembered."""
        yes = self.confirm is None or await self.confirm(offered)
        self.agreed = offered if yes else None
        return yes

    async def tell(self, offered: CheckedQuote) -> None:
        """It is about to be agreed to."""
        if self.shown is not None:
            await self.shown(offered)
