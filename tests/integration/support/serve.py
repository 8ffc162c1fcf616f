"""A market process of its own: ``python -m tests.integration.support.serve DB FOLDER``.

Prints one JSON line with its URL and its process name; killed by its pid.
"""

from __future__ import annotations

import json
import sys

import anyio

from marketplace.process.main import Config, serve
from tests.integration.support.market import fast


def main() -> None:
    db, folder = sys.argv[1:3]
    settings = fast(process_lease_ms=3_000, propose_ttl_ms=5_000, resume_window_ms=20_000)
    config = Config(
        db, folder, port=0, settings=settings, console=False,
        on_ready=lambda url, _: print(json.dumps({"url": url}), flush=True),
    )  # fmt: skip
    anyio.run(serve, config)


if __name__ == "__main__":
    main()
