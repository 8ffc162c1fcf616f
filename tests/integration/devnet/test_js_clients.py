"""Other people's JavaScript libraries take a payment channel through its life on the devnet, with
the provider's evaluation.

``tests/clients`` writes datum, redeemer, voucher and outputs by hand from contracts/README.md; what
came of it is read by our own reader.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from contracts import blueprint
from contracts.devnet import Served, serve
from marketplace.chain.actions.session import Desk, deploy
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import MemoryLog
from marketplace.chain.transaction.scripts import scripts_for, unit_of
from tests.integration.support.chain import ADA, key
from tests.requires import need_devnet, need_js_clients, need_node

PLUTUS = Path(blueprint.__file__).parent / "plutus.json"
STEPS = ["deployed", "open", "channel", "claim", "top-up", "close", "refused", "finish", "done"]
pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def served() -> Generator[Served, None, None]:
    """A devnet with blocks of its own and the channel's scripts on it."""
    need_devnet()

    async def deployed(one: Served) -> None:
        chain = await connect(one.url, "")
        operator = Wallet(key("operator"), False)
        one.devnet.faucet(addresses.to_text(operator.address), 100 * ADA)
        one.devnet.mint()
        assert await deploy(Desk(chain, operator, "", MemoryLog())) is not None
        one.devnet.mint()

    with serve(block_ms=300) as one:
        anyio.run(deployed, one)
        yield one


@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", ["lucid", "mesh", "evolution"])
def test_a_channel_lives_by_another_library(served: Served, client: str) -> None:
    folder = need_js_clients()
    done = subprocess.run(
        [str(need_node()), f"{client}.mjs", served.url, str(PLUTUS)],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["step"] for one in told] == STEPS
    by: dict[str, dict[str, Any]] = {one["step"]: one for one in told}
    # A finish before its time is refused by the script, when the provider evaluates it.
    assert "ScriptFailures" in by["refused"]["why"]
    opened = by["channel"]

    async def ended() -> ChannelEnded:
        chain = await connect(served.url, "")
        finder = ChannelFinder(chain, scripts_for(""), unit_of(""))
        found = await finder.find(bytes.fromhex(opened["session"]), OutRef.parse(opened["origin"]))
        assert isinstance(found, ChannelEnded)
        return found

    end = anyio.run(ended)
    assert (end.claimed, end.refunded) == (2 * ADA, 23 * ADA)
