"""What becomes of a relay that somebody keeps, whatever its provider, its market and its own end do."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from marketplace.client.relays.core import (
    DAY_MS,
    FIRST_WAIT_MS,
    MOST_WAIT_MS,
    TRIES,
    Act,
    Fill,
    Held,
    Kept,
    Leave,
    Look,
    Rent,
    Rules,
    Seen,
    Start,
    decide,
    fell,
    filled,
    not_filled,
    posted,
    rented,
)
from marketplace.client.relays.folder import RelayFile, RelayKept
from marketplace.client.relays.keeper import newest
from marketplace.client.relays.stage import Stage
from marketplace.domain.errors import Malformed

RULES = Rules(away_ms=60_000, most=2)
RUNS = Look("RUNNING", "p1")
SERVES = Look("RUNNING", "p1", serves=True)
OVER = Look("ENDED", "p1")
NOW = 1_800_000_000_000


def serving() -> Kept:
    kept = filled(replace(rented(Kept(), "v1", fill=True), stage=Stage.FILLING))
    kept, act = decide(posted(kept, "r1"), Seen(RUNS, SERVES, place="h:1"), NOW, RULES)
    assert act is None and kept.stage is Stage.SERVING
    return kept


def test_from_nothing_to_the_tip() -> None:
    kept, act = decide(Kept(), Seen(), NOW, RULES)
    assert act == Rent(())
    kept = rented(kept, "v1", fill=True)
    kept, act = decide(kept, Seen(Look("STARTING")), NOW, RULES)
    assert act is None and kept.stage is Stage.VOLUME_STARTING
    kept, act = decide(kept, Seen(RUNS), NOW, RULES)
    assert act == Fill("v1") and kept.provider == "p1"
    kept, act = decide(filled(kept), Seen(RUNS), NOW, RULES)
    assert act == Start("v1")
    kept, act = decide(posted(kept, "r1"), Seen(RUNS, RUNS), NOW, RULES)
    assert act is None and kept.stage is Stage.RELAY_STARTING
    kept, act = decide(kept, Seen(RUNS, SERVES, place="h:1"), NOW, RULES)
    assert act is None and (kept.stage, kept.place) == (Stage.SERVING, "h:1")


def test_one_that_ends_is_started_anew_on_its_chain_and_waits_longer_each_time() -> None:
    kept, waits, now = serving(), [], NOW
    for _ in range(12):
        kept, act = decide(kept, Seen(RUNS, OVER), now, RULES)
        assert act is None and (kept.stage, kept.volume) == (Stage.RELAY_WANTED, "v1")
        waits.append(kept.again_ms - now)
        now = kept.again_ms - 1
        assert decide(kept, Seen(RUNS), now, RULES)[1] is None
        now += 1
        kept, act = decide(kept, Seen(RUNS), now, RULES)
        assert act == Start("v1")
        kept = posted(kept, "r2")
    assert waits[:3] == [FIRST_WAIT_MS, 2 * FIRST_WAIT_MS, 4 * FIRST_WAIT_MS]
    assert max(waits) == waits[-1] == MOST_WAIT_MS
    kept, _ = decide(kept, Seen(RUNS, SERVES), now, RULES)
    assert kept.falls == 0 and not kept.left and not kept.replaced_ms


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        (Seen(RUNS, RUNS, away_ms=RULES.away_ms + 1), ("p1",)),
        (Seen(OVER, OVER), ()),  # its end was agreed, or its provider said so: nobody is away
        (Seen(OVER, OVER, away_ms=RULES.away_ms + 1), ("p1",)),
    ],
)
def test_one_whose_host_is_gone_begins_elsewhere(seen: Seen, left: tuple[str, ...]) -> None:
    kept, act = decide(serving(), seen, NOW, RULES)
    assert act == Leave(("r1", "v1"))
    assert kept == Kept(place="h:1", left=left, replaced_ms=(NOW,))
    assert decide(kept, Seen(), NOW, RULES)[1] == Rent(left)
    assert decide(rented(kept, "v2", fill=True), Seen(RUNS), NOW, RULES)[1] == Fill("v2")


@pytest.mark.parametrize("away_ms", [0, 1, RULES.away_ms])
def test_one_whose_provider_is_away_for_a_while_stays(away_ms: int) -> None:
    kept = serving()
    assert decide(kept, Seen(RUNS, RUNS, away_ms=away_ms), NOW, RULES) == (kept, None)


def test_whoever_loses_it_again_and_again_is_paid_for_no_more_than_was_said() -> None:
    """Its volume ends as soon as it runs, each time: a provider, or a market, that spends for it."""
    kept, now, rents = serving(), NOW, []
    while now < NOW + DAY_MS:
        seen = Seen(OVER) if kept.volume else Seen()
        kept, act = decide(kept, seen, now, RULES)
        if isinstance(act, Rent):
            rents.append(now)
            kept = filled(replace(rented(kept, f"v{len(rents)}", fill=True), stage=Stage.FILLING))
        now += 60_000
    assert len(rents) == RULES.most
    assert decide(kept, Seen(), now - 60_000, RULES)[1] == Held()
    assert isinstance(decide(kept, Seen(), NOW + DAY_MS + 120_000, RULES)[1], Rent)


def test_a_volume_that_never_runs_is_another_provider_s_no_and_no_loss() -> None:
    kept = rented(Kept(), "v1", fill=True)
    kept, act = decide(kept, Seen(OVER), NOW, RULES)
    assert act is None and (kept.stage, kept.volume) == (Stage.VOLUME_WANTED, "")
    assert not kept.replaced_ms and kept.again_ms > NOW
    assert decide(kept, Seen(), kept.again_ms, RULES)[1] == Rent(())


def test_a_snapshot_that_is_not_taken_is_tried_and_then_begun_without() -> None:
    kept = replace(rented(Kept(), "v1", fill=True), stage=Stage.FILLING)
    for _ in range(TRIES - 1):
        kept = not_filled(kept, NOW)
        assert decide(kept, Seen(RUNS), NOW, RULES)[1] is None
        assert decide(kept, Seen(RUNS), kept.again_ms, RULES)[1] == Fill("v1")
    assert not_filled(kept, NOW).stage is Stage.RELAY_WANTED


def test_whatever_is_seen_it_pays_for_one_volume_and_one_relay() -> None:
    random, now = Random(17), NOW
    for _ in range(300):
        kept, alive = Kept(), set[str]()
        for step in range(200):
            now += random.choice([1_000, 30_000, 3_600_000])
            looks = [Look(s, "p1", random.random() < 0.5) for s in ("STARTING", "RUNNING", "ENDED")]
            volume = random.choice(looks) if kept.volume else None
            relay = random.choice(looks) if kept.relay else None
            for job, look in ((kept.volume, volume), (kept.relay, relay)):
                if look is not None and look.is_over:
                    alive.discard(job)
            seen = Seen(volume, relay, random.choice([0, 0, 0, 90_000]))
            kept, act = decide(kept, seen, now, RULES)
            kept = _performed(kept, act, alive, f"{step}", now, random)
            assert len(alive) <= 2, (kept, alive)
            assert alive <= {kept.volume, kept.relay}, (kept, alive)


def _performed(
    kept: Kept, act: Act | None, alive: set[str], name: str, now: int, random: Random
) -> Kept:
    match act:
        case Rent() | Start() if random.random() < 0.3:
            return fell(kept, now)  # nobody took it
        case Rent():
            alive.add(f"v{name}")
            return rented(kept, f"v{name}", fill=True)
        case Start():
            alive.add(f"r{name}")
            return posted(kept, f"r{name}")
        case Fill():
            return filled(kept) if random.random() < 0.5 else not_filled(kept, now)
        case Leave(jobs):
            alive.difference_update(jobs)
            return kept
        case _:
            return kept


def test_how_far_it_is_outlives_its_keeper_and_has_one(tmp_path: Path) -> None:
    file = RelayFile(tmp_path, "relay-1")
    with file.held():
        assert file.read() == Kept()
        kept = replace(decide(serving(), Seen(OVER), NOW, RULES)[0], left=("p1", "p2"), told="h:0")
        file.write(kept)
        with pytest.raises(RelayKept), RelayFile(tmp_path, "relay-1").held():
            pass
    with RelayFile(tmp_path, "relay-1").held():
        assert RelayFile(tmp_path, "relay-1").read() == kept


@pytest.mark.parametrize("change", [{"stage": "GONE"}, {"version": 2}, {"falls": -1}, {"more": 1}])
def test_what_does_not_read_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    file = RelayFile(tmp_path, "relay-1")
    with file.held():
        file.write(serving())
    path = tmp_path / "relays" / "relay-1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(Malformed):
        file.read()
    path.write_text("{")
    with pytest.raises(Malformed):
        file.read()


def test_the_newest_snapshot_counts(tmp_path: Path) -> None:
    assert newest(None) is None and newest(tmp_path / "none") is None and newest(tmp_path) is None
    for at, name in enumerate(("old", "new", ".tally-part")):
        (tmp_path / name).write_text(name)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert newest(tmp_path) == tmp_path / "new"
    assert newest(tmp_path / "old") == tmp_path / "old"
