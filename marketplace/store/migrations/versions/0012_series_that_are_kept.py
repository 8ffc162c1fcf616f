"""Series that are kept: what of the market is in use by hour, and which provider is there by day"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_IN_USE = (
    "looks", "offers", "gpu_milli", "gpu_milli_held", "core_milli", "core_milli_held", "running",
    "waiting",
)  # fmt: skip


def upgrade() -> None:
    """Forward: nobody looked before."""
    op.create_table(
        "in_use_hours",
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _IN_USE),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("at_ms"),
    )
    op.create_table(
        "presence_days",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("looks", sa.BigInteger(), nullable=False),
        sa.Column("there", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "day"),
    )
    op.create_index("ix_presence_days_day", "presence_days", ["day"])


def downgrade() -> None:
    """Back: what was seen is forgotten."""
    op.drop_index("ix_presence_days_day", table_name="presence_days")
    op.drop_table("presence_days")
    op.drop_table("in_use_hours")
