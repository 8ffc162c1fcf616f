"""API keys by commands: made with caps and an end, listed without a secret, revoked at once."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from marketplace.cli.commands.key import Verb
from marketplace.market.accounts.access import VERBS
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.client import ADA, World, story


def test_the_commands_verbs_are_the_markets() -> None:
    assert tuple(Verb) == VERBS


@pytest.mark.prove
def test_a_key_is_made_by_a_command_does_what_it_may_and_is_revoked(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell = Shell(world)
        world.purse()
        made = await shell.tally(
            "key", "create", "ci", "--verb", "read", "--budget", "2 ADA", "--month-cap", "1.5 ADA",
            "--for", "12h",
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        secret = made.stdout.strip()
        assert "\n" not in secret and secret.startswith("tally_"), "a shell can take it as it is"
        assert "at most 2.000000 ADA in all, 1.500000 ADA a month" in made.stderr
        assert secret not in made.stderr
        [row] = (await shell.json("key", "list"))["items"]
        assert (row["name"], row["verbs"], row["budget"], row["month_cap"]) == (
            "ci", ["read"], 2 * ADA, 3 * ADA // 2,
        )  # fmt: skip
        assert row["expires_at_ms"] - row["created_at_ms"] == pytest.approx(
            12 * 3_600_000, abs=60_000
        )
        assert "secret" not in row
        bearer = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(base_url=world.url, headers=bearer, timeout=30) as door:
            assert (await door.get("/v1/jobs")).status_code == 200
            yaml = {"Content-Type": "application/yaml"}
            query = {"session_vk": "ab" * 32}
            posted = await door.post("/v1/jobs", content=JOB, headers=yaml, params=query)
            assert posted.status_code == 403, posted.text  # its verbs are read alone
            assert (await shell.json("key", "revoke", row["id"]))["revoked"]
            assert (await door.get("/v1/jobs")).status_code == 401
        [row] = (await shell.json("key", "list"))["items"]
        assert row["revoked_at_ms"] > 0
        table = await shell.tally("key", "list")
        assert row["id"] in table.stdout and "revoked" in table.stdout
        told = await shell.json("key", "create", "all of it", "--budget", "0")
        assert told["secret"].startswith("tally_") and told["verbs"] == ["jobs", "read"]
        for words, said in (
            (["--verb", "fly"], "fly"),
            (["--budget", "much"], "not an amount"),
            (["--for", "soon"], "not a duration"),
            (["--for", "999999999999d"], "expires_at_ms"),
        ):
            wrong = await shell.tally("key", "create", "x", *words)
            assert wrong.returncode in (2, 3) and said in wrong.stderr, wrong.stderr
            assert "Traceback" not in wrong.stderr
        assert (await shell.tally("key", "create", "for ever", "--for", "9000000d")).returncode == 0
        assert "9999-12-31" in (await shell.tally("key", "list")).stdout
        assert (await shell.tally("key", "revoke", "key_nosuch")).returncode in (2, 3)
        assert len((await shell.json("key", "list"))["items"]) == 3

    story(tmp_path, tell)
