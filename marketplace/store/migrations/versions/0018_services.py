"""Services: one address for what several jobs serve"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: there were none."""
    op.create_table(
        "services",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("id", "account", "name")),
        sa.Column("auth", sa.String(), nullable=False),
        sa.Column("sticky", sa.Boolean(), nullable=False),
        sa.Column("hold_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account", "name", name="uq_services_account_name"),
    )
    op.create_table(
        "replicas",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("job", "service")),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("serving", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_index("ix_replicas_service", "replicas", ["service"])
    op.create_table(
        "service_loads",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("service", "process")),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("busy", "held")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("requests", "failed")),
        sa.Column("by_job", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("service", "process"),
    )
    op.create_index("ix_service_loads_at_ms", "service_loads", ["at_ms"])


def downgrade() -> None:
    """Back: services lose their addresses, their jobs run on."""
    for name in ("service_loads", "replicas", "services"):
        op.drop_table(name)
