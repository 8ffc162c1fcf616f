"""Gangs: a record each, so far told by looking over their members"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_GANGS = sa.table("gangs", *map(sa.column, ("id", "account", "state", "reason", "version")))
_JOBS = sa.table(
    "jobs", *map(sa.column, ("gang", "account", "state", "lease")), sa.column("avoid", sa.JSON)
)


def upgrade() -> None:
    """Forward. What is wanted of a gang whose members failed already is found at the first look."""
    op.create_table(
        "gangs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_gangs_state", "gangs", ["state"], unique=False)
    known = dict[str, dict[str, object]]()
    members = sa.select(_JOBS).where(_JOBS.c.gang != "").order_by(_JOBS.c.gang)
    for job in op.get_bind().execute(members).all():
        stands = "ENDED" if job.state == "ENDED" else "WHOLE"
        if job.state == "POSTED" and not job.lease and not job.avoid:
            stands = "WANTED"
        gang = known.setdefault(
            job.gang,
            {"id": job.gang, "account": job.account, "state": stands, "reason": "", "version": 0},
        )
        if gang["state"] != stands:
            gang["state"] = "WHOLE"  # as it was; a member that failed or was declined ends it
    if known:
        op.bulk_insert(_GANGS, list(known.values()))


def downgrade() -> None:
    """Back: its members are looked over again."""
    op.drop_index("ix_gangs_state", "gangs")
    op.drop_table("gangs")
