"""``python -m marketplace.cli.embedded.child PARENT COMMAND …``: ``tally COMMAND …``, ended with
its supervisor.

A supervisor that is killed cannot stop its parts. Left alone they would hold ports, journals and
the ledger, and keep the next start out; so each part asks the kernel to be killed when process
PARENT dies. Every part is safe to kill at any instruction, which is why SIGKILL will do. What a
part started itself (workloads) lives on, as it does when the part alone dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

from marketplace.cli.main import main

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def die_with(parent: int) -> None:
    """Be killed when *parent* dies, at once if it is dead already. Elsewhere than on Linux:
    nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    die_with(int(sys.argv.pop(1)))
    main()
