"""What the new-job page starts from are jobs."""

from __future__ import annotations

import json

from marketplace.client.jobs.sessions import APP, NOTEBOOK, SHELL
from marketplace.console.presets import presets, sessions
from marketplace.domain.work.job import JobSpec


def test_every_preset_is_a_job_with_a_name_of_its_own() -> None:
    found = presets()
    specs = [JobSpec.from_wire(json.loads(one.spec)) for one in found]
    assert len(found) >= 4
    assert len({one.name for one in found}) == len({one.title for one in found}) == len(found)
    assert all(one.title and not one.title.startswith("#") for one in found)
    assert specs[0].resources[0].gpu is None  # the first asks for no GPU
    assert all(spec.gang is None and not spec.files for spec in specs)  # the form takes them whole


def test_a_session_is_offered_where_its_image_is_and_needs_nothing_else() -> None:
    digest = f"sha256:{'5' * 64}"
    names = (NOTEBOOK.image, APP.image, SHELL.local, "docker.io/library/postgres:16")
    found = sessions(dict.fromkeys(names, digest))
    # What an image lacks is installed by a command alone: it brings the versions and hashes along.
    assert [one.name for one in found] == ["notebook", "shell"]
    specs = [JobSpec.from_wire(json.loads(one.spec)) for one in found]
    assert {spec.image for spec in specs} == {digest} and all(not spec.files for spec in specs)
    assert sessions({APP.local: digest})[0].name == "app"
    assert sessions({}) == ()
