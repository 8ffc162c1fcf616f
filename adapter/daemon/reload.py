"""A configuration that is read again while leases run.

What an offer asks and says of itself may change at any time: a lease that runs keeps the price and
the terms that both signed. Everything else is what the process was put together from; of that a
reload says that it needs a restart, and leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from adapter.config import Config
from marketplace.domain.metering.kinds import CORE, GPU, show_rate

LIVE: Final = ("prices", "minimum", "labels", "region", "windows")


class Settings:
    """The configuration in force. *reread* reads file, environment and options again, as at the
    start; *changed* is called when the offer may be another.
    """

    def __init__(self, config: Config, reread: Callable[[], Config] | None = None) -> None:
        self.now = config
        self._reread = reread or (lambda: config)
        self.changed: Callable[[], None] = lambda: None

    def reload(self) -> dict[str, Any]:
        """Read again and put in force what may be; ConfigRefused leaves all as it is. What changed:
        ``{"applied": [keys], "restart": [keys], "core": rate, "prices": {name: rate}}``.
        """
        new = self._reread()
        differs = [
            one.name
            for one in fields(Config)
            if getattr(new, one.name) != getattr(self.now, one.name)
        ]
        applied = [name for name in differs if name in LIVE]
        self.now = replace(self.now, **{name: getattr(new, name) for name in applied})
        if applied:
            self.changed()
        prices = self.now.prices
        return {
            "applied": applied,
            "restart": [name for name in differs if name not in LIVE],
            "core": None if prices.core_rate is None else show_rate(prices.core_rate, CORE.name),
            "prices": {name: show_rate(rate, GPU.name) for name, rate in prices.models.items()},
        }
