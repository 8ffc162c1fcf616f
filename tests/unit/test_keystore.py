"""Keys at rest: sealed, owner-only, never overwritten, and opened by the passphrase alone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from nacl import pwhash

from marketplace import passphrase
from marketplace.disk import DiskFault
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.keystore import (
    KeyExists,
    KeyMissing,
    Keystore,
    KeystoreDamaged,
    KeystoreOfAnother,
    PassphraseWrong,
)
from marketplace.passphrase import NewPassphraseMissing, PassphraseMissing
from tests.unit.support.disk import BadDisk, bad_disks

PASS = "correct horse battery"
NEW = "another passphrase"
# As the first version wrote them: interactive work, the seed 00 01 … 1f under PASS.
OLD = {
    "version": 1,
    "kdf": "argon2id",
    "operations": 2,
    "memory": 67108864,
    "salt": "zaWUV5RULbbMTFWPnXEqvw==",
    "box": "VjnEwp77qqKsmCmW/nnPqxk+uALp+pyVj8jf5vgGynitnkiEblJfE17FYHfrm503hDG7N6k/jgPKyblR80wBgGkjNqme6OpihpaWyiqUDH15aD4qWcqqXs6G/PdL",
}
OLD_KEY = {
    "version": 1,
    "public": "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8",
    "box": "TRR+sLKxpFEUfXL2rHXZdVDDPM4QvWiXjIffTu91EVBt7LadDkXq39QxaiF2toX2wenr2sr0AW0vSbhkb8M8kSPA2cg3vKACOAiVzxCvuMGEmHNqAbQ9e8nq",
}


def test_a_key_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    store = Keystore(tmp_path / "keys")
    made = store.create("purse", PASS)
    assert Keystore(tmp_path / "keys").load("purse", PASS) == made
    assert store.create("fixed", PASS, bytes(range(32))) == Signer(bytes(range(32)))
    assert [(k.name, k.verify_key) for k in store.list()] == [
        ("fixed", Signer(bytes(range(32))).verify_key),
        ("purse", made.verify_key),
    ]


def test_nothing_secret_is_in_clear_and_only_the_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    seed = bytes(range(32))
    Keystore(folder).create("purse", PASS, seed)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        data = path.read_bytes()
        assert seed not in data and seed.hex().encode() not in data and PASS.encode() not in data
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(p.name for p in folder.iterdir()) == ["keystore.json", "purse.key"]


def test_refusals_have_codes(tmp_path: Path) -> None:
    store = Keystore(tmp_path / "keys")
    with pytest.raises(KeyMissing):
        store.load("purse", PASS)
    with pytest.raises(PassphraseMissing):
        store.create("purse", "short")
    store.create("purse", PASS)
    with pytest.raises(PassphraseWrong):
        store.load("purse", PASS + "!")
    with pytest.raises(KeyExists):
        store.create("purse", PASS)
    with pytest.raises(KeyMissing):
        store.load("other", PASS)
    for name in ("../purse", "", "Purse", "a/b", "a" * 200):
        with pytest.raises(Malformed):
            store.load(name, PASS)


def test_files_cannot_be_exchanged_or_altered(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keys = Keystore(folder).unlock(PASS)
    keys.create("a")
    keys.create("b")
    original = (folder / "b.key").read_bytes()
    (folder / "b.key").write_bytes((folder / "a.key").read_bytes())
    with pytest.raises(KeystoreDamaged):
        keys.load("b")
    row = json.loads(original)
    row["public"] = "00" * 32
    (folder / "b.key").write_text(json.dumps(row))
    with pytest.raises(KeystoreDamaged):
        keys.load("b")
    for damaged in (b"", b"{}", b"[1]", original[:40], b'{"version": 1, "box": 3}'):
        (folder / "b.key").write_bytes(damaged)
        with pytest.raises(KeystoreDamaged):
            keys.load("b")


def test_a_keystore_is_sealed_with_moderate_work_and_an_older_one_still_opens(
    tmp_path: Path,
) -> None:
    store = Keystore(tmp_path)
    made = store.create("a", PASS)
    row = json.loads((tmp_path / "keystore.json").read_text())
    moderate = (pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE)
    assert (row["operations"], row["memory"]) == moderate
    (tmp_path / "keystore.json").write_text(json.dumps(OLD))
    (tmp_path / "a.key").write_text(json.dumps(OLD_KEY))
    old = store.load("a", PASS)
    assert (old.seed, made.seed != old.seed) == (bytes(range(32)), True)
    store.change_passphrase(PASS, "another passphrase")
    row = json.loads((tmp_path / "keystore.json").read_text())
    assert (row["operations"], row["memory"]) == moderate
    assert store.load("a", "another passphrase") == old


def test_a_passphrase_that_was_drawn_takes_the_least_work_until_a_person_changes_it(
    tmp_path: Path,
) -> None:
    drawn, store = secrets.token_urlsafe(16), Keystore(tmp_path)
    with pytest.raises(PassphraseMissing, match="22 characters"):
        store.make(PASS, drawn=True)
    assert not store.exists
    store.make(drawn, drawn=True)
    made = store.create("a", drawn)
    store.make(PASS)  # it is there: nothing happens
    row = json.loads((tmp_path / "keystore.json").read_text())
    least = (pwhash.argon2id.OPSLIMIT_MIN, pwhash.argon2id.MEMLIMIT_MIN)
    assert (row["operations"], row["memory"]) == least
    with pytest.raises(PassphraseWrong):
        store.load("a", PASS)
    store.change_passphrase(drawn, PASS)
    row = json.loads((tmp_path / "keystore.json").read_text())
    moderate = (pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE)
    assert (row["operations"], row["memory"]) == moderate
    assert store.load("a", PASS) == made


def test_absurd_work_factors_are_refused_before_any_work(tmp_path: Path) -> None:
    store = Keystore(tmp_path)
    store.create("a", PASS)
    row = json.loads((tmp_path / "keystore.json").read_text())
    for change in (
        {"memory": 2**40},
        {"operations": 10**9},
        {"memory": "x"},
        {"memory": 1},
        {"salt": "AA=="},
    ):
        (tmp_path / "keystore.json").write_text(json.dumps(row | change))
        with pytest.raises(KeystoreDamaged):
            store.load("a", PASS)


def test_the_passphrase_changes_and_the_keys_stay(tmp_path: Path) -> None:
    store = Keystore(tmp_path)
    made = store.create("a", PASS)
    with pytest.raises(PassphraseWrong):
        store.change_passphrase("not the one", "another passphrase")
    store.change_passphrase(PASS, "another passphrase")
    with pytest.raises(PassphraseWrong):
        store.load("a", PASS)
    assert store.load("a", "another passphrase") == made
    assert stat.S_IMODE((tmp_path / "keystore.json").stat().st_mode) == 0o600


class Killed(BaseException):
    """The process is gone: nothing that it would still have done is done."""


@dataclass
class DeadDisk(BadDisk):
    """A disk that the process is killed over: the *at*-th call is its last, half done if it
    writes.
    """

    kind: str = "short"

    def _hit(self, *, writing: bool = False) -> bool:
        try:
            return super()._hit(writing=writing)
        except OSError as error:
            raise Killed from error


@pytest.fixture
def light_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not about the work factor does with the least."""
    monkeypatch.setattr(pwhash.argon2id, "OPSLIMIT_MODERATE", pwhash.argon2id.OPSLIMIT_MIN)
    monkeypatch.setattr(pwhash.argon2id, "MEMLIMIT_MODERATE", pwhash.argon2id.MEMLIMIT_MIN)


def opens_with(folder: Path) -> list[str]:
    """Which of the two passphrases open every key of *folder*."""
    found: list[str] = []
    for phrase in (PASS, NEW):
        with contextlib.suppress(PassphraseWrong):
            keys = Keystore(folder).unlock(phrase)
            assert [keys.load(n).seed for n in ("a", "b")] == [bytes(range(32)), bytes(32)]
            found.append(phrase)
    return found


@pytest.mark.usefixtures("light_work")
def test_whatever_stops_a_change_of_passphrase_the_old_or_the_new_one_opens(tmp_path: Path) -> None:
    def fresh(name: str, files: BadDisk) -> tuple[Path, Keystore]:
        folder = tmp_path / name
        store = Keystore(folder)
        store.create("a", PASS, bytes(range(32)))
        store.create("b", PASS, bytes(32))
        return folder, Keystore(folder, files)

    good = BadDisk()
    folder, store = fresh("good", good)
    store.change_passphrase(PASS, NEW)
    assert opens_with(folder) == [NEW]

    ended: set[str] = set()
    disks = [*bad_disks(good.calls), *(DeadDisk(at) for at in range(1, good.calls + 1))]
    for number, bad in enumerate(disks):
        folder, store = fresh(f"bad-{number}", bad)
        with pytest.raises((DiskFault, Killed)) as stopped:
            store.change_passphrase(PASS, NEW)
        if isinstance(stopped.value, DiskFault):
            assert "or else the new one" in stopped.value.message
        [holds] = opens_with(folder)  # one of them, and never neither
        ended.add(holds)
        Keystore(folder).change_passphrase(
            holds, "a third passphrase"
        )  # what was left is no hindrance
        assert Keystore(folder).load("a", "a third passphrase").seed == bytes(range(32))
    assert ended == {PASS, NEW}


@pytest.mark.usefixtures("light_work")
def test_two_changes_at_once_follow_each_other(tmp_path: Path) -> None:
    store = Keystore(tmp_path)
    made = store.create("a", PASS)
    wanted = [f"passphrase number {n}" for n in range(6)]
    won: list[str] = []

    def change(phrase: str) -> None:
        with contextlib.suppress(PassphraseWrong):
            Keystore(tmp_path).change_passphrase(PASS, phrase)
            won.append(phrase)

    threads = [threading.Thread(target=change, args=(phrase,)) for phrase in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [only] = won  # who is told that it is done has the passphrase that opens
    assert store.load("a", only) == made


@pytest.mark.usefixtures("light_work")
def test_a_change_that_is_refused_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyMissing):
        Keystore(tmp_path / "none").change_passphrase(PASS, NEW)
    assert not (tmp_path / "none").exists()
    store = Keystore(tmp_path)
    made = store.create("a", PASS)
    before = (tmp_path / "keystore.json").read_bytes()
    with pytest.raises(NewPassphraseMissing):
        store.change_passphrase(PASS, "short")
    with pytest.raises(PassphraseWrong):
        store.change_passphrase(NEW, NEW)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(KeystoreOfAnother) as refused:
        store.change_passphrase(PASS, NEW)
    assert refused.value.code == "KEYSTORE_OF_ANOTHER" and "sudo -u" in refused.value.remedy
    assert (tmp_path / "keystore.json").read_bytes() == before
    assert store.load("a", PASS) == made


def test_two_processes_that_make_the_same_key_get_the_same_key(tmp_path: Path) -> None:
    found: list[Signer] = []

    def make() -> None:
        found.append(Keystore(tmp_path).unlock(PASS).load_or_create("same"))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len({signer.seed for signer in found}) == 1


def test_where_the_passphrase_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLY_PASSPHRASE_FILE", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(PassphraseMissing):
        passphrase.passphrase(ask=False)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "tally-passphrase").write_text("from systemd\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert passphrase.passphrase(ask=False) == "from systemd"
    named = tmp_path / "passphrase"
    named.write_text("from the file\n")
    named.chmod(0o600)
    monkeypatch.setenv("TALLY_PASSPHRASE_FILE", str(named))
    assert passphrase.passphrase(ask=False) == "from the file"
    named.unlink()
    with pytest.raises(PassphraseMissing):
        passphrase.passphrase(ask=False)


def test_a_passphrase_that_strangers_can_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        named = Path(folder) / "passphrase"
        named.write_text("known to all\n")
        named.chmod(0o644)
        monkeypatch.setenv("TALLY_PASSPHRASE_FILE", str(named))
        assert (
            passphrase.passphrase(ask=False) == "known to all"
        )  # the folder is closed to strangers
        Path(folder).chmod(0o755)
        with pytest.raises(PassphraseMissing):
            passphrase.passphrase(ask=False)
        named.chmod(0o640)
        with pytest.raises(PassphraseMissing, match="chmod 600"):  # its group's members are others
            passphrase.passphrase(ask=False)
        Path(folder).chmod(0o750)
        with pytest.raises(PassphraseMissing):
            passphrase.passphrase(ask=False)
        Path(folder).chmod(0o700)
        assert passphrase.passphrase(ask=False) == "known to all"
        Path(folder).chmod(0o755)
        named.chmod(0o600)
        assert passphrase.passphrase(ask=False) == "known to all"
