"""What is said of a rented relay, from a job's view and its story."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from marketplace.cli.commands.node_screen import spark
from marketplace.client.sdk.relay_standing import NotARelay, standing
from marketplace.domain.ouroboros.reading import NETWORKS
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Port
from marketplace.domain.work.relay import RelayNeed
from tests.unit.support.adapter import core_job, offer, terms_for

TERMS = terms_for(offer(), core_job())
CLOCK = NETWORKS["preprod"].clock
BEGUN = CLOCK.when(100_000_000)
RELAY = core_job(ports=(Port(3001),), relay=RelayNeed("preprod", 3001))


def view(job: JobSpec = RELAY, **more: object) -> Any:
    known = {
        "id": "job_1", "state": "RUNNING", "spec": job.to_wire(), "started_at_ms": BEGUN,
        "finished_at_ms": 0, "rate_micro": 6_000_000,
        "unit_ms": 2 * 90_000, "spent": 1080,
    }  # fmt: skip
    return cast(Any, {**known, **more})


def event(kind: str, **detail: object) -> Any:
    return {"id": "ev", "job": "job_1", "lease": "lease_1", "at_ms": BEGUN, "kind": kind,
            "detail": detail}  # fmt: skip


def test_a_relay_of_which_all_speak_well_serves() -> None:
    slot = CLOCK.at(BEGUN) + 90
    told = [
        event("OFF_TIP", code="syncing"), event("AT_TIP"), event("LOOKED", standing="AT_TIP"),
        {"at_ms": BEGUN + 95_000, "tip_slot": slot}, {"at_ms": BEGUN + 100_000, "tip_slot": slot},
    ]  # fmt: skip
    found = standing(view(), TERMS, told, BEGUN + 100_000)
    assert found.serves and (found.says, found.cause, found.seen) == ("AT_TIP", "", "AT_TIP")
    assert (found.tip_slot, found.lags_ms) == (slot, (5_000, 10_000))
    assert (found.served_ms, found.since_ms, found.spent) == (90_000, 100_000, 1080)
    # Two cores at 6 lovelace a second, nine tenths of the time.
    assert found.month == 2 * 6 * 30 * 86_400 * 9 // 10


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, []),
        ({}, [event("AT_TIP"), event("OFF_TIP", code="lagging")]),
        ({}, [event("AT_TIP"), event("LOOKED", standing="LAGGING", why="its tip is 400 s old")]),
        ({"state": "PAUSED"}, [event("AT_TIP")]),
        ({"state": "ENDED", "finished_at_ms": BEGUN + 5}, [event("AT_TIP")]),
    ],
)
def test_a_relay_serves_only_if_nobody_says_otherwise(more: dict[str, Any], told: Any) -> None:
    assert not standing(view(**more), TERMS, told, BEGUN + 100_000).serves


def test_before_it_has_terms_there_is_nothing_to_say() -> None:
    found = standing(view(started_at_ms=0, unit_ms=0, spent=0), None, [], BEGUN)
    assert (found.served_ms, found.since_ms, found.month, found.tip_slot) == (0, 0, 0, None)


def test_what_is_no_relay_is_refused() -> None:
    with pytest.raises(NotARelay):
        standing(view(replace(RELAY, relay=None)), TERMS, [], BEGUN)


def test_a_bar_shows_the_worst_of_its_part() -> None:
    assert spark(()) == ""
    assert spark((0, 7_000)) == "▁█ 7 s"
    many = [1_000] * 400
    many[7] = 70_000
    shown = spark(many)
    assert shown.startswith("█▁") and len(shown.split()[0]) == 20 and shown.endswith(" 1 s")
