"""The embedded market: devnet, market and adapter as processes on one machine, each by its own entry.

``tally up`` keeps its state, ``tally demo`` throws it away; nothing else differs. It is a devnet:
its passphrase lies beside its keys, which guard nothing of worth. Real networks never come here.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from adapter.keys import load_keys
from adapter.localimage import build_python
from adapter.runtime.base import RuntimeFault
from adapter.runtime.docker import connect as connect_docker
from marketplace.chain.actions import Desk, deploy
from marketplace.chain.address import to_text
from marketplace.chain.connect import connect
from marketplace.chain.wallet import Wallet
from marketplace.cli.common import private_folder
from marketplace.cli.faucet import ask as ask_faucet
from marketplace.cli.supervise import Part
from marketplace.client.purse import Purse

LOCAL_IMAGE: Final = "tally/python:local"
PROCESS_ONLY: Final = ""  # no Docker answers: the process runtime needs no image
_OPERATOR_ADA: Final = 200_000_000
_HOT_ADA: Final = 50_000_000


@dataclass
class Embedded:
    """One embedded market under *home*; *simulate* names GPUs that are not there, "" = real ones."""

    home: Path
    simulate: str = ""
    port: int = 0
    devnet_port: int = 0
    block_ms: int = 1000
    resume_window: str = "10m"
    image: str = PROCESS_ONLY
    parts: dict[str, Part] = field(default_factory=dict[str, Part])

    @property
    def passphrase_file(self) -> Path:
        """Devnet only: it lets the parts start without a person."""
        return self.home / "passphrase"

    @property
    def chain_url(self) -> str:
        """The devnet's Blockfrost face."""
        return str(self.parts["devnet"].ready["url"])

    @property
    def market_url(self) -> str:
        """The market's address."""
        return str(self.parts["market"].ready["url"])

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to use it."""
        return {
            "TALLY_HOME": str(self.home / "consumer"),
            "TALLY_PASSPHRASE_FILE": str(self.passphrase_file),
            "TALLY_CHAIN_URL": self.chain_url,
            "TALLY_MARKET": self.market_url,
        }

    def prepare(self) -> None:
        """Folders and the passphrase; adopts what an earlier run left."""
        private_folder(self.home)
        if not self.passphrase_file.exists():
            self.passphrase_file.touch(mode=0o600)
            self.passphrase_file.write_text(secrets.token_urlsafe(24) + "\n")
        os.environ["TALLY_PASSPHRASE_FILE"] = str(self.passphrase_file)

    def part(self, name: str, *arguments: str) -> Part:
        """The process *name*, started by ``python -m marketplace.cli.main`` as a user would."""
        made = self.parts.get(name)
        if made is None:
            made = self.parts[name] = Part(name, (), self.home / "logs" / f"{name}.log")
        made.argv = [sys.executable, "-m", "marketplace.cli.main", *arguments]
        made.env = {"TALLY_PASSPHRASE_FILE": str(self.passphrase_file), "PYTHONUNBUFFERED": "1"}
        return made

    async def start_devnet(self) -> Part:
        """The ledger; a restart takes the port that it had."""
        port = self._port_of("devnet", self.devnet_port)
        part = self.part(
            "devnet", "devnet", "--state", str(self.home / "devnet"), "--port", str(port),
            "--block-ms", str(self.block_ms),
        )  # fmt: skip
        await part.start()
        self._keep_port("devnet", str(part.ready["url"]))
        return part

    async def fund(self) -> None:
        """The operator's wallet, the adapter's hot key and the consumer's purse, from the faucet;
        the channel's scripts on chain. Does nothing that is done already."""
        chain = await connect(self.chain_url)
        operator = Purse.create(self.home / "market", name="operator")
        await self._top_up(operator, _OPERATOR_ADA)
        wallet = operator.wallet(mainnet=False)
        sent = await deploy(Desk(chain, wallet))
        if sent is not None:
            await self.wait_for(chain, sent.tx_id)

    async def wait_for(self, chain: Any, tx_id: bytes) -> None:
        """Until a block holds *tx_id*."""
        with anyio.fail_after(60):
            while await chain.transaction(tx_id) is None:  # noqa: ASYNC110  the chain tells nobody
                await anyio.sleep(0.1)

    async def _top_up(self, purse: Purse, lovelace: int) -> None:
        chain = await connect(self.chain_url)
        address = purse.wallet(mainnet=False).address
        held = sum(u.lovelace for u in await chain.utxos(address))
        if held < lovelace // 2:
            text = purse.address(mainnet=False)
            tx = await anyio.to_thread.run_sync(ask_faucet, self.chain_url, text, lovelace)
            await self.wait_for(chain, bytes.fromhex(tx))

    async def consumer(self, lovelace: int) -> Purse:
        """The consumer's purse, with at least half of *lovelace* in it."""
        purse = Purse.create(self.home / "consumer")
        await self._top_up(purse, lovelace)
        return purse

    async def start_market(self) -> Part:
        """The market; a restart takes the port that it had."""
        port = self._port_of("market", self.port)
        part = self.part(
            "market", "market", "serve", "--home", str(self.home / "market"), "--port", str(port),
            "--chain-url", self.chain_url, "--public-chain-url", self.chain_url,
            "--resume-window", self.resume_window, "--settle-every", "10s",
        )  # fmt: skip
        await part.start()
        self._keep_port("market", self.market_url)
        return part

    async def start_adapter(self, name: str = "adapter") -> Part:
        """An adapter on this machine."""
        part = self.part(
            name, "adapter", "run", "--state", str(self.home / name), "--market", self.market_url,
            "--chain-url", self.chain_url, "--config", str(self._config(name)),
        )  # fmt: skip
        await part.start()
        await self._fund_adapter(name)
        return part

    async def _fund_adapter(self, name: str) -> None:
        """The hot key pays the fees of the channels that it finishes."""
        chain = await connect(self.chain_url)
        keys = await anyio.to_thread.run_sync(load_keys, self.home / name / "keys")
        address = Wallet(keys.hot, mainnet=False).address
        held = sum(u.lovelace for u in await chain.utxos(address))
        if held < _HOT_ADA // 2:
            await anyio.to_thread.run_sync(ask_faucet, self.chain_url, to_text(address), _HOT_ADA)

    async def wallets(self) -> list[bytes]:
        """Every address that the faucet paid or that is paid here, the consumer's aside."""
        operator = Purse.create(self.home / "market", name="operator")
        hot = [
            Wallet((await anyio.to_thread.run_sync(load_keys, keys)).hot, mainnet=False).address
            for keys in sorted(self.home.glob("adapter*/keys"))
        ]
        return [operator.wallet(mainnet=False).address, *hot]

    def find_image(self) -> str:
        """The id of this machine's Python as an image, or "" where no Docker answers."""
        try:
            client = connect_docker("")
        except RuntimeFault:
            return PROCESS_ONLY
        try:
            return build_python(client)
        finally:
            client.close()

    def _config(self, name: str) -> Path:
        path = self.home / f"{name}.toml"
        lines = ['close_period = "10m"', f'simulate = "{self.simulate}"', "unconfined = true"]
        lines += [
            "[reserve]",
            "cores = 0",
            'memory = "1GB"',
        ]  # nobody else works on a devnet's host
        if self.image:
            lines += ["[labels]", f'"image/{LOCAL_IMAGE}" = "{self.image}"']
        path.write_text("\n".join(lines) + "\n")
        return path

    def _ports(self) -> dict[str, int]:
        path = self.home / "ports.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _port_of(self, name: str, asked: int) -> int:
        return asked or self._ports().get(name, 0)

    def _keep_port(self, name: str, url: str) -> None:
        ports = self._ports() | {name: int(url.split("://")[1].split("/")[0].rsplit(":", 1)[1])}
        (self.home / "ports.json").write_text(json.dumps(ports))

    async def stop(self) -> None:
        """Everything, the devnet last."""
        for name in sorted(self.parts, key=lambda n: (n == "devnet", n == "market")):
            await self.parts[name].stop()
