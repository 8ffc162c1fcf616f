"""Every machine: its table pinned row by row, its diagram in the docs, and its shape.

``TALLY_WRITE_GOLDEN=1`` writes the files anew; their diff is reviewed as behaviour.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest

from adapter.core.wish import WORKLOAD
from marketplace.client.clusters.stage import CLUSTER
from marketplace.client.jobs.core.stage import CONSUMER
from marketplace.client.relays.stage import RELAY
from marketplace.client.services.stage import REPLICA
from marketplace.domain.errors import IllegalTransition
from marketplace.domain.machine import Machine
from marketplace.domain.money.channel_stage import CHANNEL
from marketplace.domain.money.transaction import TRANSACTION
from marketplace.domain.supply.offer import OFFER
from marketplace.domain.work.gang import GANG
from marketplace.domain.work.job_machine import JOB
from marketplace.domain.work.lease import LEASE
from marketplace.domain.work.preemption import PREEMPTION

ROOT = Path(__file__).parents[3]
MACHINES: list[Machine[Any, Any]] = [
    OFFER,
    JOB,
    CONSUMER,
    GANG,
    CLUSTER,
    REPLICA,
    RELAY,
    LEASE,
    PREEMPTION,
    WORKLOAD,
    CHANNEL,
    TRANSACTION,
]


def states_and_events(machine: Machine[Any, Any]) -> tuple[list[Enum], list[Enum]]:
    state, event = cast("tuple[Enum, Enum]", next(iter(machine.arrows)))
    return list(type(state)), list(type(event))


def rows(machine: Machine[Any, Any]) -> Iterator[str]:
    states, events = states_and_events(machine)
    for state in states:
        for event in events:
            to = machine.arrows.get((state, event))
            yield f"{state.name:<12} {event.name:<12} {to.name if to else '-'}"


def golden(path: Path, text: str) -> None:
    if os.environ.get("TALLY_WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs: review, then TALLY_WRITE_GOLDEN=1"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_pair_of_state_and_event_is_pinned(machine: Machine[Any, Any]) -> None:
    golden(ROOT / f"tests/golden/machine_{machine.name}.txt", "\n".join(rows(machine)) + "\n")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_state_is_reachable_and_an_end_exists(machine: Machine[Any, Any]) -> None:
    states, events = states_and_events(machine)
    seen, fresh = {machine.initial}, [machine.initial]
    while fresh:
        at = fresh.pop()
        for event in events:
            to = machine.arrows.get((at, event))
            if to is not None and to not in seen:
                seen.add(to)
                fresh.append(to)
    assert seen == set(states)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_what_is_not_in_the_table_is_refused(machine: Machine[Any, Any]) -> None:
    states, events = states_and_events(machine)
    for state in states:
        for event in events:
            if machine.accepts(state, event):
                assert machine.step(state, event) is machine.arrows[state, event]
            else:
                with pytest.raises(IllegalTransition):
                    machine.step(state, event)


def test_the_diagrams_in_the_docs_are_drawn_from_the_tables() -> None:
    parts = [
        "# Machines\n\nDrawn from the tables in `marketplace/domain`, in `adapter/core/wish.py` for the workload, and in\n`marketplace/client/jobs/core/stage.py`, `client/clusters/stage.py`,\n`client/services/stage.py` and `client/relays/stage.py` for a job, a cluster, a replica and a kept relay\nat their consumer; not edited by hand.\n"
    ]
    parts += [f"## {m.name}\n\n```mermaid\n{m.mermaid()}\n```\n" for m in MACHINES]
    golden(ROOT / "docs/machines.md", "\n".join(parts))
