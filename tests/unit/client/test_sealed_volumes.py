"""What goes onto a volume from this machine, and what came from one: an archive in age's format."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pyrage
import pytest

from marketplace.client.jobs.sealed_volumes import (
    NoArchive,
    archive,
    identity_in,
    identity_of,
    recipient,
    unsealed,
    whole,
)
from marketplace.domain.keys import Signer
from marketplace.domain.work.pool_keys import PoolKeyRefused

OWN, OTHER = identity_of(Signer(b"\x01" * 32)), identity_of(Signer(b"\x02" * 32))
COLD = '{"type": "StakePoolSigningKey_ed25519", "cborHex": "5820' + "ab" * 32 + '"}'


def read(source: Path | None, given: bytes = b"") -> bytes:
    with archive(source, OWN, io.BytesIO(given)) as found:
        return found.read()


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        return {one.name: one for one in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "note").write_bytes(b"kept")
    (made / "to").symlink_to("deep/note")
    return made


def test_a_folder_goes_as_the_user_s_whom_a_job_runs_as(folder: Path) -> None:
    found = members(read(folder))
    assert set(found) == {".", "./deep", "./deep/note", "./to"}
    assert {(one.uid, one.gid, one.uname) for one in found.values()} == {(10001, 10001, "")}
    assert found["./to"].issym() and found["./to"].linkname == "deep/note"


def test_no_key_of_a_pool_leaves_this_machine(folder: Path, tmp_path: Path) -> None:
    (folder / "deep" / "cold.skey").write_text(COLD)
    with pytest.raises(PoolKeyRefused, match=r"deep/cold\.skey holds a pool's cold key"):
        read(folder)
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w") as made:
        made.add(folder, arcname="data")
    with pytest.raises(PoolKeyRefused, match=r"data/deep/cold\.skey"):
        read(packed)


def test_the_refusal_reaches_whoever_seals_it(folder: Path) -> None:
    """The library that seals would tell its own error."""
    (folder / "cold.skey").write_text(COLD)
    sealed = io.BytesIO()
    with pytest.raises(PoolKeyRefused), archive(folder, OWN, io.BytesIO()) as found:
        pyrage.encrypt_io(found, sealed, [OWN.to_public()])
    with pytest.raises(NoArchive):  # and nobody can take what there is for all of it
        unsealed(io.BytesIO(sealed.getvalue()), io.BytesIO(), OWN)


def test_what_was_exported_is_opened_by_its_own_purse_alone(folder: Path, tmp_path: Path) -> None:
    plain = read(folder)
    file = tmp_path / "data.tar.age"
    file.write_bytes(pyrage.encrypt(plain, [OWN.to_public()]))
    assert read(file) == plain
    whole(file, OWN)
    with pytest.raises(NoArchive, match="cannot be opened"):
        whole(file, OTHER)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(NoArchive, match="cannot be opened"):
        whole(file, OWN)
    with pytest.raises(NoArchive):
        read(file)


def test_who_stops_reading_hears_of_no_error(folder: Path, tmp_path: Path) -> None:
    (folder / "large").write_bytes(bytes(1 << 20))
    file = tmp_path / "data.tar.age"
    file.write_bytes(pyrage.encrypt(read(folder), [OWN.to_public()]))
    for source in (folder, file):
        with archive(source, OWN, io.BytesIO()) as found:
            assert found.read(512)


def test_the_purses_identity_follows_from_its_key_and_ages_own_text() -> None:
    assert str(OWN) == str(identity_of(Signer(b"\x01" * 32))) != str(OTHER)
    assert recipient(str(OWN.to_public())) == str(OWN.to_public())
    with pytest.raises(NoArchive, match="no recipient"):
        recipient("addr_test1")


def test_an_identity_comes_from_a_file_of_age_keygens(tmp_path: Path) -> None:
    file = tmp_path / "key.txt"
    file.write_text(f"# created: 2026\n# public key: {OTHER.to_public()}\n{OTHER}\n")
    assert str(identity_in(file)) == str(OTHER)
    file.write_text("# nothing\n")
    with pytest.raises(NoArchive, match="holds no age identity"):
        identity_in(file)


def test_another_file_is_no_archive(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("words" * 500)
    with pytest.raises(NoArchive, match="no plain tar archive"):
        read(file)
    assert read(None, b"as it comes") == b"as it comes"
