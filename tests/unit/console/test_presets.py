"""What the new-job page starts from are jobs."""

from __future__ import annotations

import json

from marketplace.console.presets import presets
from marketplace.domain.work.job import JobSpec


def test_every_preset_is_a_job_with_a_name_of_its_own() -> None:
    found = presets()
    specs = [JobSpec.from_wire(json.loads(one.spec)) for one in found]
    assert len(found) >= 4
    assert len({one.name for one in found}) == len({one.title for one in found}) == len(found)
    assert all(one.title and not one.title.startswith("#") for one in found)
    assert specs[0].resources[0].gpu is None  # the first asks for no GPU
    assert all(spec.gang is None and not spec.files for spec in specs)  # the form takes them whole
