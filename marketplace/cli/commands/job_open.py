"""``tally job open``: the address of a service, and the page in a browser.

A browser can say who it is by the address alone at its first load, and the arguments of a process
are read by whoever is on the machine. So the browser is given a file that only this user reads. In
it stands a ticket for the port's own origin; where the market has none, a key that lasts half a
day, has no budget and may do nothing but ``jobs``.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import anyio.to_thread

from marketplace.cli.shared.addresses import Address, addresses
from marketplace.client.net.answers import JobAnswer, NewKeyAnswer
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read
from marketplace.client.sdk.ports import Entrance
from marketplace.disk import private_folder
from marketplace.domain.errors import Malformed, Refusal

LASTS_MS: Final = 12 * 3_600_000
READ_S: Final = 10.0  # until then a browser that was started has read its file


class NotRunning(Refusal):
    """Nothing listens: the job is not running."""

    code = "NOT_RUNNING"
    remedy = "wait until it runs: `tally job show ID` says where it stands"


def chosen(market: str, view: JobAnswer, port: int | None) -> Address:
    """The port that is meant; a refusal names those that there are."""
    found = addresses(market, view)
    if not found:
        raise Malformed(f"{view['id']} has no ports: a job of kind `service` has")
    several = ", ".join(str(one.port) for one in found)
    if port is None and len(found) > 1:
        raise Malformed(f"{view['id']} has several ports: name one of {several}")
    for one in found:
        if port in (None, one.port):
            if view["state"] != "RUNNING":
                raise NotRunning(f"{view['id']} is {view['state']}")
            return one
    raise Malformed(f"{view['id']} has no port {port}: name one of {several}")


def has_browser() -> bool:
    """Whether somebody is there to look at a page."""
    if not sys.stdout.isatty() and "BROWSER" not in os.environ:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


async def open_page(http: Http, home: Path, one: Address, job: str) -> bool:
    """The page in a browser; whether one was started."""
    if one.auth == "public":
        return await anyio.to_thread.run_sync(webbrowser.open, one.url)
    if one.own:
        entrance = await Entrance.of_port(http, job, one.port).ticket()
    else:
        entrance = f"{one.url}?token={quote(await page_key(http, f'open {job}:{one.port}'))}"
    return await open_entrance(home, entrance)


async def open_entrance(home: Path, entrance: str) -> bool:
    """An address with a secret in it, in a browser; whether one was started."""
    file = await anyio.to_thread.run_sync(_written, home, entrance)
    try:
        started = await anyio.to_thread.run_sync(webbrowser.open, file.as_uri())
        if started:
            await anyio.sleep(READ_S)
        return started
    finally:
        file.unlink(missing_ok=True)


async def page_key(http: Http, name: str) -> str:
    """A key for one page: no budget, half a day, and no verb but ``jobs``."""
    until = int(time.time() * 1000) + LASTS_MS
    asked = {"name": name[:80], "verbs": ["jobs"], "budget": 0, "expires_at_ms": until}
    secret = read(NewKeyAnswer, await http.post("/v1/keys", asked), "key")["secret"]
    if secret is None:
        raise Malformed("the market gave a key without its secret")
    return secret


def _written(home: Path, target: str) -> Path:
    """A page of this user's alone that goes on to *target*, without telling it whence."""
    folder = private_folder(home)
    handle, name = tempfile.mkstemp(dir=folder, prefix="open-", suffix=".html")  # mode 0600
    safe = html.escape(target, quote=True)
    with os.fdopen(handle, "w") as file:
        file.write(
            '<!doctype html><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={safe}"><title>Tally</title>\n'
        )
    return Path(name)
