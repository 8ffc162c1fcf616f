"""What a person gets who asks for a terminal in a workload and names no program."""

from __future__ import annotations

from typing import Final

ANY_SHELL: Final = ("sh", "-c", "command -v bash > /dev/null && exec bash || exec sh")
"""The best that the image has."""
