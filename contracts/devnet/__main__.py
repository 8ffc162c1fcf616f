"""``python -m contracts.devnet``."""

import sys

from contracts.devnet.server import main

sys.exit(main())
