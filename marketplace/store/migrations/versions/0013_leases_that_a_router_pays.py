"""Routed leases: jobs with a hop, leases with a route, and the keys that such leases used up"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_JOBS = sa.table("jobs", sa.column("hop", sa.LargeBinary), sa.column("direct", sa.JSON))
_LEASES = sa.table("leases", sa.column("hop", sa.LargeBinary), sa.column("route", sa.JSON))


def upgrade() -> None:
    """Forward: all that there are go direct."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("hop", sa.LargeBinary()))
        table.add_column(sa.Column("direct", sa.JSON()))
    with op.batch_alter_table("leases") as table:
        table.add_column(sa.Column("hop", sa.LargeBinary()))
        table.add_column(sa.Column("route", sa.JSON()))
    op.execute(sa.update(_JOBS).values(hop=b"", direct=[]))
    op.execute(sa.update(_LEASES).values(hop=b"", route={}))
    for name, columns in (("jobs", ("hop", "direct")), ("leases", ("hop", "route"))):
        with op.batch_alter_table(name) as table:
            for column in columns:
                table.alter_column(column, nullable=False)
    op.create_table(
        "lease_keys",
        sa.Column("session_vk", sa.LargeBinary(), primary_key=True),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("hop", sa.LargeBinary(), nullable=False),
        sa.Column("paid", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
    )
    op.create_index("ix_lease_keys_hop", "lease_keys", ["hop"])


def downgrade() -> None:
    """Back: a market of before reads no terms of a routed lease; its bill is in a backup."""
    op.drop_index("ix_lease_keys_hop", "lease_keys")
    op.drop_table("lease_keys")
    for name, columns in (("jobs", ("hop", "direct")), ("leases", ("hop", "route"))):
        with op.batch_alter_table(name) as table:
            for column in columns:
                table.drop_column(column)
