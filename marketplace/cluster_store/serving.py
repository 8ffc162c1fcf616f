"""The process that serves the market's stores, until what began it closes this one's input.

``python -m marketplace.cluster_store.serving FOLDER BYTES HOST PORT KEEP_S``; the first line of its
input is the secret in hex, each further one the leases that live, as JSON: store by lease.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from cheroot.wsgi import Server
from wsgidav.wsgidav_app import WsgiDAVApp

from marketplace.cluster_store.folders import Room, Stores
from marketplace.cluster_store.gate import Environ, Gate, Living, StartResponse

THREADS: Final = 32
IDLE_S: Final = 150
"""A member that is frozen while it writes sends nothing for as long."""
SWEEP_S: Final = 3600.0


def app_of(root: Path, most: int, secret: bytes, living: Living) -> Any:
    """What serves all stores below *root*, with *most* bytes in each."""
    logging.getLogger("wsgidav").setLevel(logging.ERROR)
    room = Room(root, most)
    dav = WsgiDAVApp(
        {
            "provider_mapping": {"/": Stores(root, room)},
            "simple_dc": {"user_mapping": {"*": True}},  # the gate asks
            "http_authenticator": {"accept_basic": True, "accept_digest": False,
                                   "default_to_digest": False},
            "lock_storage": None,
            "property_manager": None,
            "dir_browser": {"enable": False},
            "suppress_version_info": True,
            "logging": {"enable": False},
            "verbose": 1,
        }
    )  # fmt: skip

    def served(environ: Environ, start_response: StartResponse) -> Any:
        folder = root / environ["tally.store"]
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)  # when it was used last
        environ.pop("HTTP_AUTHORIZATION", None)
        return dav(environ, start_response)

    return Gate(served, room, secret, living)


def sweep(root: Path, keep_s: float, now: float) -> list[str]:
    """Remove stores that nobody used for *keep_s*; which they were."""
    gone: list[str] = []
    for folder in root.iterdir():
        if len(folder.name) == 32 and folder.is_dir() and now - folder.stat().st_mtime > keep_s:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    return gone


def _forever(root: Path, keep_s: float) -> None:
    while True:
        sweep(root, keep_s, time.time())
        time.sleep(SWEEP_S)


def main() -> None:
    """See above."""
    folder, most, host, port, keep_s = sys.argv[1:]
    root = Path(folder)
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    secret, living = bytes.fromhex(sys.stdin.readline()), Living()
    server = Server(
        (host, int(port)),
        app_of(root, int(most), secret, living),
        numthreads=THREADS,
        timeout=IDLE_S,
        server_name="tally",
    )
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    threading.Thread(target=_forever, args=(root, float(keep_s)), daemon=True).start()
    print(json.dumps({"port": server.bind_addr[1]}), flush=True)  # noqa: T201
    for line in sys.stdin:
        living.told(json.loads(line))
    os._exit(0)  # what is on its way is tried again by who sends it


if __name__ == "__main__":
    main()
