"""What images are made of beside this Python: installed once on a machine, for every market of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapter.runtime.docker import local_images


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that were run; nothing is installed."""
    commands: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        commands.append(command)
        time.sleep(0.05)
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(local_images, "_run", run)
    return commands


def test_of_many_who_want_the_same_one_installs_it(
    tmp_path: Path, ran: list[tuple[str, ...]]
) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("some==1\n")

    def install(_: int) -> Path:
        return local_images._installed(lock, tmp_path / "kept")

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(install, range(4)))
    assert len(found) == 1 and len(ran) == 2, ran
    lock.write_text("some==2\n")
    assert install(0) not in found and len(ran) == 4


def test_what_was_cut_short_is_begun_anew(tmp_path: Path, ran: list[tuple[str, ...]]) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("some==1\n")
    made = local_images._installed(lock, tmp_path)
    (made / "installed").unlink()
    (made / "half").touch()
    assert local_images._installed(lock, tmp_path) == made
    assert len(ran) == 4 and not (made / "half").exists()


@pytest.mark.parametrize("said", ["", "not/absolute"])
def test_they_are_kept_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", said)
    assert local_images.kept_packages() == tmp_path / ".cache" / "tally" / "packages"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    assert local_images.kept_packages() == Path("/var/cache/mine/tally/packages")
