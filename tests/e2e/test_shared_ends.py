"""An end that the market's operator pays for: by the operator's options and the provider's file, with
each part a process.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marketplace.chain.node.blockfrost import connect
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.supervise import Part
from marketplace.domain.units import LOVELACE_PER_ADA
from tests.e2e.support.embedded import PATIENCE_S, World, settled_bill, story, tally, until_ended

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
RATE = 400_000  # lovelace a core-second: some seconds bring more than the least of an output
BOUNTY_BPS = 50
SHARE = 300_000  # pays for an end without others: only this one is there


class Sharing(Embedded):
    """A market that pays for ends, and a provider that waits for it to do so."""

    def _market(self, port: int) -> Part:
        part = super()._market(port)
        part.argv = [*part.argv, "--end-share", f"{SHARE} lovelace", "--end-budget", "1 ADA"]
        return part

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        more = f'core = "{RATE} lovelace"\n[treasury]\nbatch_wait = "10m"\n'
        path.write_text(path.read_text() + more)
        return path


def test_an_end_is_paid_by_the_operator_and_signed_by_its_provider(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        place = world.place
        chain = await connect(place.chain_url)
        operator, end, fee = await place.wallets()

        async def held(address: bytes) -> int:
            return sum(u.lovelace for u in await chain.utxos(address))

        before = {address: await held(address) for address in (operator, fee)}
        job = tmp_path / "dear.json"
        said = {
            "version": 1, "name": "dear", "image": place.image,
            "command": ["python3", "-c", "import time; time.sleep(8)"],
            "resources": {"cpu": 0.5, "memory": "128MB"},
            "price": {"budget": "5 ADA"}, "policy": {"max_duration": "10m"},
        }  # fmt: skip
        job.write_text(json.dumps(said))
        ran = await tally(
            "job", "run", str(job), "--yes", "--json", "--keep", "0", env=place.environment
        )
        assert ran.last["reason"] == "COMPLETED", str(ran)
        await until_ended(world, ran.last["job"])
        bill = await settled_bill(world, ran.last["job"])
        [channel] = bill.channels
        claimed = channel.claimed or 0
        assert claimed > LOVELACE_PER_ADA
        bounty = claimed * BOUNTY_BPS // 10_000  # to whoever settles: here the operator
        # A devnet's provider is paid at its fee key; the key that ended the channel holds nothing.
        assert await held(fee) - before[fee] == claimed - bounty
        assert await held(end) == 0
        assert 0 < before[operator] - await held(operator) <= SHARE
        log = (place.home / "logs" / "adapter.log").read_text()
        assert "ends_signed" in log

    story(tmp_path, tell, kind=Sharing)
