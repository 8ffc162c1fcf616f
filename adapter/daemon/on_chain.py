"""What is asked of the adapter's own eye on the chain."""

from __future__ import annotations

from adapter.core.events import Examine, Settle, Watch
from adapter.daemon.ports import Chain


def ask(chain: Chain | None, effect: Watch | Examine | Settle) -> None:
    """Of *chain*; of none nothing: once there is one, it looks at all that is open."""
    if chain is None:
        return
    match effect:
        case Watch(session_vk):
            chain.watch(session_vk)
        case Examine(session_vk, tx):
            chain.examine(session_vk, tx)
        case Settle(session_vk):
            chain.settle(session_vk)
