"""An account that pays for nothing holds little, briefly, and one thing after the other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.domain import wire
from marketplace.domain.keys import Signer
from marketplace.domain.voucher import Voucher
from marketplace.service.market import Settings
from marketplace.service.records import Lease, Standing
from marketplace.service.standing import address_name, most_quotes, struck, wait_ms
from tests.fakes import FakePayer, seed, spec, until, working
from tests.integration.support_market import sign_in
from tests.integration.test_market_access import open_market
from tests.integration.test_market_spine import body, quoted, sign, state


async def post(client: httpx.AsyncClient, who: Signer, session: Signer | None = None) -> Any:
    session = session or Signer(os.urandom(32))
    return await client.post("/v1/jobs", json=body(spec(), session, who))


def test_an_account_without_money_holds_little_and_an_honest_job_beside_it_is_matched(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        limits = {"quotes_new": 4, "quotes_address": 16}
        async with open_market(tmp_path, **limits) as (client, inside, _):
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as squat:
                squatter = seed("squatter-with-no-money")
                await sign_in(squat, squatter)
                refused = 0
                for _ in range(8):
                    session = Signer(os.urandom(32))
                    answer = await post(squat, squatter, session)
                    if answer.status_code == 429:
                        assert answer.json()["code"] == "TOO_MANY_QUOTES"
                        assert int(answer.headers["Retry-After"]) > 0
                        assert answer.json()["remedy"]
                        refused += 1
                        continue
                    view = await quoted(squat, answer.json()["id"])
                    await sign(squat, view, session, os.urandom(32).hex())
                assert refused == 4
                for lease in await inside.market.store.find(Lease, account=squatter.key_hash.hex()):
                    assert lease.expires_ms - lease.created_ms <= 60_000
                honest = await post(client, seed("consumer"))
                assert honest.status_code == 201, honest.text

    anyio.run(run)


def test_what_comes_home_goes_to_the_account_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            answer = await post(client, seed("a victim, not me"))
            assert answer.status_code == 422 and answer.json()["code"] == "OTHER_PURSE"
            assert "purse" in answer.json()["remedy"]

    anyio.run(run)


def test_who_never_paid_starts_one_lease_after_the_other(tmp_path: Path) -> None:
    """Three are signed; the adapter hears of the second when the first was paid."""

    async def run() -> None:
        me, sessions = seed("consumer"), [Signer(os.urandom(32)) for _ in range(3)]
        async with open_market(tmp_path) as (client, inside, adapter):
            payer = FakePayer(str(client.base_url), {s.verify_key: s for s in sessions}, pays=False)
            async with working(payer):
                leases: list[str] = []
                for session in sessions:
                    view = await quoted(client, (await post(client, me, session)).json()["id"])
                    leases.append(await sign(client, view, session, os.urandom(32).hex()))
                first, second, third = leases
                await until(lambda: adapter.leases[first].signed)
                await anyio.sleep(2.5)
                assert not adapter.leases[second].signed and not adapter.leases[third].signed
                for stage in ("CHANNEL_SEEN", "STARTED"):
                    await adapter.progress(first, stage)
                payer.pays = True
                await adapter.tick(first, 500)
                await until(lambda: adapter.leases[second].signed and adapter.leases[third].signed)
                known = await inside.market.store.get(Standing, me.key_hash.hex())
                assert known is not None and known.paid == 1

    anyio.run(run)


def test_whoever_owes_gets_no_new_lease_and_after_an_unpaid_end_there_is_a_wait(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        me, session = seed("consumer"), Signer(os.urandom(32))
        async with open_market(tmp_path, unpaid_wait_ms=4_000) as (client, inside, adapter):
            payer = FakePayer(str(client.base_url), {session.verify_key: session}, pays=False)
            async with working(payer):
                view = await quoted(client, (await post(client, me, session)).json()["id"])
                waiting = await quoted(client, (await post(client, me)).json()["id"])
                lease = await sign(client, view, session, "ab" * 32)
                await until(lambda: adapter.leases[lease].signed)
                for stage in ("CHANNEL_SEEN", "STARTED"):
                    await adapter.progress(lease, stage)
                await adapter.tick(lease)
                await adapter.finish(lease, "UNPAID")
                await state(client, view["id"], "ENDING", "ENDED")

                async def code() -> str:
                    answer = await post(client, me)
                    return "" if answer.status_code == 201 else str(answer.json()["code"])

                await until(lambda: _is(code, "PAYMENT_OWED"))
                known = await inside.market.store.get(Standing, me.key_hash.hex())
                assert known is not None and known.strikes == 1
                shared = await inside.market.store.get(Standing, address_name("127.0.0.1"))
                assert shared is not None and shared.strikes == 1
                last = payer.receipts[-1]
                paid = Voucher.sign(session, last.channel_owed)
                await payer.socket.send(wire.VoucherSent(lease, paid))
                await until(lambda: _is(code, "UNPAID_WAIT"))
                await until(lambda: _is(code, ""))
                assert waiting["state"] == "QUOTED"

    anyio.run(run)


async def _is(ask: Any, code: str) -> bool:
    return await ask() == code


def test_the_wait_doubles_lapses_halve_the_quotes_and_both_are_forgotten() -> None:
    settings, known = Settings(), Standing("me")
    assert most_quotes(settings, known, 0) == settings.quotes_new == 4
    waits: list[int] = []
    for _ in range(4):
        known = struck(settings, known, 1_000)
        waits.append(wait_ms(settings, known, 1_000))
    assert waits == [settings.unpaid_wait_ms * 2**n for n in range(4)]
    later = 1_000 + 4 * settings.unpaid_forget_ms
    assert struck(settings, known, later).strikes == 1
    assert [most_quotes(settings, Standing("me", lapses=n), 0) for n in (0, 1, 2, 9)] == [
        4,
        2,
        1,
        1,
    ]
    assert address_name("2001:db8::1") == address_name("2001:db8::ffff") != address_name("::1")
