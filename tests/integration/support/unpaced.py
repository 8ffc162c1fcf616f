"""The market of ``tally bench hub`` without the limits that keep strangers from its leases: the
control.
"""

from __future__ import annotations

import sys

from benchmarks import hub
from marketplace.hub import pace
from marketplace.market.leases import adapters

if __name__ == "__main__":
    pace.Pace.__init__.__defaults__ = (1 << 40, 1 << 40)
    setattr(adapters, "MOST_HELD", 1 << 20)  # noqa: B010 (a constant, but for this control)
    sys.exit(hub.main(sys.argv[1:]))
