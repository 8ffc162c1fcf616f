"""Where a command prints for people."""

from __future__ import annotations

from typing import Final

from rich.console import Console

# Lines are never broken: what is copied or piped (ids, addresses, hashes) must stay whole.
out: Final = Console(highlight=False, emoji=False, soft_wrap=True)
err: Final = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
