"""``tally webhook``: hear what happens to one's jobs, as a server of one's own would."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, Final

import anyio
import anyio.to_thread
import typer

from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import Home, Json, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import err, out
from marketplace.domain.errors import Malformed

app = typer.Typer(
    help="Hear what happens to your jobs.", no_args_is_help=True, rich_markup_mode=None
)
MOST_BYTES: Final = 1 << 20
Heard = queue.Queue["tuple[str, bytes] | None"]


@app.callback()
def webhook() -> None:
    """Hear what happens to your jobs."""


@app.command()
def listen(
    home: Home,
    market: MarketOption,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="Of events; none: all.")] = None,
    port: Annotated[int, typer.Option(help="To listen at; 0: any that is free.")] = 0,
    url: Annotated[
        str, typer.Option(help="How the market reaches this port; without it, as this machine.")
    ] = "",
    count: Annotated[int, typer.Option(min=0, help="Stop after so many; 0: at Ctrl-C.")] = 0,
    as_json: Json = False,
) -> None:
    """Print each delivery whose signature holds, until Ctrl-C.

    Registers a webhook at a port of this machine, has a test delivered, and removes it in the end.
    Only a devnet's market calls this machine; for another, bring a tunnel and name it by --url.
    """

    async def run() -> None:
        with _listening(port) as (heard, bound):
            where = Where(market, "", "", home)
            async with reading(where) as reader:
                target = url or f"http://127.0.0.1:{bound}/"
                made = await reader.http.post("/v1/webhooks", {"url": target, "kinds": kinds or []})
                path = f"/v1/webhooks/{made['id']}"
                err.print(f"listening at {target} as {made['id']}", markup=False)
                try:
                    await reader.http.post(f"{path}/test", {})
                    await _print(heard, str(made["secret"]), count, as_json)
                finally:
                    heard.put(None)  # whoever waits for the next is let go
                    with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                        await reader.http.delete(path)

    anyio.run(run)


async def _print(heard: Heard, secret: str, count: int, as_json: bool) -> None:
    printed = 0
    while not count or printed < count:
        found = await anyio.to_thread.run_sync(heard.get, abandon_on_cancel=True)
        if found is None:
            return
        try:
            told = verified(secret, *found)
        except Malformed as wrong:
            err.print(f"not printed: {wrong.message}", markup=False)
            continue
        printed += 1
        if as_json:
            print_json(told)
        else:
            detail = json.dumps(told["detail"], ensure_ascii=False) if told["detail"] else ""
            out.print(f"{told['kind']:<16} {told['job']:<30} {detail}".rstrip(), markup=False)


def verified(secret: str, signature: str, body: bytes) -> dict[str, Any]:
    """The delivery that *body* is; Malformed unless *secret* signed it."""
    stamp, _, mac = signature.partition(",v1=")
    signed = f"{stamp.removeprefix('t=')}.".encode() + body
    wanted = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted, mac):
        raise Malformed("a delivery without this webhook's signature")
    return json.loads(body)


@contextmanager
def _listening(port: int) -> Generator[tuple[Heard, int]]:
    """A server on this machine alone, and what it is sent."""
    heard: Heard = queue.Queue(1000)

    class Ear(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            size = int(length) if length.isdigit() else MOST_BYTES + 1
            if size > MOST_BYTES:
                self.send_error(413)
                return
            body = self.rfile.read(size)
            try:
                heard.put_nowait((self.headers.get("Tally-Signature", ""), body))
            except queue.Full:
                self.send_error(503)  # it comes again
                return
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Deliveries are printed, and nothing else."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Ear)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield heard, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
