"""Records are plain values: a copy but for a field has everything else."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property

import pytest

from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.records import Job, Record


def test_a_record_but_for_a_field_is_what_replace_makes():
    job = Job("j", "a", "", "n", "job", {}, b"", [], JobState.POSTED, 1, 2, b"")
    changed = job.but(lease="l", updated_ms=9)
    assert changed == replace(job, lease="l", updated_ms=9)
    assert (job.lease, job.updated_ms) == ("", 2)
    with pytest.raises(TypeError, match="leese"):
        job.but(leese="l")


def test_records_keep_nothing_but_their_fields():
    """What :meth:`Record.but` copies is all that there is."""
    kinds = Record.__subclasses__()
    assert len(kinds) > 15
    for kind in kinds:
        assert not any(isinstance(one, cached_property) for one in vars(kind).values()), kind
        assert not hasattr(kind, "__post_init__") and fields(kind)
