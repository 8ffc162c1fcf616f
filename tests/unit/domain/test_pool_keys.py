"""A block producer's key in any of its forms goes to no rented machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.job_secrets import secrets_here
from marketplace.domain.work import pool_keys
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Resources
from marketplace.domain.work.pool_keys import MOST_WHOLE, Look, PoolKeyRefused, refuse_in
from tests.unit.support.pool_keys import HOT, refused, signing, taken

REFUSED = [pytest.param(data, holds, id=name) for name, data, holds in refused()]
TAKEN = [pytest.param(data, id=name) for name, data in taken()]
JOB = 'version: 1\nimage: "sha256:%s"\n' % ("ab" * 32)


@pytest.mark.parametrize(("data", "holds"), REFUSED)
def test_each_form_is_refused_by_what_it_is(data: bytes, holds: str) -> None:
    with pytest.raises(PoolKeyRefused) as no:
        refuse_in(data, "kes.skey")
    assert str(no.value) == f"kes.skey holds {holds}"
    assert no.value.code == "POOL_KEY_REFUSED" and "relay needs no key" in no.value.line()


@pytest.mark.parametrize("data", TAKEN)
def test_what_only_looks_like_one_is_taken(data: bytes) -> None:
    refuse_in(data, "a file")


@pytest.mark.parametrize("step", [1, 37, 608, 4096, 65_537])
def test_it_is_found_wherever_a_file_is_cut(step: int) -> None:
    """A file comes in parts of any size, and an envelope lies anywhere in it."""
    text = b"x" * (MOST_WHOLE - 300) + signing(HOT).encode() + b"y" * 9_000
    look = Look()
    for at in range(0, len(text), step):
        look.at(text[at : at + step])
    with pytest.raises(PoolKeyRefused):
        look.refuse("a file")


def test_whoever_sends_it_cannot_make_the_look_long() -> None:
    """A type again and again without a content, and a file in parts of one byte: as long as the
    bytes are, and not as long as their square. Counted in searches, not in seconds.
    """
    text = b"type:KesSigningKey " * 60_000  # 1.1 MB; each type's surroundings anew were 16 KB
    searched = 0

    class Counted:
        def __init__(self, pattern: re.Pattern[bytes]) -> None:
            self.pattern = pattern

        def finditer(self, text: bytes) -> Iterator[re.Match[bytes]]:
            nonlocal searched
            searched += len(text)
            return self.pattern.finditer(text)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_TYPE", "_CONTENT"):
            patch.setattr(pool_keys, name, Counted(getattr(pool_keys, name)))
        look = Look()
        for at in range(len(text)):
            look.at(text[at : at + 1])
        look.refuse("a file")
    assert searched < 3 * len(text)  # both patterns once, and what overlaps


def job(**parts: object) -> JobSpec:
    return JobSpec("j", "sha256:" + "ab" * 32, (), (Resources(),), **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("data", "holds"), REFUSED)
def test_a_job_file_with_one_is_refused_before_anything_is_sent(
    data: bytes, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "job.yaml"
    (tmp_path / "it").write_bytes(data)
    where.write_text(JOB + "files: [{src: it, dst: it}]\n")
    with pytest.raises(PoolKeyRefused, match=f"line 3: .*/it holds {holds}"):
        jobfiles.load(where)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # no variable holds it
    if "\0" in text:
        return
    with pytest.raises(PoolKeyRefused, match=f"env KES holds {holds}"):
        jobfiles.LoadedJob(job(env={"KES": text}), {})
    with pytest.raises(PoolKeyRefused, match=f"argument 2 of the command holds {holds}"):
        jobfiles.LoadedJob(JobSpec("j", "x", ("run", text), (Resources(),)), {})
    monkeypatch.setenv("KES", text)
    with pytest.raises(PoolKeyRefused, match=f"the secret KES holds {holds}"):
        secrets_here(["KES"])
