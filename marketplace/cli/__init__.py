"""The command line."""

import time
from typing import Final

BEGUN: Final = time.monotonic()
"""When this process began to load a command."""
