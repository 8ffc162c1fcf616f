"""The kinds of resources are one list: what is signed, priced and offered names the same ones."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.metering.kinds import KINDS, Resource, show_units, want_resource
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.parts import Price


def test_each_kind_that_may_be_signed_has_its_entry_and_no_other() -> None:
    assert tuple(KINDS) == get_args(Resource)
    assert all(kind.name == name for name, kind in KINDS.items())


def test_each_kind_is_capped_and_asked_for_by_a_field_of_its_own() -> None:
    caps, rates = [k.cap for k in KINDS.values()], [k.rates for k in KINDS.values()]
    assert len(set(caps)) == len(set(rates)) == len(KINDS)
    assert set(caps) <= {f.name for f in fields(Price)}
    assert set(rates) <= {f.name for f in fields(Offer)}


@pytest.mark.parametrize("resource", get_args(Resource))
def test_a_cap_is_its_kinds_alone(resource: Resource) -> None:
    capped = replace(Price(), **{KINDS[resource].cap: 7})
    assert {name: capped.cap(kind.name) for name, kind in KINDS.items()} == {
        name: 7 if name == resource else 0 for name in KINDS
    }


@pytest.mark.parametrize("value", ["GPU", "Disk", "", None, 1, ["gpu"], b"gpu"])
def test_what_names_no_kind_is_refused(value: object) -> None:
    with pytest.raises(Malformed, match="resource is gpu or core or disk"):
        want_resource(value)


@pytest.mark.parametrize(
    ("units", "resource", "text"),
    [
        (1000, "gpu", "1 GPU"), (2000, "gpu", "2 GPUs"), (500, "gpu", "0.5 GPU"),
        (1500, "core", "1.5 cores"), (1000, "core", "1 core"), (125, "core", "0.125 core"),
        (20_000, "disk", "20 GB"), (63, "disk", "0.063 GB"),
    ],
)  # fmt: skip
def test_units_are_said_in_words(units: int, resource: str, text: str) -> None:
    assert show_units(units, resource) == text
