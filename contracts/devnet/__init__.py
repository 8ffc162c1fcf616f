"""The devnet: an embedded Cardano ledger behind Blockfrost's API, for development, tests and the
demo.

``Devnet`` is the chain inside this process; ``serve()`` puts its HTTP face on a free port; ``python
-m contracts.devnet`` is the same as a process of its own. Whoever talks to the face cannot tell it
from a public network, but for its speed and its controls.
"""

from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.node import Devnet, DevnetRefusal
from contracts.devnet.server import Served, main, serve
from contracts.devnet.source import LedgerMissing

__all__ = ["Devnet", "DevnetRefusal", "LedgerMissing", "LedgerRefusal", "Served", "main", "serve"]
