"""The devnet as a server: ``python -m contracts.devnet --port 0 --state DIR`` or, inside a process,
``serve()``.

When it is ready it prints one line of JSON: url (Blockfrost's API with its version), base_url (what
``BlockFrostChainContext`` and ``BlockFrostApi`` take: they add the version themselves), control
(our own controls), faucet, network_magic, pid.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from contracts.devnet.face.app import API, application
from contracts.devnet.node import Devnet, DevnetRefusal, wall_clock_ms
from contracts.devnet.pace import NAMED, Pace
from contracts.devnet.parameters import NETWORK_MAGIC
from contracts.devnet.source import LedgerMissing, fetch_ledger

_START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Served:
    """A devnet that answers at ``base_url``; ``devnet`` is the chain itself, in this process."""

    devnet: Devnet
    origin: str

    @property
    def url(self) -> str:
        return self.origin + API

    @property
    def base_url(self) -> str:
        return self.url.rpartition("/")[0]

    @property
    def control(self) -> str:
        return f"{self.origin}/devnet"


class _Server(uvicorn.Server):
    """Tells when it listens. Signals are the caller's where it runs in a thread."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by what it accepts: else the second part of each answer waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    return listener


def _config(devnet: Devnet) -> uvicorn.Config:
    return uvicorn.Config(
        application(devnet), log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )


@contextmanager
def serve(
    state_dir: Path | str | None = None,
    block_ms: int = 0,
    *,
    port: int = 0,
    clock: Callable[[], int] = wall_clock_ms,
    pace: Pace | None = None,
) -> Generator[Served, None, None]:
    """Serves a devnet on loopback from a thread of this process until the block ends. port 0: any
    free one.
    """
    with (
        Devnet(state_dir, block_ms, clock=clock, pace=pace) as devnet,
        _listen("127.0.0.1", port) as listener,
    ):
        listening = threading.Event()
        server = _Server(_config(devnet), listening.set)
        thread = threading.Thread(
            target=server.run, args=([listener],), name="devnet-http", daemon=True
        )
        thread.start()
        try:
            if not listening.wait(_START_SECONDS):
                raise TimeoutError("the devnet's server did not start")
            yield Served(devnet, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the devnet until SIGINT or SIGTERM. Returns the exit status."""
    options = _options(argv)
    # uvicorn ends its loop on a signal and then raises the signal again, for whoever handled it
    # before: close the chain in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.fetch:
            fetch_ledger()
            return 0
        with (
            Devnet(options.state, options.block_ms, pace=NAMED.get(options.like)) as devnet,
            _listen(options.host, options.port) as listener,
        ):
            origin = f"http://{options.host}:{listener.getsockname()[1]}"
            served = Served(devnet, origin)
            _Server(_config(devnet), lambda: _announce(served)).run([listener])
    except (LedgerMissing, DevnetRefusal, OSError) as problem:
        print(f"devnet: {problem}", file=sys.stderr)  # noqa: T201 - a command's answer
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _announce(served: Served) -> None:
    line = {
        "url": served.url,
        "base_url": served.base_url,
        "control": served.control,
        "faucet": f"{served.control}/faucet",
        "network_magic": NETWORK_MAGIC,
        "pid": os.getpid(),
    }
    print(json.dumps(line), flush=True)  # noqa: T201 - the line that a supervisor waits for


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tally devnet", description="A Cardano devnet in one process."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument(
        "--state", type=Path, help="folder that keeps the chain; without it, memory"
    )
    parser.add_argument(
        "--block-ms", type=int, default=1000, help="0: a block for each transaction, at once"
    )
    parser.add_argument("--like", choices=NAMED, help="go as this network does")
    parser.add_argument("--fetch", action="store_true", help="install the ledger and exit")
    return parser.parse_args(argv)
