"""What the form has no field for survives what is changed in the form."""

from __future__ import annotations

from typing import Any

from tests.unit.web.test_numbers import ASSETS, page

RUN = f"""
const {{ over, beyond }} = await import("{ASSETS}/form/merge.js");
return given.map(([now, was, base]) => [over(now, was, base), beyond(was, base)]);
"""
WAS: dict[str, Any] = {
    "name": "a", "ports": [], "resources": [{"cpu": {"least": 1000}, "gpu": {"models": ["L4"]}}],
    "policy": {"queue": False, "idle_for_ms": 0}, "files": [{"dst": "x", "mode": 420}],
}  # fmt: skip
BASE: dict[str, Any] = {
    "name": "a", "ports": [{"port": 80}], "files": [{"dst": "x", "mode": 493}],
    "resources": [{"cpu": {"least": 500}, "gpu": {"models": ["L4", "H100"]}}, {"cpu": {"least": 9}}],
    "policy": {"queue": False, "idle_for_ms": 5},
}  # fmt: skip


def test_what_is_not_changed_in_the_form_stays_as_it_was_given() -> None:
    changed = {**WAS, "name": "b", "policy": {"queue": True, "idle_for_ms": 0}}
    cores = {**WAS, "resources": [{"cpu": {"least": 2000}}]}
    none = {**WAS, "files": []}
    same, other, bare, fewer = page(RUN, [[now, WAS, BASE] for now in (WAS, changed, cores, none)])
    assert same[0] == BASE
    assert same[1] == [
        "ports.0", "resources.0.cpu.least", "resources.0.gpu.models.1", "resources.1",
        "policy.idle_for_ms", "files.0.mode",
    ]  # fmt: skip
    assert other[0] == {**BASE, "name": "b", "policy": {"queue": True, "idle_for_ms": 5}}
    assert bare[0]["resources"] == [{"cpu": {"least": 2000}}, {"cpu": {"least": 9}}]
    assert fewer[0]["files"] == []
