"""Jobs over the market's router, by command: one channel, whichever provider serves, and a bill that
anybody can recompute.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.route.fee import fee
from tests.e2e.support.embedded import PATIENCE_S, job_file, tally, until_true
from tests.e2e.support.up import swept, up
from tests.e2e.test_up import image
from tests.requires import need_devnet, need_docker

pytestmark = pytest.mark.timeout(PATIENCE_S + 240)
HOP_FEE = 25_000


def spent_by(env: dict[str, str]) -> set[str]:
    """The transactions that this purse made."""
    home = Path(env["TALLY_HOME"])
    logs = home.glob("transactions/*.jsonl")
    rows = [row for log in logs for row in log.read_text().splitlines()]
    return {str(json.loads(row)[0]) for row in rows}


async def with_hops(env: dict[str, str]) -> None:
    """Once the router's hop to the provider can carry something."""

    async def there() -> bool:
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"{env['TALLY_MARKET']}/v1/router")
            return answer.status_code == 200 and answer.json()["free"] > 0

    await until_true(there, "the hop to the provider")


async def ran(file: Path, mode: str, env: dict[str, str]) -> dict[str, Any]:
    """A job, to its paid end."""
    done = await tally("job", "run", str(file), "--yes", "--json", "--route", mode, env=env)
    assert done.process.returncode == 0, str(done)
    assert done.last["reason"] == "COMPLETED", str(done)
    return dict(done.last)


async def quoted(file: Path, env: dict[str, str]) -> str:
    """The quote as a person reads it: both ways beside each other."""
    said = await tally("job", "quote", str(file), env=env)
    assert said.process.returncode == 0, str(said)
    return " ".join(" ".join(said.out).split())


async def billed(env: dict[str, str], job: str) -> dict[str, Any]:
    """Verified by this consumer, from the evidence alone."""
    phrase = await anyio.Path(env["TALLY_PASSPHRASE_FILE"]).read_text()
    purse = Purse.load(env["TALLY_HOME"], passphrase=phrase.strip())
    async with Market(
        env["TALLY_MARKET"], wallet=purse, chain_url=env["TALLY_CHAIN_URL"]
    ) as market:
        return (await market.job(job).invoice(verify=True)).to_json()


async def settled(env: dict[str, str], job: str) -> dict[str, Any]:
    """The bill, once it is reconciled with the ledger; empty until then."""
    bill = await billed(env, job)
    return bill if bill["reconciled"] else {}


def test_a_second_job_over_the_router_makes_no_transaction(tmp_path: Path) -> None:
    """And its hop ends at one word: what was signed is claimed, the rest comes home, both bills add
    up to the lovelace, the router's fee exact.
    """
    need_docker()
    need_devnet()
    home = tmp_path / "home"

    async def story() -> None:
        async with swept(home), up(home) as (_, env):
            await with_hops(env)
            file = job_file(tmp_path, await image(home), 2)
            asked = await quoted(file, env)
            assert "instead of 0.1" in asked and "your first one costs 0.2" in asked, asked
            first = await ran(file, "routed", env)
            before = spent_by(env)
            assert "over your channel to the market's router" in await quoted(file, env)
            second = await ran(file, "auto", env)
            assert spent_by(env) == before, "the second one opened or filled something"
            shown = await tally("purse", "show", "--json", env=env)
            states = [(one["router"], one["state"]) for one in shown.last["channels"]]
            assert states == [(True, "OPEN")], str(shown)
            ended = await tally("channel", "close", "--all", "--yes", "--json", env=env)
            assert ended.process.returncode == 0, str(ended)
            left = await tally("purse", "show", "--json", env=env)
            assert left.last["locked"] == 0, str(left)
            paid = 0
            for one in (first, second):
                bill = await until_true(lambda job=one["job"]: settled(env, job), "its hop's end")
                route, hop = bill["routes"][0], bill["hops"][0]
                assert route["fee"] == fee(bill["owed"], route["route_bps"]) > 0
                assert one["spent"] == bill["owed"] + route["fee"] == route["signed_in"]
                assert (route["reached"], route["withheld"]) == (bill["owed"], 0)
                assert hop["claimed"] == hop["due"] == hop["signed"], bill
                assert bill["unshown"] == hop["blind"] == hop["claimed"] - HOP_FEE - one["spent"]
                paid += route["signed_in"]
            assert hop["claimed"] == paid + HOP_FEE

    anyio.run(story)
