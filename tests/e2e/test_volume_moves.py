"""A volume's content moves from one provider to another by commands, sealed to its owner on the way."""

from __future__ import annotations

import io
import shlex
import tarfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pyrage
import pytest

from marketplace.cli.embedded.product import Embedded
from tests.e2e.support.embedded import PATIENCE_S, TALLY, embedded, tally
from tests.e2e.support.volumes import DearDisk, Renter
from tests.requires import need_devnet, need_docker, need_volumes

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
FILL = (
    "mkdir /data/deep && echo kept > /data/deep/note && head -c 3000000 /dev/urandom > /data/chunk"
)


def test_content_is_exported_at_one_provider_and_imported_at_another(tmp_path: Path) -> None:
    need_docker()
    need_devnet()
    need_volumes(tmp_path)

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with embedded(tmp_path, DearDisk) as place, AsyncExitStack() as commands:
                await moved(tmp_path, place, commands)

    anyio.run(main)


async def moved(folder: Path, place: Embedded, commands: AsyncExitStack) -> None:
    env, renter = place.environment, Renter(folder, place, commands)
    await renter.told("first", "sleep 3")  # a new account pays before it has two leases
    keeps, chain = await renter.rents("chain")
    await renter.told("writer", FILL, volumes=[{"volume": "chain", "path": "/data"}])

    exported = folder / "chain.tar.age"
    done = await tally("volume", "export", "chain", str(exported), "--json", env=env)
    assert done.last["bytes"] == exported.stat().st_size > 3_000_000, str(done)
    opened = await anyio.run_process(
        ["sh", "-c", f"{shlex.join(TALLY)} volume open {exported} | tar -t"], env=env, check=False
    )
    assert b"./deep/note" in opened.stdout, opened.stderr
    refused = await tally("volume", "import", "chain", str(exported), env=env)
    assert refused.process.returncode == 4 and "not empty" in str(refused), str(refused)
    await renter.ends(keeps, chain)

    await place.start_adapter("adapter2")
    elsewhere = {"not_providers": [chain["provider"]]}
    keeps, second = await renter.rents("again", placement=elsewhere)
    assert second["provider"] != chain["provider"]
    taken = await tally("volume", "import", "again", str(exported), "--json", env=env)
    assert taken.last["volume"] == second["id"], str(taken)
    line = "cat /data/deep/note && ls -l /data/chunk && touch /data/deep/mine"
    read = await renter.told("reader", line, volumes=[{"volume": "again", "path": "/data"}])
    assert "kept" in read and " 3000000 " in read

    # From a folder of this machine, and out again to a key of another kind.
    await renter.ends(keeps, second)
    made = folder / "made"
    made.mkdir()
    (made / "note").write_text("from here")
    keeps, third = await renter.rents("third")
    taken = await tally("volume", "import", "third", str(made), env=env)
    assert taken.process.returncode == 0, str(taken)
    cold = pyrage.x25519.Identity.generate()
    done = await tally(
        "volume", "export", "third", str(exported), "--to", str(cold.to_public()), env=env
    )
    assert done.process.returncode == 0, str(done)
    plain = pyrage.decrypt(exported.read_bytes(), [cold])
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        note = archive.extractfile("./note")
        assert note is not None and note.read() == b"from here"
        assert archive.getmember("./note").uid == 10001
    await renter.ends(keeps, third)
