"""How long a consumer waits for others."""

from __future__ import annotations

from typing import Final

CLOSE_AFTER_S: Final = 3600.0
"""So long may a provider leave an End unanswered before its channel is closed on chain."""
