"""A market with its pages and hosts that take clusters, and what a cluster's consumer and its adapters
tell it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshSight, SignedMesh, public
from tests.fakes import FakeAdapter, gpu, offer, seed, until, working
from tests.integration.market.test_gangs import gang_body, whole
from tests.integration.support.market import market, sign_in


@asynccontextmanager
async def at_console(tmp_path: Path, hosts: int):
    """A market with its pages, *hosts* that take clusters, and a reader who is signed in."""
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, console=True) as (url, _):
        fakes: list[FakeAdapter] = []
        for at in range(hosts):
            key = seed(f"host{at}")
            made = offer(key, tuple(gpu(at) for at in range(2)), cluster_free_ms=180_000, mesh=True)
            fakes.append(FakeAdapter(url, key, made))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(*fakes):
            await sign_in(client, seed("consumer"))
            assert (await client.post("/session")).status_code == 200

            async def listed() -> bool:
                return len((await client.get("/v1/offers")).json()["items"]) == hosts

            await until(listed)
            yield client, tuple(fakes), url


async def page(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text[:300]
    return answer.text


async def until_shown(client: httpx.AsyncClient, path: str, holds: Callable[[str], bool]) -> str:
    """The page once it is so."""

    async def look() -> str:
        text = await page(client, path)
        return text if holds(text) else ""

    return await until(look, 30)


async def posted(client: httpx.AsyncClient, job: JobSpec) -> tuple[dict[str, Any], list[Signer]]:
    keys = [Signer(os.urandom(32)) for _ in range(job.gang.members if job.gang else 1)]
    answer = await client.post("/v1/gangs", json=gang_body(job, keys))
    assert answer.status_code == 201, answer.text
    return await whole(client, answer.json()["id"], "QUOTED"), keys


async def ordered(
    client: httpx.AsyncClient, leases: Sequence[str], keys: Sequence[Signer], verb: Verb, at: int
) -> None:
    for lease, key in zip(leases, keys, strict=True):
        signed = SignedOrder.sign(key, ClusterOrder(lease, at, verb))
        body = {"body": signed.body.hex(), "signature": signed.signature.hex()}
        answer = await client.post(f"/v1/leases/{lease}/order", json=body)
        assert answer.status_code == 200, answer.text


async def sees(host: FakeAdapter, lease: str, at: int, number: int, *heard: Heard) -> None:
    place = MeshPlace(lease, bytes([at]) * 32, public(f"192.0.2.{at + 1}", 7000))
    await host.send(wire.MeshPlaced(lease, SignedMesh.sign(host.signer, place)))
    sight = MeshSight(lease, 1, number, heard)
    await host.send(wire.MeshSeen(lease, SignedMesh.sign(host.signer, sight)))
