"""A volume outlives the daemon of the host that runs what mounts it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from marketplace.domain.work.lease import EndReason
from tests.e2e.support.embedded import PATIENCE_S, command, embedded, until_true
from tests.e2e.support.volumes import DearDisk, Renter
from tests.e2e.test_docker_restart import PrivateDaemon, private_daemon
from tests.requires import need_devnet, need_volumes

pytestmark = [pytest.mark.prove, pytest.mark.timeout(PATIENCE_S + 180)]


def test_the_docker_daemon_is_killed_under_what_mounts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_devnet()
    need_volumes(tmp_path)

    async def main(daemon: PrivateDaemon) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with embedded(tmp_path, DearDisk) as place, AsyncExitStack() as commands:
                await restarted(Renter(tmp_path, place, commands), daemon)

    with private_daemon(live_restore=False) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        anyio.run(main, daemon)


async def restarted(renter: Renter, daemon: PrivateDaemon) -> None:
    place = renter.place
    await renter.told("first", "sleep 3")  # a new account pays before it has two leases
    keeps, volume = await renter.rents("chain")
    mounts = {"volumes": [{"volume": "chain", "path": "/data"}]}
    note = place.home / "adapter/runtime/volumes" / volume["lease"] / "mounted/files/note"
    line = renter.line("writer", "echo kept > /data/note; sync; sleep 600", **mounts)
    async with command(*line, env=place.environment) as writer:

        async def written() -> bool:
            return note.exists() and note.read_text() == "kept\n"

        await until_true(written, "what it writes")
        daemon.kill()
        await anyio.to_thread.run_sync(daemon.start)
        await writer.ended()
    assert writer.last["reason"] == EndReason.PROVIDER_FAULT, str(writer)

    assert "kept" in await renter.told("reader", "cat /data/note", **mounts)
    [still] = await renter.rented()
    assert (still["id"], still["lease"]) == (volume["id"], volume["lease"])
    await renter.ends(keeps, volume)
