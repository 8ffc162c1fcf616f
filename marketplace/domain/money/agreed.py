"""What was agreed on a channel, whoever agreed: terms of a lease, or a router and its payee."""

from __future__ import annotations

from typing import Protocol

from marketplace.domain.money.channel import Consts


class Agreed(Protocol):
    """By the terms of a channel's first lease, or on a hop of a router."""

    @property
    def magic(self) -> int:
        """The network."""
        ...

    @property
    def session_vk(self) -> bytes:
        """The channel's id."""
        ...

    @property
    def asset(self) -> str:
        """Empty for ADA, else hex of policy and name."""
        ...

    def consts(self) -> Consts:
        """What its datum must say."""
        ...
