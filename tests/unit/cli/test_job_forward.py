"""Which job ``tally job forward`` is of, where a gang is named."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from marketplace.cli.commands import job_forward
from marketplace.domain.errors import Malformed, NotFound


class Place:
    """A market with a gang of two."""

    @property
    def http(self) -> Any:
        return self

    async def get(self, path: str) -> Any:
        assert path == "/v1/gangs/gang_1"
        return {"id": "gang_1", "members": [{"id": "job_a"}, {"id": "job_b"}]}


def meant(name: str, member: int | None = None) -> str:
    return anyio.run(job_forward.member_of, cast(Any, Place()), name, member)


def test_a_gangs_member_is_meant_by_its_number_the_first_unless_said() -> None:
    assert (meant("gang_1"), meant("gang_1", 0), meant("gang_1", 1)) == ("job_a", "job_a", "job_b")
    assert meant("job_c") == "job_c"


def test_a_member_that_there_is_not_is_refused() -> None:
    with pytest.raises(NotFound):
        meant("gang_1", 2)
    with pytest.raises(Malformed):
        meant("job_c", 0)
