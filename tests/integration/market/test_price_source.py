"""A price source beside a market: shown with its time; when it lies or dies, no charge changes."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import anyio
import anyio.abc
import httpx

from marketplace.domain.keys import Signer
from marketplace.process.exchange import look
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import market, sign_in

REPLY = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


class Source:
    """Answers what *says* holds, to every question."""

    def __init__(self) -> None:
        self.says, self.asked = b"", 0

    async def answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            self.asked += 1
            with contextlib.suppress(anyio.BrokenResourceError):  # who hears enough hangs up
                await stream.send(REPLY.encode() + self.says)


def test_a_source_is_shown_with_its_time_and_charges_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        source, provider, consumer = Source(), seed("provider"), seed("consumer")
        door = await anyio.create_tcp_listener(local_host="127.0.0.1")
        at = f"http://127.0.0.1:{door.extra(anyio.abc.SocketAttribute.local_port)}/ada"
        db = f"sqlite:///{tmp_path}/m.db"
        async with door, anyio.create_task_group() as tasks:
            serving, stopped = anyio.CancelScope(), anyio.Event()

            async def serve() -> None:
                with serving:
                    await door.serve(source.answer)
                stopped.set()

            tasks.start_soon(serve)
            async with market(db, tmp_path, console=True) as (url, inside):
                adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
                async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
                    await sign_in(client, consumer)

                    async def page() -> str:
                        return (await client.get("/offers")).text

                    async def price() -> int:
                        session = Signer(os.urandom(32))
                        asked = body(spec(), session, consumer)
                        posted = await client.post("/v1/jobs", json=asked)
                        view = await quoted(client, posted.json()["id"])
                        return int(view["quote"]["ceiling"])

                    async def listed() -> object:
                        return (await client.get("/v1/offers")).json()["items"]

                    await until(listed)
                    before = await price()
                    assert "≈" not in await page()  # none by default
                    now = inside.market.now
                    good = {"ada_usd": "0.50", "ada_eur": "0.40", "at_ms": now}
                    source.says = json.dumps(good).encode()
                    await look(inside.market, at)
                    shown = await page()
                    # 100 lovelace a second are 0.36 ADA an hour.
                    assert "≈ $0.18 · €0.144" in shown and "at the price of " in shown
                    assert 'data-usd="500000"' in shown
                    assert await price() == before
                    # It lies, and then it is gone: the last good price stays, with its time.
                    kept = inside.market.exchange
                    for says in (b"<html>", b'{"ada_usd": "99999", "at_ms": 1}', b"x" * 100_000):
                        source.says = says
                        await look(inside.market, at)
                        assert inside.market.exchange == kept
                    serving.cancel()
                    await stopped.wait()
                    await door.aclose()
                    await look(inside.market, at)
                    assert inside.market.exchange == kept and source.asked >= 4
                    assert await price() == before
            tasks.cancel_scope.cancel()

    anyio.run(run)
