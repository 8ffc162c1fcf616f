"""A volume outlives the jobs that mount it, from job files and commands: its content stays, its size is a wall, and its
bill is one line of GB-seconds.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.cli.embedded.product import Embedded
from marketplace.client.sdk.market import Market
from marketplace.domain.errors import Refusal
from marketplace.domain.work.volume import DESTROYED
from tests.e2e.support.embedded import PATIENCE_S, embedded, tally, until_true
from tests.e2e.support.volumes import DearDisk, Renter, job_file
from tests.requires import need_devnet, need_docker, need_volumes
from tests.unit.support.browser_verifier import browser_says

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
SIZE_MB = 128
FILL = "dd if=/dev/zero of=/data/filler bs=1M 2>&1 | head -1; rm /data/filler"


def test_a_volume_outlives_what_mounts_it(tmp_path: Path) -> None:
    need_docker()
    need_devnet()
    need_volumes(tmp_path)

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with embedded(tmp_path, DearDisk) as place, AsyncExitStack() as commands:
                await lived(tmp_path, place, commands)

    anyio.run(main)


async def lived(folder: Path, place: Embedded, commands: AsyncExitStack) -> None:
    env, renter = place.environment, Renter(folder, place, commands)
    first = await renter.ran("first", "sleep 3")  # a new account pays before it has two leases
    assert first.last["reason"] == "COMPLETED", str(first)
    keeps, rented = await renter.rents("chain", f"{SIZE_MB}MB")
    volume, lease = rented["id"], rented["lease"]

    mounts = {"volumes": [{"volume": "chain", "path": "/data"}]}
    wrote = await renter.ran("writer", f"{FILL}; echo kept > /data/note; id -u", **mounts)
    assert wrote.last["reason"] == "COMPLETED", str(wrote)
    said = "\n".join((await tally("job", "logs", wrote.last["job"], env=env)).out)
    assert "No space left on device" in said and "10001" in said

    adapter = place.parts["adapter"].process
    assert adapter is not None
    adapter.kill()
    await adapter.wait()
    await place.start_adapter()

    read = await renter.ran("reader", "cat /data/note; touch /data/x", volumes=[
        {"volume": "chain", "path": "/data", "read_only": True}
    ])  # fmt: skip
    assert read.last["reason"] == "FAILED", str(read)
    said = "\n".join((await tally("job", "logs", read.last["job"], env=env)).out)
    assert "kept" in said and "Read-only file system" in said

    await refused(folder, place, lease)
    await renter.ends(keeps, rented)

    async def gone() -> bool:
        return not list((place.home / "adapter" / "runtime" / "volumes").glob("*"))

    await until_true(gone, "the end of what it held")
    given = folder / "given"
    asked = ("job", "outputs", volume, str(given), "--signed")
    outputs = await tally(*asked, env=env)
    assert outputs.process.returncode == 0, str(outputs)
    record = json.loads((given / DESTROYED).read_text())
    assert (record["volume"], record["size_mib"]) == (lease, SIZE_MB)
    assert record["key_destroyed_ms"] > 0

    saved = folder / "evidence.json"

    async def bill() -> dict[str, Any] | None:
        said = await tally("invoice", volume, "--verify", "--json", "--save", str(saved), env=env)
        return said.last if said.last["reconciled"] else None

    [line] = (await until_true(bill, "the channel's end"))["lines"]
    assert (line["resource"], line["units_milli"]) == ("disk", SIZE_MB * 1000 // 1024)
    assert line["owed"] == line["unit_ms"] * line["rate_micro"] // 10**9 > 0
    [said] = browser_says([(saved.read_text(), [])])
    assert said["rule"] == "", said
    assert said["bill"]["lines"][0]["unit_ms"] == line["unit_ms"]


async def refused(folder: Path, place: Embedded, lease: str) -> None:
    """Another account names the volume by its lease, and is told what a wrong name is told."""
    file = job_file(
        folder, "thief", image=place.image, command=["cat", "/data/note"],
        volumes=[{"volume": lease, "path": "/data"}],
    )  # fmt: skip
    async with Market(place.market_url, wallet=await place.purse("stranger")) as other:
        with pytest.raises(Refusal, match="you have no volume"):
            await other.quote(Path(file))
