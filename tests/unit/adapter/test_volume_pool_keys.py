"""A volume that holds a key of a block producer is mounted by no job, and none goes onto one."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from adapter.runtime.volumes.moving import look_for_pool_keys
from marketplace.client.jobs.sealed_volumes import archive, identity_of
from marketplace.domain.keys import Signer
from marketplace.domain.work.pool_keys import MOST_FILE, PoolKeyRefused
from tests.unit.support.pool_keys import refused, taken

REFUSED = [pytest.param(data, holds, id=name) for name, data, holds in refused()]
TAKEN = [pytest.param(data, id=name) for name, data in taken()]


def lay(folder: Path, data: bytes) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "it").write_bytes(data)


@pytest.mark.parametrize(("data", "holds"), REFUSED)
def test_each_form_is_found_on_a_volume_and_leaves_no_machine_for_one(
    data: bytes, holds: str, tmp_path: Path
) -> None:
    folder = tmp_path / "volume"
    lay(folder, data)
    with pytest.raises(PoolKeyRefused, match=f"the volume's deep/er/it holds {holds}"):
        look_for_pool_keys(folder)
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w") as made:
        made.add(folder, arcname=".")
    for source in (folder, packed):
        with (
            pytest.raises(PoolKeyRefused, match=f"deep/er/it holds {holds}"),
            archive(source, identity_of(Signer(bytes(32))), io.BytesIO()) as found,
        ):
            while found.read(4096):
                pass


@pytest.mark.parametrize("data", TAKEN)
def test_what_only_looks_like_one_is_mounted(data: bytes, tmp_path: Path) -> None:
    lay(tmp_path / "volume", data)
    look_for_pool_keys(tmp_path / "volume")


def test_nothing_outside_of_the_volume_is_looked_at(tmp_path: Path) -> None:
    """A tenant lays out what root looks through: links lead nowhere, and no pipe holds it up."""
    [data, *_] = [data for _, data, _ in refused()]
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kes.skey").write_bytes(data)
    folder = tmp_path / "volume"
    folder.mkdir()
    (folder / "file").symlink_to(tmp_path / "outside" / "kes.skey")
    (folder / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(bytes(MOST_FILE + 1))
    look_for_pool_keys(folder)
