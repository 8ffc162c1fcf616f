"""The commands as a person types them, in processes of their own, against a real market and
ledger.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import pytest

from marketplace.domain.protocol.wire import LeaseSigned
from tests.integration.support.client import ADA, PASSPHRASE, World, story, until

pytestmark = pytest.mark.prove

JOB = """\
version: 1
name: hello
image: "sha256:%s"
command: ["echo", "hello"]
resources: {cpu: 1, memory: 256MB}
price: {max_per_core_second: 50 lovelace, budget: 5 ADA}
policy: {max_duration: 1m}
""" % ("ab" * 32)


class Shell:
    """Runs ``tally`` with a home, a passphrase file, a market and a chain."""

    def __init__(self, world: World) -> None:
        self.folder = world.folder
        secret = world.folder / "passphrase"
        secret.write_text(PASSPHRASE + "\n")
        secret.chmod(0o600)
        self.env = {
            **os.environ, "TALLY_HOME": str(world.folder / "home"), "TALLY_MARKET": world.url,
            "TALLY_CHAIN_URL": world.served.url, "TALLY_PASSPHRASE_FILE": str(secret),
            "COLUMNS": "200", "NO_COLOR": "1",
        }  # fmt: skip

    async def tally(self, *words: str) -> CompletedProcess[str]:
        command = [sys.executable, "-m", "marketplace.cli.main", *words]
        done = await anyio.run_process(command, env=self.env, check=False, stdin=-3)
        return CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    async def json(self, *words: str) -> Any:
        done = await self.tally(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


async def provide(world: World) -> None:
    """What the provider does while the command runs: four ticks, the end, the settlement."""
    provider = world.provider
    lease = await provider.lease()
    await provider.start(lease)
    await provider.ticks(lease, 4)
    await provider.adapter.finish(lease)
    run = provider.adapter.leases[lease]
    signed = [m for m in provider.adapter.asked if isinstance(m, LeaseSigned)]
    await provider.settle(run.terms.session_vk, signed[-1].channel_tx, lease)


def test_a_job_by_commands_alone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell = Shell(world)
        job = tmp_path / "hello.yaml"
        job.write_text(JOB)
        made = await shell.json("wallet", "new")
        world.served.devnet.faucet(made["address"], 200 * ADA)
        assert (await shell.json("purse", "fund", "60 ADA", "--yes"))["lovelace"] == 60 * ADA
        facts = await shell.json("purse", "show")
        assert facts["balance"] == 60 * ADA and facts["channels"] == []
        offers = await shell.json("offers", "search", "price<=5 cpu>=1")
        assert [row["resource"] for row in offers["items"]] == ["core"]
        quote = await shell.json("job", "quote", str(job))
        assert quote["rate_micro"] == 5_000_000 and quote["ceiling"] == 301
        words = (
            "--image", "sha256:" + "ab" * 32, "--cores", "1", "--memory", "256MB", "--for", "1m",
            "--set", "price.budget=5 ADA", "--set", "price.max_per_core_second=50 lovelace",
        )  # fmt: skip

        asked = await shell.tally("job", "run", str(job))  # nobody there to say yes
        assert asked.returncode == 3 and "NOT_CONFIRMED" in asked.stderr
        assert "at most    0.000301 ADA" in asked.stdout

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provide, world)
            done = await shell.tally("job", "run", *words, "--yes", "--", "echo", "hello")
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1].startswith(
                "COMPLETED (exit code 0), 5 ticks: compute 0.000004 ADA + network fees 0."
            )

        name = next(j["id"] for j in await shell.json("job", "list") if j["reason"] == "COMPLETED")
        view = await shell.json("job", "show", name)
        assert view["exit_code"] == 0 and view["ceiling"] == quote["ceiling"]
        assert view["spec"]["command"] == ["echo", "hello"]
        evidence = tmp_path / "evidence.json"
        bill = await shell.json("invoice", name, "--verify", "--save", str(evidence))
        assert bill["reconciled"] and bill["owed"] == 4 and bill["verified"]
        shell.env["TALLY_MARKET"] = "http://127.0.0.1:1"  # offline: evidence and chain are enough
        assert (await shell.json("invoice", str(evidence), "--verify"))["reconciled"]
        shell.env["TALLY_MARKET"] = world.url

        forged = json.loads(evidence.read_text())
        forged["channels"][0]["voucher"]["cumulative"] = 5
        evidence.write_text(json.dumps(forged))
        refused = await shell.tally("invoice", str(evidence))
        assert refused.returncode == 3 and "INVOICE_VOUCHER" in refused.stderr

        swept = await shell.json("purse", "sweep", made["address"], "--yes")
        await until(lambda: world.served.devnet is not None)
        assert swept["lovelace"] > 59 * ADA
        assert (await shell.json("purse", "show"))["balance"] == 0

    story(tmp_path, tell)


def test_what_goes_wrong_is_one_line_with_a_code(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell = Shell(world)
        missing = await shell.tally("purse", "show")
        assert missing.returncode == 3 and missing.stderr.startswith("KEY_MISSING")
        await shell.json("purse", "fund")
        bad = tmp_path / "bad.yaml"
        bad.write_text("version: 1\nimage: a\nresorces: {}\n")
        refused = await shell.tally("job", "run", str(bad), "--yes")
        assert refused.returncode == 3 and "JOB_UNKNOWN_KEY" in refused.stderr
        assert "line 3" in refused.stderr and "resources" in refused.stderr
        huge = tmp_path / "huge.yaml"
        huge.write_text(JOB.replace("cpu: 1,", "cpu: 999,"))
        no_match = await shell.tally("job", "run", str(huge), "--yes")
        assert no_match.returncode == 3 and "NO_MATCH" in no_match.stderr
        poor = tmp_path / "poor.yaml"
        poor.write_text(JOB)
        short = await shell.tally("job", "run", str(poor), "--yes")
        assert short.returncode == 3 and "FUNDS_SHORT" in short.stderr
        usage = await shell.tally("offers", "search", "gpu.vran>=1GB")
        assert usage.returncode == 2 and "did you mean 'gpu.vram'" in usage.stderr
        shell.env["TALLY_MARKET"] = "http://127.0.0.1:1"
        away = await shell.tally("job", "list")
        assert away.returncode == 4 and "MARKET_UNREACHABLE" in away.stderr

    story(tmp_path, tell)
