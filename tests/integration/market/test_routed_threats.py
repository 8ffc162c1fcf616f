"""Who gains by lying about a routed lease, at the market's door: the rows of the routing's threats
that the market answers for (5, 16, 19, 22, 27, 31), and whoever speaks for what is another's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Earning
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.market.base.records import Lease, ReceiptRecord, Standing
from tests.fakes import FakeAdapter, FakePayer, offer, seed, spec, until, working
from tests.integration.market.test_spine import state
from tests.integration.support.routed import CONSUMER, HOP, World, routed
from tests.routed_fakes import RoutedAdapter


async def strikes(world: World) -> int:
    known = await world.run.market.store.get(Standing, CONSUMER.key_hash.hex())
    return known.strikes if known is not None else 0


def test_few_reserves_of_a_hop_wait_for_a_payment_and_none_waits_long(tmp_path: Path) -> None:
    """Row 27: the fifth goes directly; what is declined or lapses gives its reserve back."""

    async def run() -> None:
        async with routed(tmp_path, quote_ttl_ms=300_000) as world:
            views = [await world.quote() for _ in range(5)]
            ways = [view["quote"]["channel"] for view in views]
            assert ways == ["routed"] * 4 + ["fresh"]
            now = world.run.market.now
            assert all(0 < asked.kept_ms - now <= 60_000 for asked in world.router.asked)
            for asked, view in zip(world.router.asked, views, strict=False):
                lease = await world.run.market.store.get(Lease, view["quote"]["lease"])
                assert lease is not None and lease.expires_ms - lease.created_ms <= 45_000
                assert asked.expires_ms == lease.expires_ms
            gone = views[0]["quote"]["lease"]
            assert (await world.client.post(f"/v1/leases/{gone}/decline")).status_code == 200
            await until(lambda: ("drop", gone) in world.router.said)
            assert (await world.quote())["quote"]["channel"] == "routed"

    anyio.run(run)


def test_a_quote_that_nobody_signs_gives_its_reserve_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with routed(tmp_path, quote_ttl_ms=4_000, quote_ttl_new_ms=4_000) as world:
            lease = (await world.quote())["quote"]["lease"]
            assert world.router.carried() == {lease: False}
            await until(lambda: not world.router.carried())
            assert ("drop", lease) in world.router.said and ("over", lease) not in world.router.said

    anyio.run(run)


def test_a_provider_that_does_not_see_the_hop_is_asked_directly_with_the_same_key(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with routed(tmp_path) as world:
            world.adapter.no, key = "HOP_UNSEEN", world.key()
            view = await world.quote(session=key)
            quote = view["quote"]
            assert (quote["channel"], quote["route"]) == ("fresh", None)
            assert quote["session_vk"] == key.verify_key.hex()
            assert quote["provider"] == world.adapter.offer.provider
            await until(lambda: not world.router.carried())
            assert [one.lease for one in world.adapter.proposals] != [quote["lease"]]

    anyio.run(run)


def test_a_fee_that_is_raised_after_the_quote_is_not_paid(tmp_path: Path) -> None:
    """Row 19: the route's fee holds to the end; a route dearer than the offer is not taken."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            view = await world.quote()
            world.router.raise_fee(150)
            lease = await world.sign(view)
            await world.start(lease)
            owed = await world.paid_tick(lease)
            last = world.payer.book.paying.last
            assert last is not None and last.leaves[-1].amount == with_fee(owed, 50)
            later = (await world.quote())["quote"]
            assert Route.decode(bytes.fromhex(later["route"]["body"])).route_bps == 150
            for lie in ("dearer", "another router", "other hop"):
                world.router.lies = {lie}
                assert (await world.quote())["quote"]["channel"] == "fresh"
                assert world.router.said[-1] == ("drop", world.router.asked[-1].lease)

    anyio.run(run)


def stripped(adapter: RoutedAdapter, asked: wire.RouteProposed) -> SignedTerms:
    """The adapter signs the terms without their route."""
    body = RoutedTerms.decode(asked.terms).terms.encode()
    return SignedTerms(body, adapter.signer.sign(body))


def test_terms_without_their_route_are_signed_by_nobody(tmp_path: Path) -> None:
    """Row 22: neither the provider's nor the consumer's signature over direct terms counts."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            view = await world.quote()
            quote = view["quote"]
            plain = RoutedTerms.decode(bytes.fromhex(quote["terms"])).terms.encode()
            key = world.payer.sessions[bytes.fromhex(quote["session_vk"])]
            path = f"/v1/leases/{quote['lease']}/sign"
            answer = await world.client.post(
                path, json={"session_signature": key.sign(plain).hex()}
            )
            assert (answer.status_code, answer.json()["code"]) == (422, "TERMS_REFUSED")
            assert ("admit", quote["lease"]) not in world.router.said
            right = {"session_signature": key.sign(bytes.fromhex(quote["terms"])).hex()}
            answer = await world.client.post(path, json={**right, "channel_tx": "ab" * 32})
            assert (answer.status_code, answer.json()["code"]) == (422, "MALFORMED")
            world.adapter.agree = lambda asked: stripped(world.adapter, asked)
            await world.post()
            await until(lambda: world.adapter.socket.rejected)
            assert world.adapter.socket.rejected[-1].code == "TERMS_REFUSED"

    anyio.run(run)


def test_nobody_speaks_for_anothers_lease_or_hop(tmp_path: Path) -> None:
    """A Paid of another adapter's lease, a payment over another's hop, a voucher by a lease's key."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            view = await world.quote()
            lease = await world.sign(view)
            await world.start(lease)
            await world.paid_tick(lease)
            await until(lambda: world.payer.paid)
            said, hop_vk = len(world.payer.paid), HOP.verify_key
            thief_key, stranger = seed("thief"), FakePayer(world.url, {})
            thief = FakeAdapter(world.url, thief_key, offer(thief_key))
            last = world.payer.book.paying.last
            assert last is not None
            async with working(thief, stranger):
                await until(lambda: thief.welcomes and stranger.socket.live)
                vk = world.payer.book.leases[world.payer.leases[lease]].lease_vk
                lie = Paid.sign(thief_key, vk, lease, 5)
                await thief.send(wire.PaidSent(lease, 5, lie.signature))
                await thief.send(wire.HopRefused(hop_vk, 1, "STATEMENT_REFUSED", ""))
                await stranger.socket.send(frame_of(last, None))
                await until(lambda: len(thief.socket.rejected) == 2 and stranger.socket.rejected)
            assert [one.code for one in thief.socket.rejected] == [
                "NOT_FOUND",
                "ROUTE_LEASE_UNKNOWN",
            ]
            assert stranger.socket.rejected[0].code == "FORBIDDEN"
            assert len(world.payer.paid) == said and not world.router.refused
            key = world.payer.sessions[vk]
            await world.payer.socket.send(wire.VoucherSent(lease, Voucher.sign(key, 5)))
            await until(lambda: world.payer.socket.rejected)
            assert world.payer.socket.rejected[0].code == "NOT_FOUND"
            again = await world.post(session=key)
            assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")

    anyio.run(run)


def test_a_forged_payment_is_refused_and_the_whole_one_that_follows_is_taken(
    tmp_path: Path,
) -> None:
    """The payer hears which statement failed and sends all its leaves: the lease goes on."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            lease = await world.sign(await world.quote())
            await world.start(lease)
            last = world.payer.book.paying.last
            assert last is not None
            await until(lambda: world.router.book.hops_in[HOP.verify_key].last)
            bare = frame_of(last, last)  # as if the router had all leaves
            blank = {HOP.verify_key: Earning(HOP.verify_key, world.router.hop_capacity)}
            world.router.book = replace(world.router.book, hops_in=blank)
            await world.payer.socket.send(bare)
            await until(lambda: world.payer.refused)
            assert await world.paid_tick(lease) == 5

    anyio.run(run)


def test_who_pays_the_router_is_not_blamed_for_what_it_withholds_and_who_pays_nothing_is(
    tmp_path: Path,
) -> None:
    """Rows 16 and 5: an end for want of payment counts by what came in over the hop."""

    async def run(lie: str, pays: bool) -> int:
        folder = tmp_path / f"{lie}{pays}"
        folder.mkdir()
        async with routed(folder, unpaid_wait_ms=60_000) as world:
            lease = await world.sign(await world.quote())
            await world.start(lease)
            world.payer.pays = pays
            if lie == "silent":
                world.adapter.silent = True
            elif lie:
                world.router.lies = {lie}
            for _ in range(2):
                await world.adapter.tick(lease)
            await until(lambda: taken(world, lease, 2))
            await anyio.sleep(1.3)  # a payer that is there answers at once (ANSWER_MS)
            await world.adapter.finish(lease, "UNPAID")
            await state(world.client, (await leased(world, lease)).job, "ENDING", "ENDED")
            answer = await world.post()
            blamed = await strikes(world)
            refused = answer.json().get("code") in ("PAYMENT_OWED", "UNPAID_WAIT")
            assert refused == bool(blamed), answer.text
            return blamed

    assert anyio.run(run, "withholds", True) == 0
    assert anyio.run(run, "silent", True) == 0
    assert anyio.run(run, "", False) == 1


async def taken(world: World, lease: str, count: int) -> bool:
    """Whether the market has so many receipts of the lease: its patience runs from then."""
    return len(await world.run.market.store.find(ReceiptRecord, lease=lease)) >= count


async def leased(world: World, lease: str) -> Lease:
    found = await world.run.market.store.get(Lease, lease)
    assert found is not None
    return found


def test_a_small_job_is_routed_and_never_sent_directly_where_it_is_too_small(
    tmp_path: Path,
) -> None:
    """A minimum is of a channel of its own: no hop out, no place."""

    async def run() -> None:
        async with routed(tmp_path, offer={"minimum": 4_000_000}) as world:
            small = spec(price=spec().price.__class__(budget=50_000))
            assert (await world.quote(job=small))["quote"]["channel"] == "routed"
            world.router.out.clear()
            answer = await world.post(job=small)
            assert (answer.status_code, answer.json()["code"]) == (422, "NO_MATCH")

    anyio.run(run)


def test_a_hop_is_announced_by_its_own_account_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with routed(tmp_path) as world:
            hop = {"session_vk": Signer(os.urandom(32)).verify_key.hex(), "tx": "cd" * 32}
            other = {**hop, "consumer_vkh": seed("a victim").key_hash.hex()}
            answer = await world.client.post("/v1/router/hops", json=other)
            assert (answer.status_code, answer.json()["code"]) == (422, "OTHER_PURSE")
            foreign = Signer(os.urandom(32)).verify_key.hex()
            assert (await world.client.get(f"/v1/router/hops/{foreign}")).status_code == 422
            world.run.market.router = None
            for answer in (
                await world.client.get("/v1/router"),
                await world.client.post("/v1/router/hops", json=hop),
            ):
                assert (answer.status_code, answer.json()["code"]) == (404, "NO_ROUTER")
            assert (await world.quote())["quote"]["channel"] == "fresh"

    anyio.run(run)
