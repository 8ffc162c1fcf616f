"""A cluster in the console: its page keeps itself fresh, draws who hears whom, and runs nothing that
a member or a provider wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, expect

from marketplace.console.page import COOKIE
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.mesh import Heard
from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console
from tests.fakes import FakeAdapter
from tests.integration.market.test_gangs import of, run_all, team
from tests.integration.support.gang_pages import at_console, ordered, posted, sees

pytestmark = [pytest.mark.browser, pytest.mark.prove]
EVIL = "<img src=x onerror=alert(1)>"
FRESH_S = 20
"""A page asks again each three seconds."""


@dataclass
class Shown:
    """A cluster of three that was ordered to meet, and whose members hear each other."""

    portal: BlockingPortal
    client: httpx.AsyncClient
    url: str
    gang: str
    leases: list[str]
    keys: list[Any]
    hosts: list[FakeAdapter]

    def order(self, verb: Verb, version: int) -> None:
        self.portal.call(ordered, self.client, self.leases, self.keys, verb, version)

    def hear(self, member: int, number: int, *heard: int) -> None:
        rows = [Heard(one, 431, 5_000_000, 700) for one in heard]
        self.portal.call(sees, self.hosts[member], self.leases[member], member, number, *rows)

    def print(self, member: int, text: str, offset: int = 0) -> None:
        chunk = wire.LogChunk(self.leases[member], offset, "stdout", text.encode())
        self.portal.call(self.hosts[member].send, chunk)


@contextmanager
def shown(folder: Path) -> Iterator[Shown]:
    with start_blocking_portal() as portal:
        place = at_console(folder, 3)
        with portal.wrap_async_context_manager(place) as (client, fakes, url):
            view, keys = portal.call(posted, client, team(cluster=Cluster(2, mesh=True)))
            leases = portal.call(run_all, client, view, keys, *fakes)
            hosts = [of(fakes, lease) for lease in leases]
            yield Shown(portal, client, url, view["id"], leases, keys, hosts)


def test_a_clusters_page_follows_it_by_itself(browser: Browser, tmp_path: Path) -> None:
    with shown(tmp_path) as cluster:
        cluster.order(Verb.MEET, 1)
        for member, others in enumerate(((1, 2), (0, 2), (0,))):
            cluster.hear(member, 1, *others)
            cluster.print(member, f"{EVIL}\n" * 40)
        context = browser.new_context(base_url=cluster.url)
        session = cluster.client.cookies[COOKIE]
        context.add_cookies([{"name": COOKIE, "value": session, "url": cluster.url}])
        console = Console.of(context)
        page = console.page
        page.goto("/jobs")
        page.get_by_role("link", name="member 0 of its cluster").click()
        expect(page.locator("#stage")).to_have_text("assembling 3 of 3")
        heard = page.locator("#heard")
        expect(heard).to_have_text("2 of 3 pairs hear each other, 1 only one way")
        one_way = page.locator(".mesh .one-way")
        assert one_way.evaluate("(line) => getComputedStyle(line).strokeDasharray") != "none"
        expect(page.locator(".mesh circle")).to_have_count(3)
        log = page.locator("#log")
        expect(log).to_contain_text(f"[member-2] {EVIL}")
        expect(page.locator("img[src=x]")).to_have_count(0)
        assert both_themes(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        # What happens comes into the page, which stays at the log's end.
        cluster.order(Verb.RUN, 2)
        cluster.hear(2, 2, 0, 1)
        cluster.print(1, "works\n", offset=len(EVIL) * 40 + 40)
        soon = FRESH_S * SECONDS
        expect(page.locator("#stage")).to_have_text("running", timeout=soon)
        expect(heard).to_have_text("3 of 3 pairs hear each other", timeout=soon)
        expect(one_way).to_have_count(0)
        expect(log).to_contain_text("[member-1] works", timeout=soon)
        assert log.evaluate("(el) => el.scrollHeight - el.scrollTop - el.clientHeight") < 40
        assert log.evaluate("(el) => el.scrollTop") > 0
        assert console.said == []
        context.close()
