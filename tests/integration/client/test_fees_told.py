"""The chain's fees in a quote: the market, the client's own door and the ledger say the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from marketplace.chain.encoding import txbytes
from marketplace.chain.market_ledger import ChainLedger
from marketplace.cli.shared.paying import offered_text
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.domain.units import show_ada
from tests.integration.client.test_kept import LONG, command
from tests.integration.support.client import World, spec, story


def test_a_quote_says_what_is_then_charged(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, seen = world.purse(), list[CheckedQuote]()

        async def confirm(offered: CheckedQuote) -> bool:
            seen.append(offered)
            return True

        async with command(world, purse) as market:
            await world.provider.keeps(market)
            blind = await market.quote(spec())
            assert "members" not in blind and blind.get("fees", 0) is None  # no chain says them
            world.running.market.ledger = ChainLedger(world.chain, None)
            dry = await market.quote(spec())
            job = await market.run(spec(policy=LONG), confirm=confirm)
            (opened,) = seen
            assert opened.fees is not None
            assert "members" not in dry and dry.get("fees") == asdict(opened.fees)
            shown = (await market.http.get(f"/v1/jobs/{job.id}"))["transactions"]
            (open_tx,) = (tx["id"] for tx in shown if tx["kind"] == "open")
            lease = await world.provider.lease(1)
            await world.provider.start(lease)
            await world.provider.ticks(lease, 1)
            taken = await world.chain.transaction_bytes(bytes.fromhex(open_tx))
            assert taken is not None
            charged = int(txbytes.body_of(taken)[2])
            assert opened.fees.consumer * 9 // 10 <= charged <= opened.fees.consumer
            await world.provider.adapter.finish(lease)

            await market.run(spec(name="second"), confirm=confirm)
        told = offered_text(opened)
        assert f"you pay {show_ada(opened.fees.consumer)} to the network" in told
        assert f"below {show_ada(opened.fees.smallest)} the network takes more" in told
        assert not seen[1].fresh and seen[1].fees is None
        assert "nothing to the network" in offered_text(seen[1])

    story(tmp_path, tell)
