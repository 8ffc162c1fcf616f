"""What every answer says of itself: its request's id, what is left of the rate; and that a name in
the query that nothing knows is refused."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import httpx

from tests.fakes import seed
from tests.integration.support.market import fast, market, sign_in

ID = re.compile(r"req_[0-9a-f]{16}")


def test_a_misspelt_name_in_the_query_is_refused_with_the_nearest(tmp_path: Path) -> None:
    async def main() -> None:
        db = f"sqlite:///{tmp_path}/market.db"
        async with (
            market(db, tmp_path, fast()) as (url, _),
            httpx.AsyncClient(base_url=url, timeout=30) as client,
        ):
            await sign_in(client, seed("consumer"))
            for path, hint in (
                ("/v1/offers?lmit=1", "did you mean 'limit'"),
                ("/v1/jobs?sate=ENDED", "did you mean 'state'"),
                ("/v1/network?x=1", "takes none"),
                ("/v1/jobs?limit=1&token=abc", "known here"),  # of event streams alone
            ):
                answer = await client.get(path)
                assert answer.status_code == 422, path
                body = answer.json()
                assert body["code"] == "QUERY_UNKNOWN" and hint in body["detail"], body
            quote = await client.post("/v1/quotes?budget=1", json={"spec": {}})
            assert quote.json()["code"] == "QUERY_UNKNOWN"
            posted = await client.post("/v1/jobs?sesion_vk=1", json={})
            assert "did you mean 'session_vk'" in posted.json()["detail"]
            for path in ("/v1/offers?limit=1&all=true", "/healthz?probe=7"):
                assert (await client.get(path)).status_code == 200
            # An event stream takes a browser's credential; whether it is any good is asked next.
            stream = await client.get("/v1/jobs/job_x/events?token=abc&follow=false")
            assert stream.status_code == 404  # the bearer is good, the job is not there

    anyio.run(main)


def test_each_answer_has_an_id_which_the_problem_has_too(tmp_path: Path) -> None:
    async def main() -> None:
        db = f"sqlite:///{tmp_path}/market.db"
        async with (
            market(db, tmp_path, fast()) as (url, _),
            httpx.AsyncClient(base_url=url, timeout=30) as client,
        ):
            forged = {"Request-Id": "req_0000000000000000"}
            answers = [await client.get("/v1/network", headers=forged) for _ in range(3)]
            answers += [
                await client.get(path) for path in ("/", "/v1/none", "/v1/me", "/openapi.json")
            ]
            ids = [answer.headers["request-id"] for answer in answers]
            assert all(ID.fullmatch(one) for one in ids) and len(set(ids)) == len(ids)
            assert forged["Request-Id"] not in ids
            for path in ("/v1/none", "/v1/me", "/v1/offers?lmit=1"):
                answer = await client.get(path)
                assert answer.json()["request_id"] == answer.headers["request-id"]

    anyio.run(main)


def test_what_is_left_of_the_rate_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        db = f"sqlite:///{tmp_path}/market.db"
        settings = fast(requests_per_minute=20)
        async with (
            market(db, tmp_path, settings) as (url, _),
            httpx.AsyncClient(base_url=url, timeout=30) as client,
        ):
            first, second = [await client.get("/v1/network") for _ in range(2)]
            told = {name: first.headers[f"ratelimit-{name}"] for name in ("limit", "policy")}
            assert told == {"limit": "20", "policy": "20;w=60"}
            assert int(first.headers["ratelimit-remaining"]) == 19
            assert int(second.headers["ratelimit-remaining"]) == 18
            assert 1 <= int(second.headers["ratelimit-reset"]) <= 6
            refused = first
            while refused.status_code == 200:
                refused = await client.get("/v1/network")
            assert refused.status_code == 429 and refused.headers["ratelimit-remaining"] == "0"
            assert int(refused.headers["retry-after"]) >= 1
            # An account has a rate of its own, and is told of that one.
            await sign_in(client, seed("consumer"))
            mine = await client.get("/v1/me")
            assert mine.headers["ratelimit-remaining"] == "19"

    anyio.run(main)
