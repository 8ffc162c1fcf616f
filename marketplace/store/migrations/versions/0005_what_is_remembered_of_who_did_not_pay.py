"""Standings: who paid, who let quotes lapse, and whose leases ended unpaid"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    op.create_table(
        "standings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("paid", sa.BigInteger(), nullable=False),
        sa.Column("lapses", sa.BigInteger(), nullable=False),
        sa.Column("strikes", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("owing", sa.JSON(), nullable=False),
        sa.Column("turn", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    """Back."""
    op.drop_table("standings")
