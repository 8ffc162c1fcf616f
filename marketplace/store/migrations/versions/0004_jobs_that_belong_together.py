"""Gangs: jobs that are placed, and end, together"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("gang", sa.String(), nullable=False, server_default=""))
    with op.batch_alter_table("jobs") as table:
        table.alter_column("gang", server_default=None)
    op.create_index("ix_jobs_gang", "jobs", ["gang"], unique=False)


def downgrade() -> None:
    """Back: what runs goes on, each job for itself."""
    op.drop_index("ix_jobs_gang", "jobs")
    with op.batch_alter_table("jobs") as table:
        table.drop_column("gang")
