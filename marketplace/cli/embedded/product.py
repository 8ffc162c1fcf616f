"""The embedded market: devnet, market and adapter as processes on one machine, each by its own
entry.

``tally up`` keeps its state, ``tally demo`` throws it away; nothing else differs. It is a devnet:
its passphrase lies beside its keys, which guard nothing of worth. Real networks never come here.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import anyio
import anyio.to_thread
import httpx

from adapter.core.workload import RuntimeFault
from adapter.host.keys import Keys, load_keys
from adapter.runtime.docker.door import connect as connect_docker
from adapter.runtime.docker.local_images import build_python, build_with, kept_packages
from adapter.runtime.volumes.runtime import missing
from marketplace.chain.actions.session import Desk, deploy
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.encoding.address import to_text
from marketplace.chain.node.blockfrost import connect
from marketplace.cli.commands.money.faucet import ask as ask_faucet
from marketplace.cli.embedded.containers import remove_leftovers
from marketplace.cli.embedded.leftovers import remove_of
from marketplace.cli.embedded.openings import openings
from marketplace.cli.embedded.ports import is_free, keep_port, port_of
from marketplace.cli.embedded.supervise import Part, PartFailed
from marketplace.cli.shared.refusals import PortTaken
from marketplace.client.jobs.sessions import Program
from marketplace.client.net.http import Http, MarketRefused
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder
from marketplace.domain.errors import Refusal
from marketplace.keystore import DRAWN, Keystore

LOCAL_IMAGE: Final = "tally/python:local"
PROCESS_ONLY: Final = ""  # no Docker answers: jobs are plain processes, which have no image
_OPERATOR_ADA: Final = 200_000_000
_ROUTER_ADA: Final = 1_000_000_000
_FEE_ADA: Final = 50_000_000
_LISTED_WITHIN_S: Final = 60
_SERVES: Final = ("LISTED", "DRAINING")


class AlreadyRunning(Refusal):
    """Another process serves this home."""

    code = "ALREADY_RUNNING"
    remedy = "use the one that runs, or another --home"


@dataclass
class Embedded:
    """One embedded market under *home*; *simulate* names GPUs that are not there, "" = real
    ones; *allowance*: what its adapter serves before a block, "" = what every adapter does;
    *routes*: its market passes payments on, too; *sessions*: whose images are made here.
    """

    home: Path
    simulate: str = ""
    port: int = 0
    devnet_port: int = 0
    block_ms: int = 1000
    resume_window: str = "10m"
    like_preprod: bool = False
    allowance: str = ""
    routes: bool = False
    registry: int = 0  # port of a registry of images; 0: none
    image: str = PROCESS_ONLY
    sessions: tuple[Program, ...] = ()
    session_images: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    _lock: TextIO | None = None
    _purses: dict[str, Purse] = field(default_factory=dict[str, Purse])
    _funded: set[str] = field(default_factory=set[str])

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
        """Folders and the passphrase; adopts what an earlier run left.

        :class:`AlreadyRunning` and :class:`PortTaken` before anything is started.
        """
        private_folder(self.home)
        self._lock = (self.home / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"{self.home} is being served already") from error
        for port in (self.port, self.devnet_port, self.registry):
            if not is_free(port):
                raise PortTaken(
                    f"port {port} of this machine is taken; the devnet's is set by --devnet-port"
                )
        if not self.passphrase_file.exists():
            self.passphrase_file.touch(mode=0o600)
            self.passphrase_file.write_text(secrets.token_urlsafe(24) + "\n")
        os.environ["TALLY_PASSPHRASE_FILE"] = str(self.passphrase_file)

    def part(self, name: str, *arguments: str) -> Part:
        """The process *name*: ``tally`` with *arguments*, as a user would start it."""
        made = self.parts.get(name)
        if made is None:
            made = self.parts[name] = Part(name, (), self.home / "logs" / f"{name}.log")
        made.argv = [
            sys.executable, "-m", "marketplace.cli.embedded.child", str(os.getpid()), *arguments,
        ]  # fmt: skip
        made.env = {
            "TALLY_PASSPHRASE_FILE": str(self.passphrase_file),
            "TALLY_PROJECT_ID": name,  # a chain's door counts requests by it: each part has its own
            "PYTHONUNBUFFERED": "1",
        }
        return made

    async def start_devnet(self) -> Part:
        """The ledger; a restart takes the port that it had."""
        return await self._start_listening("devnet", self.devnet_port, self._devnet)

    def _devnet(self, port: int) -> Part:
        return self.part(
            "devnet", "devnet", "--state", str(self.home / "devnet"), "--port", str(port),
            "--block-ms", str(self.block_ms),
        )  # fmt: skip

    async def slow_down(self) -> None:
        """From now on the chain goes as preprod does, also when the devnet is started again. What a
        market needs on chain is there by now (it would have taken minutes), and is shown when this
        returns."""
        url = str(self.parts["devnet"].ready["control"])
        async with httpx.AsyncClient(timeout=10) as client:
            there = (await client.get(f"{url}/status")).json()["height"]
            answer = await client.post(f"{url}/pace", json={"like": "preprod"})
            answer.raise_for_status()
            shown = -1
            with anyio.fail_after(60, reason="the chain showed no later block within 60 s"):
                while shown < there:
                    await anyio.sleep(0.5)
                    latest = await client.get(f"{self.chain_url}/blocks/latest")
                    shown = latest.json()["height"]
        part = self.parts["devnet"]
        part.argv = [*part.argv, "--like-preprod"]

    async def _start_listening(self, name: str, asked: int, made: Callable[[int], Part]) -> Part:
        """Start what *made* gives for a port; from then on that port is the part's."""
        part = made(asked or port_of(self.home, name))
        await part.start()
        port = int(str(part.ready["url"]).split("://")[1].split("/")[0].rsplit(":", 1)[1])
        keep_port(self.home, name, port)
        return made(port)  # if it dies, it is started again where the others look for it

    async def fund(self, consumer: int = 0) -> None:
        """The operator's wallet and the consumer's purse, from the faucet; then the channel's
        scripts on chain. Does nothing that is done already."""
        async with anyio.create_task_group() as tasks:
            if consumer:
                tasks.start_soon(self._top_up, await self.purse("consumer"), consumer)
            if self.routes:
                tasks.start_soon(self._top_up, await self.purse("router"), _ROUTER_ADA)
            await self._deploy()

    async def _deploy(self) -> None:
        operator = await self.purse("operator")
        await self._top_up(operator, _OPERATOR_ADA)
        chain = await connect(self.chain_url)
        sent = await deploy(Desk(chain, operator.wallet(mainnet=False)))
        if sent is not None:
            await self.wait_for(chain, sent.tx_id)

    async def purse(self, whose: str) -> Purse:
        """The ``consumer``'s, the market ``operator``'s or its ``router``'s purse, made if it is
        missing.
        """
        if whose not in self._purses:
            folder, name = {
                "operator": ("market", "operator"), "router": ("market/route", "purse")
            }.get(whose, (whose, "purse"))  # fmt: skip
            home = self.home / folder

            def made() -> Purse:
                self._keystore(home / "keys")
                return Purse.create(home, name=name)

            self._purses[whose] = await anyio.to_thread.run_sync(made)
        return self._purses[whose]

    def _keystore(self, folder: Path) -> str:
        """Makes it, where it is missing, for a passphrase that :meth:`prepare` drew; that."""
        # Its own passphrase: the process's is that of the market that was started last.
        phrase = self.passphrase_file.read_text().strip()
        Keystore(folder).make(phrase, drawn=len(phrase) >= DRAWN)
        return phrase

    async def wait_for(self, chain: Any, tx_id: bytes) -> None:
        """Until a block holds *tx_id*."""
        with anyio.fail_after(60, reason=f"no block held {tx_id.hex()} within 60 s"):
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

    async def consumer(self, lovelace: int, name: str = "consumer") -> Purse:
        """The consumer's purse, or another one's, with at least half of *lovelace* in it."""
        purse = await self.purse(name)
        await self._top_up(purse, lovelace)
        return purse

    async def start_market(self) -> Part:
        """The market; a restart takes the port that it had."""
        return await self._start_listening("market", self.port, self._market)

    def _market(self, port: int) -> Part:
        routes = ("--route", str(self.home / "market" / "route")) if self.routes else ()
        registry = ("--registry", f"127.0.0.1:{self.registry}") if self.registry else ()
        return self.part(
            "market", "market", "serve", "--home", str(self.home / "market"), "--port", str(port),
            "--chain-url", self.chain_url, "--public-chain-url", self.chain_url,
            "--resume-window", self.resume_window, "--settle-every", "10s",
            "--loopback-hooks", "--store", str(self.home / "market" / "stores"), *routes, *registry,
        )  # fmt: skip

    async def start_registry(self) -> Part:
        """The market's registry of images."""
        part = self.part(
            "registry", "market", "registry", "--market", self.market_url, "--root",
            str(self.home / "registry"), "--port", str(self.registry),
        )  # fmt: skip
        await part.start()
        return part

    async def start_adapter(
        self, name: str = "adapter", market: str = "", chain_url: str = ""
    ) -> Part:
        """An adapter on this machine, at *market* and *chain_url* or at this one's own; returns
        when its offer is listed, so that the next command finds it. :class:`PartFailed` when it is
        not.
        """
        part = self.part(
            name, "adapter", "run", "--state", str(self.home / name),
            "--market", market or self.market_url, "--chain-url", chain_url or self.chain_url,
            "--config", str(self._config(name)),
        )  # fmt: skip
        await self.fund_adapter(name)  # first: it takes no lease while it cannot pay for a Finish
        await part.start()
        await self._listed(part)
        return part

    async def _listed(self, part: Part) -> None:
        """Until the market shows the offer of *part* as one that takes jobs, or drains."""
        http = Http(self.market_url)
        try:
            with anyio.move_on_after(_LISTED_WITHIN_S):
                while await self._offer_state(http, part) not in _SERVES:  # noqa: ASYNC110  untold
                    await anyio.sleep(0.2)
                return
        finally:
            with anyio.CancelScope(shield=True):
                await http.aclose()
        raise PartFailed(f"{part.name} is not listed: {part.last_words()} (log: {part.log})")

    async def _offer_state(self, http: Http, part: Part) -> str:
        try:
            return str((await http.get(f"/v1/offers/{part.ready['offer']}"))["state"])
        except MarketRefused as refused:
            if refused.code != "NOT_FOUND":
                raise
            return ""

    async def fund_adapter(self, name: str = "adapter") -> None:
        """The fee key pays for the channels that it ends alone. Once: its keys open in a second."""
        if name in self._funded:
            return
        chain = await connect(self.chain_url)
        keys = await anyio.to_thread.run_sync(self._keys, self.home / name / "keys")
        address = Wallet(keys.fee, mainnet=False).address
        held = sum(u.lovelace for u in await chain.utxos(address))
        if held < _FEE_ADA // 2:
            await anyio.to_thread.run_sync(ask_faucet, self.chain_url, to_text(address), _FEE_ADA)
        self._funded.add(name)

    async def wallets(self) -> list[bytes]:
        """Every address that the faucet paid or that is paid here, the consumer's aside."""
        operator = await self.purse("operator")
        adapters = await self._adapter_keys()
        paid = [Wallet(k, mainnet=False).address for keys in adapters for k in (keys.end, keys.fee)]
        return [operator.wallet(mainnet=False).address, *paid]

    async def _adapter_keys(self) -> list[Keys]:
        folders = sorted(self.home.glob("adapter*/keys"))
        return [await anyio.to_thread.run_sync(self._keys, folder) for folder in folders]

    def _keys(self, folder: Path) -> Keys:
        return load_keys(folder, self._keystore(folder))

    async def sweep(self) -> int:
        """Remove every workload, network, mesh and volume that this market's adapters left; how
        many containers and networks there were.

        For throw-away markets, once everything is stopped: with the state goes all that knew of
        them.
        """
        names = [keys.provider[:16] for keys in await self._adapter_keys()]
        for folder, name in zip(sorted(self.home.glob("adapter*/keys")), names, strict=True):
            await remove_of(name, folder.parent / "runtime")
        return await anyio.to_thread.run_sync(remove_leftovers, names)

    def find_image(self) -> str:
        """The id of this machine's Python as an image, or "" where no Docker answers."""
        try:
            client = connect_docker("")
        except RuntimeFault:
            return PROCESS_ONLY
        try:
            for one in self.sessions:
                if one.lock is not None:
                    built = build_with(client, one.local, one.lock, kept_packages())
                    self.session_images[one.local] = built
            return build_python(client)
        finally:
            client.close()

    def _config(self, name: str) -> Path:
        path = self.home / f"{name}.toml"
        # Without Docker: whoever posts here is who started it, so his processes need no more leave.
        runs = 'runtime = "docker"' if self.image else 'runtime = "process"\nunconfined = true'
        lines = ['close_period = "10m"', f'simulate = "{self.simulate}"', runs, "egress = true"]
        # At the default no job of a second would run: ending its channel costs 0.22 ADA.
        lines += ["minimum = 0  # play money: jobs run though ending their channel costs more"]
        if self.allowance:
            lines += ["[treasury]", f'allowance = "{self.allowance}"']
        lines += [
            "[reserve]",
            "cores = 0",
            'memory = "1GB"',
        ]  # nobody else works on a devnet's host
        lines += ["[limits]", 'relay_free = "1h"']
        if self.like_preprod:  # a block and its index take their time, as on a public network
            lines += ['fund_wait = "1m"']
        lines += openings(self.home, name, "docker" if self.image else "process")
        if self.image:
            lines += ["[labels]", f'"image/{LOCAL_IMAGE}" = "{self.image}"']
        lines += [f'"image/{name}" = "{made}"' for name, made in self.session_images.items()]
        lines += ["[prices]"]  # the last: whoever tries prices adds them at the end
        if not missing(self.home):
            lines += ['disk = "0.02 lovelace"  # about 0.05 ADA per GB and month']
        path.write_text("\n".join(lines) + "\n")
        return path

    async def stop(self) -> None:
        """Everything, the devnet last; then another process may serve this home."""
        for name in sorted(self.parts, key=lambda n: (n == "devnet", n == "market")):
            await self.parts[name].stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
