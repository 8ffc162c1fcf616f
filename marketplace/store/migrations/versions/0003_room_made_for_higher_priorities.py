"""Preemptions: room that is made for a job of higher priority, and what came of it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    op.create_table(
        "preemptions",
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("offer", sa.String(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("victims", sa.JSON(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_index("ix_preemptions_account", "preemptions", ["account"], unique=False)
    op.create_index("ix_preemptions_state", "preemptions", ["state"], unique=False)


def downgrade() -> None:
    """Back."""
    op.drop_index("ix_preemptions_state", "preemptions")
    op.drop_index("ix_preemptions_account", "preemptions")
    op.drop_table("preemptions")
