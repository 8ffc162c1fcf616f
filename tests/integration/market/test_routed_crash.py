"""A crash between the market's store and its router: whichever has less is told by the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio

from marketplace.market.lifecycle import routes
from tests.fake_router import FakeRouter
from tests.fakes import until
from tests.integration.market.test_spine import state
from tests.integration.support.routed import World, routed


class Broken(FakeRouter):
    """Forgets what the market says while it is *deaf*, as if the market had died before."""

    deaf = False

    async def owes(self, lease: str, owed: int, final: bool) -> None:
        if not self.deaf:
            await super().owes(lease, owed, final)

    async def over(self, lease: str) -> None:
        if not self.deaf:
            await super().over(lease)


def forgets(router: FakeRouter, lease: str) -> None:
    """Its books are from before the lease was admitted."""
    terms = router.admitted.pop(lease)
    leases = {key: one for key, one in router.book.leases.items() if key != terms}
    router.book = replace(router.book, leases=leases)


async def running(world: World) -> tuple[str, str]:
    view = await world.quote()
    lease = await world.sign(view)
    await world.start(lease)
    await world.paid_tick(lease)
    return lease, view["id"]


def test_a_receipt_and_an_end_that_the_router_never_heard_of_are_said_again(tmp_path: Path) -> None:
    async def run() -> None:
        router = Broken()
        async with routed(tmp_path, router) as world:
            lease, job = await running(world)
            router.deaf = True
            await world.adapter.tick(lease)
            await until(lambda: world.payer.book.leases[world.payer.leases[lease]].owed == 10)
            assert router.sums(lease).owed == 5  # pyright: ignore[reportOptionalMemberAccess] (it was admitted)
            router.deaf = False
            await routes.reconcile(world.run.market)
            await until(lambda: world.adapter.got(lease) == 10)
            router.deaf = True
            await world.adapter.finish(lease)
            await state(world.client, job, "ENDED")
            assert lease in router.carried()
            router.deaf = False
            await routes.reconcile(world.run.market)
            assert lease not in router.carried() and router.sums(lease)

    anyio.run(run)


def test_a_lease_that_the_routers_books_do_not_have_is_admitted_again_or_ended(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with routed(tmp_path) as world:
            lease, _ = await running(world)
            forgets(world.router, lease)
            await routes.reconcile(world.run.market)
            assert world.router.sums(lease).owed == 5  # pyright: ignore[reportOptionalMemberAccess] (just admitted)
            forgets(world.router, lease)
            del world.router.made[lease]  # and nothing is known of its route: it refuses
            await routes.reconcile(world.run.market)
            await until(lambda: lease in world.adapter.stops)

    anyio.run(run)


def test_what_was_admitted_and_never_signed_is_freed_when_its_quote_lapses(tmp_path: Path) -> None:
    """The market died after the router had the lease and before its store had the signature."""

    async def run() -> None:
        async with routed(tmp_path, quote_ttl_ms=5_000, quote_ttl_new_ms=5_000) as world:
            view = await world.quote()
            lease = view["quote"]["lease"]
            await world.router.admit(lease, bytes.fromhex(view["quote"]["terms"]))
            await routes.reconcile(world.run.market)
            assert world.router.carried() == {lease: True}  # it may yet be signed
            await until(lambda: not world.router.carried())
            assert ("drop", lease) in world.router.said

    anyio.run(run)


def test_an_admitted_lease_that_the_store_never_had_keeps_nothing(tmp_path: Path) -> None:
    """The store is an older one than the books."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            lease, _ = await running(world)
            asked, made = world.router.made[lease]
            world.router.made["lease_of_later"] = replace(asked, lease="lease_of_later"), made
            world.router.admitted["lease_of_later"] = world.router.admitted[lease]
            await routes.reconcile(world.run.market)
            assert ("over", "lease_of_later") in world.router.said
            assert world.router.carried() == {lease: True}
            terms = world.router.admitted[lease]
            assert world.router.book.leases[terms].owed == 5

    anyio.run(run)
