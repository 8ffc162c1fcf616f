"""``tally purse|wallet|adapter passphrase``: what a person, or a script without one, does to change
it.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacl import pwhash

from marketplace.cli import main
from marketplace.keystore import Keystore, PassphraseWrong

OLD, NEW = "correct horse battery", "staple of another kind"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home of its own, no passphrase anywhere, nobody at the terminal, and light work."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    for name in ("TALLY_PASSPHRASE_FILE", "TALLY_NEW_PASSPHRASE_FILE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwhash.argon2id, "OPSLIMIT_MODERATE", pwhash.argon2id.OPSLIMIT_MIN)
    monkeypatch.setattr(pwhash.argon2id, "MEMLIMIT_MODERATE", pwhash.argon2id.MEMLIMIT_MIN)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    yield


def tally(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of one command line."""
    monkeypatch.setattr(sys, "argv", ["tally", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Somebody at a terminal, who answers so; what they were asked."""
    asked: list[str] = []
    left = iter(answers)

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return next(left)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", answer)
    return asked


def named(path: Path, text: str) -> str:
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


WHERE = {
    "purse": (["purse", "passphrase"], "keys"),
    "wallet": (["wallet", "passphrase"], "keys"),
    "adapter": (["adapter", "passphrase"], "adapter/keys"),
}


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize("way", ["typed", "files", "credentials"])
def test_the_old_and_the_new_one_come_from_where_a_passphrase_comes_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    way: str,
) -> None:
    words, folder = WHERE[name]
    store = Keystore(tmp_path / folder)
    made = store.create("meter", OLD)
    asked: list[str] = []
    if way == "typed":
        asked = typed(monkeypatch, OLD, NEW, NEW)
    elif way == "files":
        monkeypatch.setenv("TALLY_PASSPHRASE_FILE", named(tmp_path / "old", OLD))
        monkeypatch.setenv("TALLY_NEW_PASSPHRASE_FILE", named(tmp_path / "new", NEW))
    else:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        named(tmp_path / "tally-passphrase", OLD)
        named(tmp_path / "tally-new-passphrase", NEW)
    assert tally(monkeypatch, *words) == 0
    told = capsys.readouterr()
    assert "opens with the new passphrase" in told.out and not told.err
    assert OLD not in told.out and NEW not in told.out
    assert asked == (["Passphrase: ", "New passphrase: ", "Again: "] if way == "typed" else [])
    assert store.load("meter", NEW) == made
    with pytest.raises(PassphraseWrong):
        store.load("meter", OLD)


REFUSED = {
    "two that differ": ((OLD, NEW, NEW + "!"), "NEW_PASSPHRASE_MISSING"),
    "a short one": ((OLD, "short", "short"), "NEW_PASSPHRASE_MISSING"),
    "another than the keystore's": ((NEW, NEW, NEW), "PASSPHRASE_WRONG"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    answers, code = REFUSED[case]
    store = Keystore(tmp_path / "keys")
    made = store.create("purse", OLD)
    typed(monkeypatch, *answers)
    assert tally(monkeypatch, "purse", "passphrase") == 3
    told = capsys.readouterr().err
    assert told.startswith(f"{code}: ") and " — " in told
    assert store.load("purse", OLD) == made


def test_a_script_that_names_no_new_one_is_told_where_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Keystore(tmp_path / "keys").create("purse", OLD)
    monkeypatch.setenv("TALLY_PASSPHRASE_FILE", named(tmp_path / "old", OLD))
    assert tally(monkeypatch, "wallet", "passphrase") == 3
    told = capsys.readouterr().err
    assert told.startswith("NEW_PASSPHRASE_MISSING: ") and "TALLY_NEW_PASSPHRASE_FILE" in told


@pytest.mark.parametrize("name", WHERE)
def test_where_no_keystore_is_nothing_is_asked_or_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, folder = WHERE[name]
    asked = typed(monkeypatch)
    assert tally(monkeypatch, *words) == 3
    assert capsys.readouterr().err.startswith("KEY_MISSING: ")
    assert not asked and not (tmp_path / folder).exists()


@pytest.mark.parametrize(
    "store",
    [("--store", "stores"), ("--store-url", "https://stores.example")],
    ids=["its own", "another process's"],
)
def test_a_market_with_stores_has_its_keys(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    store: tuple[str, str],
) -> None:
    """Who may use which follows from one of them: a drawn one is gone with the process."""
    monkeypatch.chdir(tmp_path)
    assert tally(monkeypatch, "market", "serve", "--port", "0", *store) == 3
    assert "PASSPHRASE_MISSING" in capsys.readouterr().err
    assert not (tmp_path / "stores").exists()
