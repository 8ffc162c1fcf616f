"""A market whose router pays two providers, each at an address of its own and at odd prices; jobs are
plain processes, so that hundreds of them take minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx

from adapter.host.keys import load_keys
from marketplace.chain.encoding import address as addresses
from marketplace.chain.node.blockfrost import connect
from marketplace.cli.embedded.product import PROCESS_ONLY, Embedded
from tests.e2e.support.embedded import until_true
from tests.fakes import seed

NAMES: Final = ("adapter", "adapter-b")
RATES: Final = {"adapter": "412345.678901 lovelace", "adapter-b": "299999.999999 lovelace"}
"""What a core costs a second: no job's sum is a round one."""
BOUNTY: Final = {"adapter": 0, "adapter-b": 50}
"""Of what is claimed for a provider, in 1/10000: what it leaves to whoever settles for it."""


class TwoProviders(Embedded):
    """*home* holds both adapters' states."""

    def find_image(self) -> str:
        """No container is started."""
        return PROCESS_ONLY

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        mine = f'payout = "{addresses.to_text(payout(name))}"\nfee_bps = {BOUNTY[name]}\n'
        ends = f'core = "{RATES[name]}"\n[treasury]\nbatch_wait = 0\n'
        path.write_text(mine + path.read_text() + ends)
        return path

    def provider(self, name: str) -> str:
        """The id that offers and terms have."""
        phrase = self.passphrase_file.read_text().strip()
        return load_keys(self.home / name / "keys", phrase).provider

    async def received(self, name: str) -> int:
        """Lovelace at the provider's address: nobody else pays to it."""
        chain = await connect(self.chain_url)
        return sum(one.lovelace for one in await chain.utxos(payout(name)))

    async def hops(self, count: int) -> None:
        """Once the router has *count* hops out that carry."""

        async def there() -> bool:
            async with httpx.AsyncClient(trust_env=False) as http:
                answer = await http.get(f"{self.market_url}/v1/router")
                return answer.status_code == 200 and answer.json()["hops_out"] == count

        await until_true(there, f"{count} hops out")

    async def end_hops_out(self) -> None:
        """The router's owner lets no hop stay idle from now on: providers end theirs."""
        await self.parts["market"].stop()
        limits = self.home / "market" / "route" / "limits.toml"
        limits.write_text("idle_ms = 1\n")
        await self.start_market()


def payout(name: str) -> bytes:
    """Where *name* is paid; its key lies nowhere."""
    return addresses.key_address(seed(f"payout of {name}").key_hash, None, False)
