"""A service by commands: its address is said, its page opened without a secret in any argument, its
log searched; and what all of it cost.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.client import ADA, World, story, until

pytestmark = [pytest.mark.prove, pytest.mark.timeout(800)]

SERVICE = JOB.replace("version: 1\n", "version: 1\nkind: service\nports: [8000]\n").replace(
    "max_duration: 1m", "max_duration: 10m"
)
BROWSER = """#!/bin/sh
echo "$@" > "{folder}/arguments"
cp --preserve=mode "$(echo "$1" | sed 's#^file://##')" "{folder}/page"
"""


def test_a_service_is_found_opened_and_searched(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell = Shell(world)
        job = tmp_path / "service.yaml"
        job.write_text(SERVICE)
        made = await shell.json("purse", "fund")
        world.served.devnet.faucet(made["address"], 60 * ADA)
        async with anyio.create_task_group() as tasks:
            done: list[object] = []

            async def run() -> None:
                done.append(await shell.tally("job", "run", str(job), "--yes", "--keep", "0"))

            tasks.start_soon(run)
            lease = await world.provider.lease()
            (asked,) = await shell.json("job", "list")
            name = asked["id"]
            early = await shell.tally("job", "open", name)
            assert early.returncode == 3 and "NOT_RUNNING" in early.stderr
            await world.provider.start(lease)
            await world.provider.ticks(lease, 1)
            await world.provider.log(lease, b"loading\nready: 42\n")
            (own,) = (await shell.json("job", "show", name))["ports"]
            await _ticket(await _page(shell, tmp_path, name, own["url"]), own["url"], world.url)
            world.running.market.apps = None  # an operator who has no domain for them
            url = f"{world.url}/p/{name}/8000/"
            await _key(await _page(shell, tmp_path, name, url), url)
            wrong = await shell.tally("job", "open", name, "9999")
            assert wrong.returncode == 2 and "name one of 8000" in wrong.stderr

            async def printed() -> bool:
                return "ready" in (await shell.tally("job", "logs", name)).stdout

            await until(printed)
            found = await shell.tally("job", "logs", name, "--since", "10m", "--grep", "ready")
            assert found.stdout == "ready: 42\n", found.stderr
            await anyio.sleep(1.1)  # a second lies between what was printed and what is asked for
            assert (await shell.tally("job", "logs", name, "--since", "1s")).stdout == ""
            odd = await shell.tally("job", "logs", name, "--since", "soon")
            assert odd.returncode == 2 and "not a duration" in odd.stderr
            for by in ("day", "job", "key"):
                (row,) = await shell.json("spend", "--by", by)
                assert row["jobs"] == 1 and row["owed"] > 0
            shell.env["COLUMNS"] = "80"
            table = await shell.tally("spend", "--by", "job")
            assert name in table.stdout and "together 0.00000" in table.stdout
            assert max(map(len, table.stdout.splitlines())) <= 80
            sheet = await shell.tally("spend", "--by", "job", "--csv")
            assert sheet.stdout.startswith("of,name,from,to,jobs,leases,lovelace,ada")
            tasks.cancel_scope.cancel()

    story(tmp_path, tell)


async def _page(shell: Shell, folder: Path, name: str, url: str) -> str:
    """A browser is given a file of this user's alone; where that leads."""
    assert url in (await shell.tally("job", "show", name)).stdout
    told = await shell.json("job", "open", name)
    assert told == {"job": name, "port": 8000, "auth": "token", "url": url}
    program = folder / "browser"
    program.write_text(BROWSER.format(folder=folder))
    program.chmod(0o755)
    shell.env["BROWSER"] = str(program)
    opened = await shell.tally("job", "open", name)
    assert opened.returncode == 0 and opened.stdout.splitlines()[0] == url, opened.stderr
    page, arguments = folder / "page", (folder / "arguments").read_text()
    assert "tally_" not in arguments and "tally_" not in opened.stdout + opened.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert not list((folder / "home").glob("open-*")), "the file is gone once it was read"
    target = re.search(r"url=([^\"]+)", page.read_text())
    assert target is not None
    return target[1]


async def _ticket(target: str, url: str, market: str) -> None:
    """It opens the port's own origin, once."""
    at, asked = urlsplit(url), urlsplit(target)
    assert target.startswith(f"{url}.tally/enter?key=")
    async with httpx.AsyncClient(base_url=market, headers={"Host": at.netloc}) as browser:
        first = await browser.get(f"{asked.path}?{asked.query}")
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert "tally_app=" in first.headers["set-cookie"]
        assert (await browser.get(f"{asked.path}?{asked.query}")).status_code == 401


async def _key(target: str, url: str) -> None:
    """It leads to the service under the market's own address, by a key for pages alone."""
    async with httpx.AsyncClient() as browser:
        first = await browser.get(target, headers={"accept": "text/html"})
        assert (first.status_code, str(first.next_request.url if first.next_request else "")) == (
            303, url,
        )  # fmt: skip
        assert "tally_port=" in first.headers["set-cookie"]
        # The key in the file is for pages: it posts nothing, and makes no other key.
        bearer = {"Authorization": f"Bearer {target.partition('token=')[2]}"}
        market = url.partition("/p/")[0]
        key = {"name": "x", "verbs": ["jobs"], "expires_at_ms": 4 * 10**12}
        for path, body in (("keys", key), ("webhooks", {"url": "https://x.example/"})):
            answer = await browser.post(f"{market}/v1/{path}", json=body, headers=bearer)
            assert answer.status_code == 403, answer.text
