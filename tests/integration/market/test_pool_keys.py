"""The market keeps no block producer's key, whatever client brings one."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import anyio

from marketplace.domain.keys import Signer
from tests.fakes import seed
from tests.integration.market.test_access import body, open_market, spec
from tests.unit.support.pool_keys import refused, taken


def test_neither_a_file_nor_a_job_brings_one(tmp_path: Any) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            for name, data, holds in refused():
                path = f"/v1/blobs/{hashlib.sha256(data).hexdigest()}"
                no = await client.put(path, content=data)
                assert (no.status_code, no.json()["code"]) == (422, "POOL_KEY_REFUSED"), name
                assert no.json()["detail"] == f"the file holds {holds}"
                assert (await client.get(path)).status_code == 404
            assert (await client.get("/v1/blobs")).json()["items"] == []
            assert not [path for path in (tmp_path / "blobs").glob("*/*") if path.is_file()]
            for name, data in taken():
                path = f"/v1/blobs/{hashlib.sha256(data).hexdigest()}"
                assert (await client.put(path, content=data)).status_code == 200, name

            words = [
                data.decode() for _, data, _ in refused() if b"\0" not in data and data.isascii()
            ]
            assert len(words) > 20
            for word in words:
                for job in (spec(env={"KES": word}), spec(command=("sh", "-c", word))):
                    asked = body(job, Signer(os.urandom(32)), seed("consumer"))
                    for path, sent in (("jobs", asked), ("quotes", {"spec": asked["spec"]})):
                        no = await client.post(f"/v1/{path}", json=sent)
                        assert no.json()["code"] == "POOL_KEY_REFUSED", (path, no.text)

    anyio.run(run)
