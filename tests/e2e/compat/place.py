"""Devnet, market, adapter and payer as processes, each of the version that it is given.

Everything is done by the commands that a user would type, and by that version's own: this process
reads no key, book or database of theirs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx

from marketplace.cli.embedded.supervise import Part
from tests.e2e.support.embedded import Command, command, until_true

ROOT: Final = Path(__file__).parents[3]
CONFIG: Final = """
close_period = "10m"
simulate = "h100x1"
runtime = "process"
unconfined = true
[reserve]
cores = 0
memory = "1GB"
"""
_UV: Final = (sys.executable, "-m", "uv")


@dataclass(frozen=True)
class Version:
    """One version of the product: its name for people, and its ``tally``."""

    name: str
    tally: Path

    def __str__(self) -> str:
        return self.name


def this_version() -> Version:
    """The checkout that this test is part of."""
    return Version("new", Path(sys.executable).with_name("tally"))


def install(commit: str, folder: Path) -> Version:
    """*commit* out of this repository's history, in an environment of its own under *folder*, with
    that commit's own lock.
    """
    source, python = folder / "source", folder / "venv" / "bin" / "python"
    source.mkdir(parents=True)
    tar = folder / "source.tar"
    _run("git", "-C", str(ROOT), "archive", "--output", str(tar), commit)
    _run("tar", "-xf", str(tar), "-C", str(source))
    _run(*_UV, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    into = ("pip", "install", "--quiet", "--python", str(python))
    _run(*_UV, *into, "--requirements", str(source / "requirements.lock"))
    _run(*_UV, *into, "--no-deps", str(source))
    made = Version(commit[:7], python.with_name("tally"))
    # What is installed is what runs: a copy of today's code would agree with itself.
    code = "import adapter, marketplace; print(adapter.__file__, marketplace.__file__)"
    for where in _run(str(python), "-P", "-c", code).split():
        assert Path(where).is_relative_to(folder / "venv"), where
    return made


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class Place:
    """One market with one adapter and one payer, under *folder*."""

    folder: Path
    market: Version
    adapter: Version
    payer: Version
    parts: list[Part] = field(default_factory=list[Part])
    chain_url: str = ""
    market_url: str = ""
    offer: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir()

    async def start(self) -> None:
        """Everything but the adapter; a funded purse."""
        (self.folder / "passphrase").write_text("a drill's, on a devnet\n")
        devnet = await self._part(
            this_version(), "devnet", "devnet", "--state", str(self.folder / "devnet"),
            "--port", "0", "--block-ms", "400",
        )  # fmt: skip
        self.chain_url = str(devnet["url"])
        await self._start_market()
        purse = await self.pay("purse", "fund", "--json")
        await self._fund(self.payer, str(purse.last["address"]), "300 ADA")
        await until_true(self._has_money, "the payer's money")

    async def _has_money(self) -> bool:
        return bool((await self.pay("purse", "show", "--json")).last["balance"])

    async def _start_market(self) -> None:
        home = ("--home", str(self.folder / "market"))
        chain = ("--chain-url", self.chain_url)
        address = await self._do(self.market, "market", "address", *home)
        await self._fund(self.market, address.out[-1].strip(), "200 ADA")
        await self._do(self.market, "market", "deploy", *home, *chain, "--yes")
        ready = await self._part(
            self.market, "market", "market", "serve", *home, *chain, "--port", "0",
            "--public-chain-url", self.chain_url, "--settle-every", "5s",
        )  # fmt: skip
        self.market_url = str(ready["url"])

    async def start_adapter(self) -> None:
        """The adapter, with money for its fees; whether the market lists it is another matter."""
        config, state = self.folder / "adapter.toml", self.folder / "adapter"
        config.write_text(CONFIG)
        ready = await self._part(
            self.adapter, "adapter", "adapter", "run", "--state", str(state),
            "--config", str(config), "--market", self.market_url, "--chain-url", self.chain_url,
        )  # fmt: skip
        self.offer = str(ready["offer"])
        asked = ("adapter", "status", "--config", str(config), "--state", str(state), "--json")

        async def address() -> str:
            return str((await self._do(self.adapter, *asked)).last.get("fee_address") or "")

        found = await until_true(address, "the adapter's address for fees")
        await self._fund(self.adapter, found, "50 ADA")

    async def listed(self) -> None:
        """Until the market shows the adapter's offer as one that takes jobs."""

        async def seen() -> bool:
            answer = await http.get(f"/v1/offers/{self.offer}")
            return answer.status_code == 200 and answer.json()["state"] == "LISTED"

        async with httpx.AsyncClient(base_url=self.market_url, trust_env=False) as http:
            await until_true(seen, f"the offer\n{self.said('adapter')}", 90)

    async def pay(self, *words: str, by: Version | None = None, fails: bool = False) -> Command:
        """A command of the payer, in the payer's home; of version *by*, if it is another's."""
        return await self._do(by or self.payer, *words, fails=fails)

    def said(self, part: str) -> str:
        """The log of *part* so far."""
        return (self.folder / f"{part}.log").read_text(errors="replace")

    async def stop(self) -> None:
        """All parts, the devnet last."""
        for part in reversed(self.parts):
            await part.stop()

    async def _fund(self, version: Version, address: str, amount: str) -> None:
        await self._do(version, "faucet", address, amount, "--chain-url", self.chain_url)

    async def _part(self, version: Version, name: str, *words: str) -> dict[str, Any]:
        part = Part(name, [str(version.tally), *words], self.folder / f"{name}.log", self._env)
        self.parts.append(part)
        return await part.start()

    async def _do(self, version: Version, *words: str, fails: bool = False) -> Command:
        async with command(*words, env=self._env, program=[str(version.tally)]) as done:
            code = await done.ended()
        assert bool(code) == fails, f"{version}: tally {' '.join(words)}\n{done}"
        return done

    @property
    def _env(self) -> dict[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            "TALLY_HOME": str(self.folder / "payer"),
            "TALLY_PASSPHRASE_FILE": str(self.folder / "passphrase"),
            "TALLY_CHAIN_URL": self.chain_url,
            "TALLY_MARKET": self.market_url,
        }


@asynccontextmanager
async def place(
    folder: Path, *, market: Version, adapter: Version, payer: Version
) -> AsyncGenerator[Place]:
    """A :class:`Place` without its adapter; all processes end with the block."""
    made = Place(folder, market, adapter, payer)
    try:
        await made.start()
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await made.stop()
