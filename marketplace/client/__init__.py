"""The consumer's side: SDK, payer, purse, verifier. ``from marketplace.client import Market, Purse``.

``marketplace.client.sync`` has the same without ``async``.
"""

from marketplace.client.market import Job, Market, Offered, Purse

__all__ = ["Job", "Market", "Offered", "Purse"]
