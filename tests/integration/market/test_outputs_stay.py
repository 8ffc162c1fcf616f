"""What a workload gave back is with the market before anybody asks, and stays when its provider
goes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.output import SignedOutput, terms_hash
from marketplace.market.accounts.blobs import PART
from tests.fakes import FakeAdapter, until
from tests.integration.market.test_access import open_market
from tests.integration.security.test_accounts import post, sign

LIMIT = 2 * PART + PART // 2


def _serves(adapter: FakeAdapter, files: dict[str, bytes]) -> None:
    """Answers what the market asks of *files*, by hash."""

    async def answer(message: wire.Message) -> None:
        if isinstance(message, wire.BlobWanted):
            data = files[message.sha256]
            part = data[message.offset : message.offset + message.length]
            at = (message.lease, message.sha256, message.offset, len(data))
            await adapter.send(wire.BlobPart(*at, part))

    adapter.handler = answer


def test_outputs_outlive_their_provider(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, blob_limit=LIMIT) as (
            client,
            inside,
            adapter,
        ):
            small, large = os.urandom(2 * PART + 7), os.urandom(PART)
            names = [hashlib.sha256(data).hexdigest() for data in (small, large)]
            _serves(adapter, dict(zip(names, (small, large), strict=True)))
            session = Signer(os.urandom(32))
            view = await post(client, session)
            lease = await sign(client, view, session, {})
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            terms = terms_hash(adapter.leases[lease].terms.encode())
            signed = SignedOutput.sign(adapter.signer, terms, "a", names[0], len(small)).signature
            forged = SignedOutput.sign(session, terms, "b", names[1], len(large)).signature
            await adapter.send(wire.OutputReady(lease, "a", names[0], len(small), signed))
            await adapter.send(wire.OutputReady(lease, "b", names[1], len(large), forged))
            await adapter.send(wire.OutputReady(lease, "b", names[1], len(large), signed))
            await until(lambda: len(adapter.socket.rejected) == 2)
            await adapter.send(wire.OutputReady(lease, "b", names[1], len(large)))  # as of before
            at = f"/v1/jobs/{view['id']}/outputs"

            async def listed() -> bool:
                return len((await client.get(at)).json()["items"]) == 2

            await until(listed)
            items = (await client.get(at)).json()["items"]
            assert [one["signature"] for one in items] == [signed.hex(), ""]
            await until(inside.parts.blobs.path(names[0]).exists)
            adapter.socket.stopped = True
            assert adapter.socket.live is not None
            await adapter.socket.live.close()
            await until(lambda: not inside.parts.hub.connected(adapter.signer.verify_key.hex()))
            kept = await client.get(f"{at}/{names[0]}")
            assert (kept.status_code, kept.content == small) == (200, True)
            # Both together are more than one blob may have: nobody asked for the second in time.
            assert (await client.get(f"{at}/{names[1]}")).status_code == 404

    anyio.run(run)
