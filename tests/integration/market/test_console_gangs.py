"""A gang's page shows all its members as one, to its owner alone, whatever providers say."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import httpx

from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.mesh import Heard, PathKind
from tests.fakes import seed, until
from tests.integration.market.test_cluster_roles import job
from tests.integration.market.test_gangs import of, run_all, team
from tests.integration.market.test_spine import sign
from tests.integration.support.gang_pages import (
    at_console,
    ordered,
    page,
    posted,
    sees,
    until_shown,
)
from tests.integration.support.market import sign_in

EVIL = "<img src=x onerror=alert(1)>"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;"


def test_members_that_differ_are_shown_with_their_roles(tmp_path: Path) -> None:
    async def go() -> None:
        async with at_console(tmp_path, 3) as (client, _, _):
            view, _ = await posted(client, job(2))
            text = await page(client, f"/gangs/{view['id']}")
            assert ">member-0</a> <small>head</small>" in text
            assert all(f">member-{at}</a> <small>worker</small>" in text for at in (1, 2))
            assert "assembling 0 of 3" in text

    anyio.run(go)


def test_a_cluster_is_shown_as_one(tmp_path: Path) -> None:
    async def go() -> None:
        async with at_console(tmp_path, 3) as (client, fakes, url):
            view, keys = await posted(client, team(cluster=Cluster(2, mesh=True)))
            at = f"/gangs/{view['id']}"
            assert "assembling 0 of 3" in await page(client, at)
            leases = await run_all(client, view, keys, *fakes)
            await ordered(client, leases, keys, Verb.MEET, 1)
            hosts = [of(fakes, lease) for lease in leases]
            for n, (host, lease) in enumerate(zip(hosts, leases, strict=True)):
                others = [m for m in range(3) if m != n and (n, m) != (2, 1)]
                heard = [
                    Heard(
                        m, 400 + 50 * n, 4096, 2048, PathKind.RELAY if n == 0 else PathKind.PUBLIC
                    )
                    for m in others
                ]
                await sees(host, lease, n, 1, *heard)
                line = wire.LogChunk(lease, 0, "stdout", f"{EVIL} {n}\r[member-9] x\n".encode())
                await host.send(line)

            text = await until_shown(
                client, at, lambda text: "2 of 3 pairs" in text and text.count("[member-9]") == 3
            )
            assert "2 of 3 pairs hear each other, 1 only one way" in text
            assert "assembling 3 of 3" in text and "waits, unbilled" in text
            await ordered(client, leases, keys, Verb.RUN, 2)
            receipts = [await host.tick(lease) for host, lease in zip(hosts, leases, strict=True)]
            assert [one.lease_owed for one in receipts] == [100, 100, 100]

            text = await until_shown(client, at, lambda text: "₳0.0003</span>" in text)
            assert ">running</span>" in text and text.count("works, billed") == 3
            for n, lease in enumerate(leases):
                assert f">member-{n}</a>" in text and f"/jobs/{view['members'][n]['id']}" in text
                assert of(fakes, lease).signer.verify_key.hex() in text
                assert f"[member-{n}] {ESCAPED} {n}\n" in text
                assert f"[member-{n}] [member-9] x\n" in text
            assert text.count("0.4 ms") == 4 and text.count("0.5 ms") == 1
            assert text.count("not the other way") == 1
            assert text.count(">relay</span>") == 2 and text.count(">public</span>") == 3
            assert text.count("4.0 KB") == text.count("2.0 KB") == 5
            assert '<path class="one-way"' in text and EVIL not in text and "style=" not in text
            # From a member, and from the list, one comes to all of them.
            link = f'<a href="{at}">member {{}} of its cluster</a>'
            assert link.format(2) in await page(client, f"/jobs/{view['members'][2]['id']}")
            listed = await page(client, "/jobs")
            assert all(link.format(n) in listed for n in range(3))
            # A stranger learns no more than of a gang that is not there, nobody is asked to sign in.
            async with httpx.AsyncClient(base_url=url, timeout=30) as other:
                gone = await other.get(at, headers={"Accept": "text/html"})
                assert (gone.status_code, gone.headers["location"][:8]) == (303, "/sign-in")
                await sign_in(other, seed("stranger"))
                await other.post("/session")
                none = "gang_" + "0" * 26
                said = [await page(other, f"/gangs/{one}", 404) for one in (view["id"], none)]
                assert said[0].replace(view["id"], none) == said[1] and "NOT_FOUND" in said[1]

    anyio.run(go)


def test_a_gang_that_is_no_cluster_has_a_page_and_what_a_provider_says_is_text(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        async with at_console(tmp_path, 2) as (client, fakes, _):
            view, keys = await posted(client, team(2))
            at = f"/gangs/{view['id']}"
            for member, key in zip(view["members"], keys, strict=True):
                lease = await sign(client, member, key, os.urandom(32).hex())
                host = of(fakes, lease)
                await until(lambda host=host, lease=lease: host.leases[lease].signed)
                await host.progress(lease, EVIL, note=EVIL)
                await until_shown(client, at, lambda text: ESCAPED in text)
                await host.progress(lease, "STARTED")
            text = await until_shown(client, at, lambda text: text.count("state-running") == 2)
            assert "A gang of 2" in text and EVIL not in text
            assert "Who hears whom" not in text and "tally job mesh" not in text
            assert "member 1 of its gang</a>" in await page(client, "/jobs")

    anyio.run(go)
