"""An account that pays for nothing holds little, briefly, and one thing after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Policy
from marketplace.market.accounts import standing
from marketplace.market.accounts.standing import address_name
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Lease, Standing
from marketplace.market.base.settings import Settings
from marketplace.market.context import Market
from marketplace.market.core.standing import most_quotes, struck, wait_ms
from marketplace.market.state.open_quotes import OpenQuotes
from marketplace.market.upkeep import sweeps
from tests.fakes import FakeAdapter, FakePayer, offer, seed, spec, until, working
from tests.integration.market.test_access import open_market
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import fast, market, postgres, sign_in


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
        async with open_market(tmp_path, unpaid_wait_ms=8_000) as (client, inside, adapter):
            payer = FakePayer(str(client.base_url), {session.verify_key: session}, pays=False)
            async with working(payer):
                view = await quoted(client, (await post(client, me, session)).json()["id"])
                waiting = await quoted(client, (await post(client, me)).json()["id"])
                lease = await sign(client, view, session, "ab" * 32)
                await until(lambda: adapter.leases[lease].signed)
                for stage in ("CHANNEL_SEEN", "STARTED"):
                    await adapter.progress(lease, stage)
                await adapter.tick(lease)
                await until(lambda: bool(payer.receipts))
                await anyio.sleep(
                    1.2
                )  # time to answer: an end at once would be the provider's fault
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


def test_an_address_is_named_alike_however_it_is_written() -> None:
    """An IPv6 customer has a /64 at least: all of it counts as one."""
    assert address_name("2001:db8:1:2::1") == address_name("2001:0db8:1:2:ffff:ffff:0:9")
    assert address_name("2001:db8:1:2::1") != address_name("2001:db8:1:3::1")
    assert address_name("203.0.113.9") != address_name("203.0.113.10")
    assert address_name("") == address_name("a proxy's nonsense") == ""
    assert "203.0.113.9" not in address_name("203.0.113.9")


def test_accounts_that_never_paid_share_their_addresss_quotes_and_one_that_paid_does_not(
    tmp_path: Path,
) -> None:
    """Behind the named proxy: five accounts of one /64 have what one address has; the next /64 has
    its own.
    """

    async def run() -> None:
        limits = {"quotes_new": 2, "quotes_address": 4}
        async with open_market(tmp_path, **limits) as (client, inside, _):

            async def codes(name: str, address: str, count: int) -> list[str]:
                me = seed(name)
                ahead = {"X-Forwarded-For": address}
                async with httpx.AsyncClient(
                    base_url=client.base_url, timeout=30, headers=ahead
                ) as at:
                    await sign_in(at, me)
                    answers = [await post(at, me) for _ in range(count)]
                return [str(a.json().get("code", a.status_code)) for a in answers]

            ok, no = "201", "TOO_MANY_QUOTES"
            assert await codes("a", "2001:db8:1:2::1", 3) == [ok, ok, no]  # its own limit
            assert await codes("b", "2001:db8:1:2::2", 2) == [ok, ok]
            assert await codes("c", "2001:db8:1:2:9::3", 1) == [no]  # the address's
            assert await codes("d", "2001:db8:1:3::1", 1) == [ok]
            paid = Standing(seed("e").key_hash.hex(), paid=1)
            await inside.market.store.apply(Change(puts=[paid]))
            assert await codes("e", "2001:db8:1:2::4", 1) == [ok]

    anyio.run(run)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
        return
    with postgres() as url:
        yield url


def test_of_two_signed_at_once_one_has_the_turn(tmp_path: Path, database: str) -> None:
    """Signatures of one account that never paid, at the same moment: one adapter hears of one
    lease.
    """

    async def run() -> None:
        me, provider = seed("consumer"), seed("provider")
        async with market(database, tmp_path, fast()) as (url, run_):
            adapter = FakeAdapter(url, provider, offer(provider))
            async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
                await sign_in(client, me)
                await until(lambda: run_.market.directory.offers())
                sessions = [Signer(os.urandom(32)) for _ in range(4)]
                views = [
                    await quoted(client, (await post(client, me, key)).json()["id"])
                    for key in sessions
                ]
                leases: list[str] = []

                async def signs(view: Any, key: Signer) -> None:
                    leases.append(await sign(client, view, key, os.urandom(32).hex()))

                async with anyio.create_task_group() as tasks:
                    for view, key in zip(views, sessions, strict=True):
                        tasks.start_soon(signs, view, key)
                await until(lambda: any(one.signed for one in adapter.leases.values()))
                await anyio.sleep(2.5)  # two sweeps, which hand over what may start
                begun = [name for name in leases if adapter.leases[name].signed]
                assert len(leases) == 4 and len(begun) == 1
                known = await run_.market.store.get(Standing, me.key_hash.hex())
                assert known is not None and known.turn == begun[0]

    anyio.run(run)


def test_the_limit_of_an_address_holds_in_the_queue_and_after_a_restart(tmp_path: Path) -> None:
    """Accounts that never paid wait for a full fleet; when it frees they hold no more than if it
    had been free.
    """

    async def run() -> None:
        limits = {"quotes_new": 4, "quotes_address": 4}
        async with open_market(tmp_path, **limits) as (client, inside, _):
            await paid_before(inside.market, seed("consumer"))
            other = seed("another that paid")
            await paid_before(inside.market, other)
            full = [(await post(client, seed("consumer"))).json()["id"] for _ in range(8)]
            assert (await post(client, seed("consumer"))).json()["code"] == "NO_MATCH"
            queue = spec(policy=Policy(max_duration_ms=60_000, queue=True))
            near = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
            async with httpx.AsyncClient(base_url=client.base_url, transport=near) as squat:
                for n in range(8):
                    squatter = seed(f"squatter {n}")
                    await sign_in(squat, squatter)
                    asked = body(queue, Signer(os.urandom(32)), squatter)
                    assert (await squat.post("/v1/jobs", json=asked)).status_code == 201
            await sign_in(client, other)
            waits = await client.post("/v1/jobs", json=body(queue, Signer(os.urandom(32)), other))
            await sign_in(client, seed("consumer"))
            for job in full:
                assert (await client.post(f"/v1/jobs/{job}/stop")).status_code < 300
            await sign_in(client, other)
            await quoted(client, waits.json()["id"])

            async def held() -> int:
                names = [seed(f"squatter {n}").key_hash.hex() for n in range(8)]
                return sum([await inside.market.store.count(Lease, account=one) for one in names])

            async def four() -> bool:
                return await held() == 4

            await until(four)
            await anyio.sleep(5)  # two rounds of the queue more
            assert await held() == 4
            near_name = address_name("127.0.0.2")
            assert inside.market.open_quotes.count(near_name) == 4
            inside.market.open_quotes = OpenQuotes()  # as a process that was just started
            await sweeps.refresh(inside.market)
            assert inside.market.open_quotes.count(near_name) == 4
            assert inside.market.open_quotes.count(address_name("127.0.0.1")) == 0  # who paid

    anyio.run(run)


async def paid_before(market: Market, who: Signer) -> None:
    await standing.update(market, who.key_hash.hex(), lambda at: replace(at, paid=4))
