"""``tally job run`` killed with SIGKILL at every point of an open: one channel is on the chain each
time.

No block is made before the payer has come back, so what it opened is nowhere but in its own log, in
a mempool, or not yet sent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from contracts.devnet.pace import Pace
from marketplace.client.payer import journal
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import consts_of
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.chain import BY_HAND
from tests.integration.support.client import World, story, until
from tests.integration.support.door import Answer, Door, door

POINTS: Final = {
    "agreed": "the terms are signed, nothing is built",
    "building": "the purse's outputs are being read",
    "stored": "the transaction is in the log; the chain's door has it, the chain does not",
    "sent": "the chain has it; no answer came",
    "answered": "the log says that it was sent",
    "noted": "the book names it",
    "signed": "the market and the provider have the terms; no block",
    "in a block": "a block has it, the payer was just asking",
    "seen": "the payer has seen it",
}


@dataclass
class Victim:
    """``tally job run`` behind a door, in a home of its own."""

    home: Path
    between: Door
    point: str
    pid: int = 0
    dead: bool = False
    told: list[str] = field(default_factory=list[str])

    def kill(self) -> None:
        if not self.dead:
            self.dead = True
            os.kill(self.pid, signal.SIGKILL)

    # ---- what its files say ---------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """Its one book."""
        found = [path.read_bytes() for path in (self.home / "channels").glob("*.jsonl")]
        whole = [
            data[: data.rfind(b"\n") + 1] for data in found
        ]  # the last line may just be written
        return [json.loads(line) for data in whole for line in data.splitlines()]

    def agreed(self) -> bool:
        return any(row["k"] == "lease" for row in self.rows())

    def noted(self) -> bool:
        return any(row.get("open_tx") for row in self.rows())

    def seen(self) -> bool:
        return any(row.get("state") == "OPEN" for row in self.rows())

    def sent(self) -> bool:
        logs = (self.home / "transactions").glob("*.jsonl")
        return any(b'"SUBMITTED"' in path.read_bytes() for path in logs)

    # ---- the door -------------------------------------------------------------------------------

    def keep(self, method: str, path: str, forward: Callable[[], Answer]) -> Answer | None:
        if self.dead:
            return None
        submit = method == "POST" and path.endswith("/tx/submit")
        if self.point == "building" and self.agreed() and path.split("?")[0].endswith("/utxos"):
            self.kill()
            return None
        if submit and self.point == "stored":
            self.kill()
            return None
        answer = forward()
        included = "/txs/" in path and answer[0] == 200
        if (submit and self.point == "sent") or (included and self.point == "in a block"):
            self.kill()
            return None
        return answer


async def one(world: World, number: int, point: str) -> None:
    """A purse of its own, its command killed at *point*, and what comes back to its channel."""
    name = f"home-{number}"
    purse = world.purse(name)
    world.served.devnet.mint()
    shell, provider = Shell(world), world.provider
    job = world.folder / "job.yaml"
    job.write_text(JOB.replace("cpu: 1", "cpu: 0.5"))
    signed = [m for m in provider.adapter.asked if getattr(m, "channel_tx", "")]
    with door(world.served.url) as between:
        victim = Victim(world.folder / name, between, point)
        between.keeper = victim.keep
        shell.env |= {"TALLY_HOME": str(victim.home), "TALLY_CHAIN_URL": between.url}
        command = [sys.executable, "-m", "marketplace.cli.main", "job", "run", str(job), "--yes"]
        process = await anyio.open_process(command, env=shell.env, stdin=-3, stdout=-3, stderr=-3)
        victim.pid = process.pid
        watch: dict[str, Callable[[], bool]] = {
            "agreed": victim.agreed,
            "answered": victim.sent,
            "noted": victim.noted,
            "seen": victim.seen,
            "signed": lambda: len(_signed(provider)) > len(signed),
        }
        if point in ("in a block", "seen"):
            await until(watch["signed"], 120)
            world.served.devnet.mint()
        await until(lambda: victim.dead or watch.get(point, lambda: False)(), 120)
        victim.kill()
        await process.wait()
        await process.aclose()
    async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
        [name] = await market.resume_all()  # as `tally payer run` does
        await until(lambda: len(_signed(provider)) > len(signed), 120)
        world.served.devnet.mint(2)
        [held] = market.payers.all
        await until(lambda: held.book.capacity is not None, 120)
        outputs = (await Till(purse, world.chain).outputs())[held.session_vk]
        assert [u.ref.tx_id.hex() for u in outputs] == [held.facts.open_tx], point
        consts = consts_of(outputs[0])
        assert consts is not None and consts.session_vk == held.session_vk
        assert journal.channels_in(purse.channels) == [held.session_vk]


def _signed(provider: Any) -> list[Any]:
    return [m for m in provider.adapter.asked if getattr(m, "channel_tx", "")]


@pytest.mark.prove
@pytest.mark.parametrize("points", [[*POINTS][n : n + 3] for n in range(0, len(POINTS), 3)])
def test_killed_at_every_point_of_an_open_the_payer_has_one_channel(
    tmp_path: Path, points: list[str]
) -> None:
    async def tell(world: World) -> None:
        world.served.devnet.pace = Pace(BY_HAND)  # from here on only this test makes a block
        for number, point in enumerate(points):
            await one(world, number, point)

    story(tmp_path, tell)
