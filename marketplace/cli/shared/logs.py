"""Where a command's logs go."""

from __future__ import annotations

import os
import sys


def configure_logs() -> None:
    """Logs are for stderr; TALLY_LOG=info or debug shows more of them.

    Called where something that logs is imported: structlog costs more than most reads.
    """
    import logging

    import structlog

    level = logging.getLevelNamesMapping().get(os.environ.get("TALLY_LOG", "").upper())
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level or logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
