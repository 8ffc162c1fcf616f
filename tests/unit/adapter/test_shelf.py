"""The images on a host: what is told of them, what goes, and what survives a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.shelving import FRESH_MS, Kept, Shelving, to_drop
from adapter.runtime.docker.shelf import Shelf, pull_line
from marketplace.domain.supply.stock import print_of, unpack
from marketplace.domain.work.manifest import digest_of

DAY_MS = 86_400_000
MIB = 1 << 20
PART = [f"sha256:{n:064x}" for n in range(1, 9)]


def image(*sizes: tuple[str, int]) -> tuple[str, list[str]]:
    """(digest, documents) of an image with these layers."""
    rows = [{"digest": digest, "size": size} for digest, size in sizes]
    text = json.dumps({"config": rows[0], "layers": rows[1:]})
    return digest_of(text), [text]


class Daemon:
    """Docker's, as far as the shelf asks it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.in_use: set[str] = set()
        self.api = self.images = self

    def __call__(self) -> list[dict[str, Any]]:
        return self.rows

    def has(self, digest: str, mib: int = 100, ident: str = PART[7]) -> None:
        name = f"registry.test/x@{digest}"
        self.rows.append({"Id": ident, "RepoDigests": [name], "Size": mib * MIB})

    def remove(self, name: str) -> None:
        if name in self.in_use:
            raise docker.errors.APIError("in use")
        self.rows = [row for row in self.rows if name not in row["RepoDigests"]]


class Client:
    def __init__(self) -> None:
        self.daemon = Daemon()
        self.api = type("Api", (), {"images": staticmethod(lambda: self.daemon.rows)})
        self.images = self.daemon


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


def shelf(path: Path, clock: Clock) -> Shelf:
    return Shelf(path / "images.json", clock, clock.wall_ms)


def test_a_start_is_told_without_its_pull_and_a_pull_by_what_was_lacking(tmp_path: Path) -> None:
    clock, client = Clock(), Client()
    kept = shelf(tmp_path, clock)
    base, base_documents = image((PART[0], 1), (PART[1], 40 * MIB))
    model, documents = image((PART[2], 1), (PART[1], 40 * MIB), (PART[3], 10 * MIB))
    client.daemon.has(base)
    kept.used(base, base_documents, "")
    kept.look(client)
    kept.begin("lease")
    kept.used(model, documents, "lease")
    assert kept.lacking(model) == 10 * MIB + 1
    clock.now += 6
    kept.pulled(model, "lease", kept.lacking(model), 5.0)
    client.daemon.has(model, ident=PART[6])
    clock.now += 1
    kept.ran("lease")
    told = kept.look(client)
    assert (told.start_ms, told.pull_ms) == (2000, 0)
    assert told.bytes_s == pytest.approx(2 * MIB, rel=0.01)
    held = unpack(told.held)
    assert {print_of(one) for one in (base, model, *PART[:4], PART[6], PART[7])} == held
    assert (told.images, told.mib) == (2, 200)
    assert kept.take_found() == [("lease", documents)] and kept.take_found() == []


def test_what_is_known_survives_a_restart_and_a_torn_file_does_not_stop_one(tmp_path: Path) -> None:
    clock, client = Clock(), Client()
    kept = shelf(tmp_path, clock)
    model, documents = image((PART[2], 1), (PART[3], 10 * MIB))
    kept.begin("lease")
    kept.used(model, documents, "lease")
    kept.pulled(model, "lease", 10 * MIB, 1.0)
    client.daemon.has(model)
    clock.now += 3
    kept.ran("lease")
    before = kept.look(client)
    assert shelf(tmp_path, clock).look(client) == before
    for torn in ("", "{", "[]", '{"images": {"x": 1}, "pulls": [], "starts": []}', '{"images": 7}'):
        (tmp_path / "images.json").write_text(torn)
        again = shelf(tmp_path, clock).look(client)
        assert (again.start_ms, again.bytes_s) == (0, 0)
        assert print_of(model) in unpack(again.held)


def test_only_what_jobs_brought_is_removed_and_nothing_that_is_used(tmp_path: Path) -> None:
    clock, client = Clock(), Client()
    kept = shelf(tmp_path, clock)
    digests = [image((PART[0], n), (PART[1], 1))[0] for n in range(3)]
    for at, digest in enumerate(digests):
        client.daemon.has(digest, ident=PART[at])
    kept.used(digests[0], [], "")  # its owner's: it was there
    for digest in digests[1:]:
        kept.pulled(digest, "", 1, 1.0)
    rule = Shelving(keep_ms=DAY_MS)
    assert kept.evict(client, rule) == []
    clock.now += 2 * 86_400
    client.daemon.in_use.add(f"registry.test/x@{digests[1]}")
    assert kept.evict(client, rule) == [digests[2]]
    named = [row["RepoDigests"][0].rpartition("@")[2] for row in client.daemon.rows]
    assert named == digests[:2]
    assert kept.evict(client, Shelving(keep_mib=0, keep_ms=0)) == []


def test_an_image_that_its_owner_removed_is_forgotten(tmp_path: Path) -> None:
    clock, client = Clock(), Client()
    kept = shelf(tmp_path, clock)
    model, documents = image((PART[2], 1), (PART[3], 10 * MIB))
    kept.used(model, documents, "")
    kept.pulled(model, "", 10 * MIB, 1.0)
    client.daemon.has(model)
    kept.look(client)
    client.daemon.rows.clear()
    assert unpack(kept.look(client).held) == set()
    assert kept.lacking(model) == 10 * MIB + 1  # it may be on its way
    clock.now += 3601
    kept.look(client)
    assert kept.lacking(model) == 0  # nothing is known of it


def test_images_that_never_came_are_not_remembered_for_ever(tmp_path: Path) -> None:
    clock, client = Clock(), Client()
    kept = shelf(tmp_path, clock)
    for at in range(50):
        digest, documents = image((PART[0], at), (PART[1], 1))
        kept.used(digest, documents, f"lease {at}")
        kept.look(client)
        clock.now += 600
    kept.used(*image((PART[2], 1)), "last")
    known = json.loads((tmp_path / "images.json").read_text())["images"]
    assert len(known) <= 8


@pytest.mark.parametrize(
    ("pulls", "line"),
    [
        ([], (0, 0)),
        ([(10 * MIB, 1000)], (0, 10 * MIB)),
        ([(10 * MIB, 1500), (110 * MIB, 11_500)], (500, 10 * MIB)),
        ([(MIB, 2000), (10 * MIB, 1500)], (0, None)),  # noise: the smaller took longer
    ],
)
def test_a_pull_is_a_fixed_time_and_so_much_a_byte(
    pulls: list[tuple[int, int]], line: tuple[int, int | None]
) -> None:
    fixed, rate = pull_line(pulls)
    assert abs(fixed - line[0]) <= 1
    assert rate > 0 if line[1] is None else rate == pytest.approx(line[1], rel=0.001)


@given(
    st.lists(st.integers(1, 1000), min_size=7, max_size=9, unique=True),
    st.integers(0, 3000),
    st.integers(1, 200),
    st.integers(0, 8),
)
def test_one_odd_pull_does_not_bend_the_line(
    mibs: list[int], fixed: int, mib_s: int, odd: int
) -> None:
    pulls = [(mib * MIB, fixed + mib * 1000 // mib_s) for mib in mibs]
    size, ms = pulls[odd % len(pulls)]
    pulls[odd % len(pulls)] = (size, ms + 600_000)
    told_ms, rate = pull_line(pulls)
    typical = sorted(mibs)[len(mibs) // 2]
    expected, true = told_ms + typical * MIB * 1000 // rate, fixed + typical * 1000 // mib_s
    assert abs(expected - true) <= true // 2 + 50


KEPT = st.builds(
    Kept,
    st.sampled_from([f"image {n}" for n in range(50)]),
    st.integers(0, 10_000),
    st.integers(0, 100 * DAY_MS),
)


@given(
    st.lists(KEPT, max_size=20, unique_by=lambda one: one.digest),
    st.builds(Shelving, st.integers(0, 50_000), st.integers(0, 40 * DAY_MS)),
)
def test_what_goes_is_old_or_too_much_and_the_longest_unused_first(
    kept: list[Kept], rule: Shelving
) -> None:
    now = 100 * DAY_MS
    gone = to_drop(rule, kept, now)
    by = {one.digest: one for one in kept}
    left = [one for one in kept if one.digest not in gone]
    assert all(now - by[digest].used_ms > FRESH_MS for digest in gone)
    if rule.keep_ms:
        assert all(now - one.used_ms <= max(rule.keep_ms, FRESH_MS) for one in left), (
            "an old one was kept"
        )
    if rule.keep_mib and any(now - one.used_ms > FRESH_MS for one in left):
        assert sum(one.mib for one in left) <= rule.keep_mib
    used = [by[digest].used_ms for digest in gone]
    assert used == sorted(used)
    if not rule.keep_mib and not rule.keep_ms:
        assert gone == []
