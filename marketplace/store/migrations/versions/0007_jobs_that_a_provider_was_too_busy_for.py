"""Jobs: providers that were still clearing up, and until when none is asked, each in a column of
its own
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MARK = "busy:"
_JOBS = sa.table("jobs", sa.column("id"), sa.column("avoid", sa.JSON), sa.column("busy", sa.JSON))


def upgrade() -> None:
    """Forward: until now each such answer was a mark among the providers to avoid."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("busy", sa.JSON(), nullable=False, server_default="{}"))
        table.add_column(
            sa.Column("not_before_ms", sa.BigInteger(), nullable=False, server_default="0")
        )
    with op.batch_alter_table("jobs") as table:
        table.alter_column("busy", server_default=None)
        table.alter_column("not_before_ms", server_default=None)
    for job, avoid, _ in _rows(_JOBS.c.avoid, f'%"{_MARK}%'):
        marks = [one.removeprefix(_MARK) for one in avoid if one.startswith(_MARK)]
        busy = {provider: marks.count(provider) for provider in marks}
        _write(job, [one for one in avoid if not one.startswith(_MARK)], busy)


def downgrade() -> None:
    """Back."""
    for job, avoid, busy in _rows(_JOBS.c.busy, '%"%'):
        marks = [f"{_MARK}{provider}" for provider, times in busy.items() for _ in range(times)]
        _write(job, [*avoid, *marks], {})
    with op.batch_alter_table("jobs") as table:
        table.drop_column("not_before_ms")
        table.drop_column("busy")


def _rows(column: sa.ColumnClause[Any], like: str) -> list[Any]:
    found = sa.select(_JOBS.c.id, _JOBS.c.avoid, _JOBS.c.busy)
    return list(op.get_bind().execute(found.where(sa.cast(column, sa.Text).like(like))))


def _write(job: str, avoid: list[str], busy: dict[str, int]) -> None:
    op.get_bind().execute(_JOBS.update().where(_JOBS.c.id == job).values(avoid=avoid, busy=busy))
