"""The consumer's order how long its idle channel stays open, on its way to the adapter."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from marketplace.domain.keys import Signer
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.market.base.records import Channel
from tests.fakes import FakePayer, until, working
from tests.integration.market.test_access import open_market
from tests.integration.security.test_accounts import post, sign

MINUTE = 60_000


def test_an_order_is_kept_and_said_again_to_an_adapter_that_comes_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            session = Signer(os.urandom(32))
            await sign(client, await post(client, session), session, {})
            url = str(client.base_url).rstrip("/")
            payer = FakePayer(url, {session.verify_key: session})
            long = Keep.sign(session, 10 * MINUTE)
            async with working(payer):
                await until(lambda: payer.subscribed)
                for order in (long, Keep.sign(session, MINUTE)):
                    await payer.socket.send(wire.KeepSent(order))
                await until(lambda: len(adapter.keeps) == 2)
            known = await inside.market.store.get(Channel, session.verify_key)
            assert known is not None and known.keep == long  # the longest, whatever came last
            adapter.keeps.clear()
            await adapter.send(wire.LeasesHeld(sorted(adapter.leases)))
            await until(lambda: adapter.keeps == [long])

    anyio.run(run)


def test_an_order_by_another_key_reaches_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            mine, other = Signer(os.urandom(32)), Signer(os.urandom(32))
            for session in (mine, other):
                await sign(client, await post(client, session), session, {})
            url = str(client.base_url).rstrip("/")
            payer = FakePayer(url, {mine.verify_key: mine})
            async with working(payer):
                await until(lambda: payer.subscribed)
                stolen = Keep(other.verify_key, MINUTE, Keep.sign(mine, MINUTE).signature)
                unknown = Keep.sign(Signer(os.urandom(32)), MINUTE)
                for order in (stolen, unknown):
                    await payer.socket.send(wire.KeepSent(order))
                await until(lambda: len(payer.socket.rejected) == 2)
            assert [r.code for r in payer.socket.rejected] == ["KEEP_REFUSED", "NOT_FOUND"]
            known = await inside.market.store.get(Channel, other.verify_key)
            assert known is not None and (known.keep_ms, adapter.keeps) == (0, [])

    anyio.run(run)


def test_an_ended_channel_is_kept_by_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            session = Signer(os.urandom(32))
            await sign(client, await post(client, session), session, {})
            url = str(client.base_url).rstrip("/")
            payer = FakePayer(url, {session.verify_key: session})
            async with working(payer):
                await until(lambda: payer.subscribed)
                await payer.socket.send(wire.EndSent(End.sign(session, 0)))
                await until(lambda: adapter.ends)
                await payer.socket.send(wire.KeepSent(Keep.sign(session, MINUTE)))
                await payer.socket.send(wire.EndSent(End(session.verify_key, 1, bytes(64))))
                await until(lambda: payer.socket.rejected)  # what came before it is done
            known = await inside.market.store.get(Channel, session.verify_key)
            assert known is not None and (known.keep_ms, adapter.keeps) == (0, [])

    anyio.run(run)
