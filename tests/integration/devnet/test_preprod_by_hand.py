"""The commands of docs/preprod.md, "The same by hand", as they stand on the page, each in a shell,
against the devnet.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from contracts.devnet import Served, serve
from marketplace.chain.actions.session import Desk, open_channels
from marketplace.chain.build.plans import Opening
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import MemoryLog
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts
from tests.integration.support.chain import ADA, Provider, key
from tests.requires import need_devnet

ROOT = Path(__file__).resolve().parents[3]
PASSPHRASE = "correct horse battery staple"
CLOSE_PERIOD_MS = 60_000
pytestmark = pytest.mark.prove


def commands() -> list[str]:
    """The lines of the page's block."""
    page = (ROOT / "docs" / "preprod.md").read_text()
    found = re.search(r"## The same by hand\n+```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


class Reader:
    """Somebody with a terminal who has set the two variables of the page, and a passphrase."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.home = folder / "home"
        self.served = served
        secret = folder / "passphrase"
        secret.write_text(PASSPHRASE + "\n")
        secret.chmod(0o600)
        tools = folder / "bin"
        tools.mkdir()
        tally = tools / "tally"
        tally.write_text(f'#!/bin/sh\nexec {sys.executable} -m marketplace.cli.main "$@"\n')
        tally.chmod(0o755)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TALLY_")},
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.home),
            "TALLY_HOME": str(self.home),
            "TALLY_CHAIN_URL": served.url,
            "TALLY_PROJECT_ID": "preprodAnything",
            "TALLY_PASSPHRASE_FILE": str(secret),
        }

    def types(self, line: str) -> str:
        """What a line of the page prints. It must succeed."""
        done = subprocess.run(
            ["bash", "-c", line], env=self.env, cwd=self.home.parent, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def sends(self, shown: str, ada: int) -> None:
        """Test ADA from a faucet to the address that a command has shown."""
        (address,) = re.findall(r"addr_test1\w+", shown)
        self.served.devnet.faucet(address, ada * ADA)
        self.served.devnet.faucet(address, 5 * ADA)

    def rents(self) -> None:
        """What the payer of a job does: a channel of the purse's, to a provider that is not there
        any more.
        """
        purse = Purse.load(self.home, passphrase=PASSPHRASE)
        session, provider = key("by hand"), Provider("gone")

        async def act() -> None:
            chain = await connect(self.served.url, "")
            wallet = purse.wallet(mainnet=False)
            consts = Consts(
                session.verify_key, provider.adapter.key_hash, provider.payout,
                wallet.signer.key_hash, CLOSE_PERIOD_MS, 0,
            )  # fmt: skip
            assert wallet.stake is not None
            opening = Opening(15 * ADA, lambda _first, _index: consts, Credential(wallet.stake))
            await open_channels(Desk(chain, wallet, "", MemoryLog()), [opening])

        anyio.run(act)


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    need_devnet()
    address, deploy, fund, listing, close_all, close, sweep, tower = commands()
    with serve() as served:
        reader = Reader(tmp_path, served)
        reader.sends(reader.types(address), 20)
        assert "deployed in" in reader.types(deploy)
        reader.sends(reader.types(fund), 50)
        reader.rents()

        shown = reader.types(listing)
        (row,) = json.loads(reader.types(f"{listing.partition('#')[0]} --json"))["items"]
        # Piped, a channel is one line, with its name whole.
        (line,) = [one for one in shown.splitlines() if row["session_vk"] in one]
        assert "15.000000 ADA" in line

        reader.env |= {"SESSION": row["session_vk"]}
        assert "sent" in reader.types(close)
        assert "closing" in reader.types(listing).lower()
        served.devnet.advance(30 * 60_000 + CLOSE_PERIOD_MS)
        assert "15.000000 ADA came home" in reader.types(sweep)
        assert "channels: none" in reader.types(listing)
        assert "nothing is locked" in reader.types(close_all)

        with subprocess.Popen(
            ["bash", "-c", f"exec {tower}"], env=reader.env, cwd=tmp_path, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        ) as watching:  # fmt: skip
            assert watching.stderr is not None
            try:
                assert "fees are paid from addr_test1" in watching.stderr.readline()
            finally:
                watching.terminate()


def test_a_missing_key_names_the_command_that_makes_it(tmp_path: Path) -> None:
    need_devnet()
    with serve() as served:
        reader = Reader(tmp_path, served)
        done = subprocess.run(
            ["bash", "-c", "tally market deploy"], env=reader.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert "KEY_MISSING" in done.stderr and "tally market address" in done.stderr
