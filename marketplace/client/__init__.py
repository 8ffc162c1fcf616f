"""The consumer's side: SDK, payer, purse, verifier. ``from marketplace.client import Market,
Purse``.

``marketplace.client.sdk.sync`` has the same without ``async``. The names are looked up when they
are used: the payer brings libraries along that a reading command does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marketplace.client.sdk.market import CheckedQuote, Job, Market, Purse

__all__ = ["CheckedQuote", "Job", "Market", "Purse"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("marketplace.client.sdk.market"), name)
