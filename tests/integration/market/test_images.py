"""Tokens of the market's registry: who gets what, and who tries to get another's."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.work.image_access import MOST_PULL_MS, SignedPull, namespace_of
from marketplace.registry.tokens import Scope, TokenKey, TokenReader
from tests.fakes import seed, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import HOOK_KEY, fast, sign_in

NAME = "127.0.0.1:5999"
OURS = fast(registry=NAME)
MINE = namespace_of(seed("consumer").key_hash.hex())
THEIRS = namespace_of(seed("stranger").key_hash.hex())
DIGEST = "@sha256:" + "ab" * 32


async def granted(
    client: httpx.AsyncClient, *scopes: str, auth: Any = None, **query: Any
) -> list[Scope]:
    """What a token for *scopes* allows; *auth*: HTTP Basic, else as *client* is signed in."""
    answer = await client.get(
        "/v1/registry/token", params={"service": NAME, "scope": list(scopes), **query},
        **({"auth": auth} if auth else {}),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    reader = TokenReader(TokenKey(HOOK_KEY).certificate, NAME)
    return reader.read(f"Bearer {answer.json()['token']}")[0]


def repository(name: str, *actions: str) -> Scope:
    return Scope("repository", name, frozenset(actions))


def wanted(name: str) -> str:
    return f"repository:{name}:pull,push,delete"


@asynccontextmanager
async def stranger_of(client: httpx.AsyncClient) -> AsyncGenerator[httpx.AsyncClient]:
    """Another account at the same market."""
    async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
        await sign_in(other, seed("stranger"))
        yield other


def token_of(client: httpx.AsyncClient) -> str:
    return str(client.headers["Authorization"]).removeprefix("Bearer ")


def test_an_account_has_its_own_images_and_no_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            at_market(tmp_path, settings=OURS) as (client, *_),
            stranger_of(client) as other,
        ):
            mine = f"{MINE}/train"
            own = [repository(mine, "pull", "push", "delete")]
            assert await granted(client, wanted(mine)) == own
            assert await granted(other, wanted(mine)) == []
            basic = httpx.BasicAuth("anything", token_of(client))
            assert await granted(client, wanted(mine), auth=basic) == own
            both = await granted(client, f"{wanted(mine)} {wanted(f'{THEIRS}/x')}")
            assert both == own, "of two scopes in one line the second is another's"
            listed = await granted(client, f"namespace:{MINE}:list", f"namespace:{THEIRS}:list")
            assert listed == [Scope("namespace", MINE, frozenset({"list"}))]

    anyio.run(run)


@pytest.mark.parametrize(
    "name",
    ["train", "", f"{MINE}", f"{MINE}/", f"{MINE}/a/b", f"{MINE}/../{THEIRS}/x", f"{MINE}/A",
     f"{THEIRS}/{MINE}", f"{MINE[:-1]}/x"],
)  # fmt: skip
def test_other_names_give_nothing(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with at_market(tmp_path, settings=OURS) as (client, *_):
            kinds = ("repository", "namespace", "registry")
            asked = [f"{kind}:{name}:pull,push,list,*" for kind in kinds]
            found = await granted(client, *asked)
            assert [one for one in found if (one.kind, one.name) != ("namespace", MINE)] == []

    anyio.run(run)


def test_what_is_public_is_pulled_by_anybody_and_pushed_by_nobody_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            at_market(tmp_path, settings=OURS) as (client, *_),
            stranger_of(client) as other,
        ):
            nobody = httpx.AsyncClient(base_url=client.base_url)
            mine = f"{MINE}/train"
            assert await granted(nobody, wanted(mine)) == []
            answer = await client.put("/v1/registry/images/train", json={"public": True})
            assert answer.json() == {"repository": mine, "public": True}
            for one in (other, nobody):
                assert await granted(one, wanted(mine)) == [repository(mine, "pull")]
                assert await granted(one, wanted(f"{MINE}/train2")) == []
            shown = (await client.get("/v1/registry/images")).json()
            assert [one["repository"] for one in shown["public"]] == [mine]
            assert shown["namespace"] == MINE and shown["registry"] == NAME
            assert (await other.get("/v1/registry/images")).json()["public"] == []
            await client.put("/v1/registry/images/train", json={"public": False})
            assert await granted(nobody, wanted(mine)) == []
            await nobody.aclose()

    anyio.run(run)


def test_a_key_does_what_its_verbs_say(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, settings=OURS) as (client, *_):
            mine, far = f"{MINE}/train", int(time.time() * 1000) + 3_600_000
            for verbs, actions in ((["read"], {"pull"}), (["blobs"], {"push", "delete"})):
                asked = {"name": "k", "verbs": verbs, "budget": 0, "expires_at_ms": far}
                secret = (await client.post("/v1/keys", json=asked)).json()["secret"]
                basic = httpx.BasicAuth("key", secret)
                assert await granted(client, wanted(mine), auth=basic) == [
                    repository(mine, *actions)
                ]
                put = await client.put(
                    "/v1/registry/images/train", json={"public": False},
                    headers={"Authorization": f"Bearer {secret}"},
                )  # fmt: skip
                assert put.status_code == (200 if "blobs" in verbs else 403)

    anyio.run(run)


@pytest.mark.parametrize("password", ["tally_s_00", "tally_k_1", "x", "a.1.00", ""])
def test_a_wrong_password_is_no_nobody(tmp_path: Path, password: str) -> None:
    async def run() -> None:
        async with at_market(tmp_path, settings=OURS) as (client, *_):
            for user in ("lease", "me"):
                answer = await client.get(
                    "/v1/registry/token", params={"scope": wanted(f"{MINE}/x")},
                    auth=httpx.BasicAuth(user, password),
                )  # fmt: skip
                assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")

    anyio.run(run)


def pull(signer: Signer, name: str, lease: str, ms: int = 60_000, registry: str = NAME) -> Any:
    ends = int(time.time() * 1000) + ms
    signed = SignedPull.sign(signer, registry, name, lease, ends)
    return httpx.BasicAuth("lease", signed.password)


def test_the_provider_of_a_lease_pulls_its_image_and_nothing_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one"), settings=OURS) as (client, _, _, one):
            mine, other = f"{MINE}/train", f"{MINE}/secret"
            view, _ = await post(client, spec(image=f"{NAME}/{mine}{DIGEST}"))
            lease = (await quoted(client, view["id"]))["lease"]
            key = one.signer

            async def refused(auth: Any, name: str = mine) -> None:
                answer = await client.get(
                    "/v1/registry/token", params={"scope": wanted(name)}, auth=auth
                )
                assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")

            assert await granted(client, wanted(mine), auth=pull(key, mine, lease)) == [
                repository(mine, "pull")
            ]
            # What it signed for another repository than its job's gives nothing there either.
            assert await granted(client, wanted(other), auth=pull(key, other, lease)) == []
            await refused(pull(key, mine, lease), other)
            await refused(pull(seed("another provider"), mine, lease))
            await refused(pull(key, mine, "lease_x"))
            await refused(pull(key, mine, lease, registry="other.test"))
            await refused(pull(key, mine, lease, ms=-1))
            await refused(pull(key, mine, lease, ms=MOST_PULL_MS + 60_000))
            assert (await client.post(f"/v1/jobs/{view['id']}/stop", json={})).status_code < 300

            async def over() -> bool:
                return (await client.get(f"/v1/jobs/{view['id']}")).json()["state"] == "ENDED"

            await until(over)
            await refused(pull(key, mine, lease))

    anyio.run(run)


def test_no_job_runs_another_accounts_image(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one"), settings=OURS) as (client, *_):
            theirs = f"{THEIRS}/secret"
            session = Signer(os.urandom(32))
            asked = body(spec(image=f"{NAME}/{theirs}{DIGEST}"), session, seed("consumer"))
            answer = await client.post("/v1/jobs", json=asked)
            assert (answer.status_code, answer.json()["code"]) == (403, "IMAGE_PRIVATE")
            async with stranger_of(client) as other:
                await other.put("/v1/registry/images/secret", json={"public": True})
                assert (await client.post("/v1/jobs", json=asked)).status_code == 201
                await other.put("/v1/registry/images/secret", json={"public": False})

    anyio.run(run)


def test_a_job_whose_image_became_private_pulls_it_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one"), settings=OURS) as (client, _, _, one):
            theirs = f"{THEIRS}/open"
            async with stranger_of(client) as other:
                await other.put("/v1/registry/images/open", json={"public": True})
                view, _ = await post(client, spec(image=f"{NAME}/{theirs}{DIGEST}"))
                lease = (await quoted(client, view["id"]))["lease"]
                auth = pull(one.signer, theirs, lease)
                assert await granted(client, wanted(theirs), auth=auth) == [
                    repository(theirs, "pull")
                ]
                await other.put("/v1/registry/images/open", json={"public": False})
                assert await granted(client, wanted(theirs), auth=auth) == []

    anyio.run(run)


def test_a_market_without_a_registry_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path) as (client, *_):
            for path in ("", "/token", "/images"):
                answer = await client.get(f"/v1/registry{path}")
                assert answer.json()["code"] == "NO_REGISTRY"
            answer = await client.put("/v1/registry/images/x", json={"public": True})
            assert answer.json()["code"] == "NO_REGISTRY"

    anyio.run(run)


def test_a_token_for_another_registry_allows_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, settings=OURS) as (client, *_):
            assert await granted(client, wanted(f"{MINE}/x"), service="evil.test") == []

    anyio.run(run)
