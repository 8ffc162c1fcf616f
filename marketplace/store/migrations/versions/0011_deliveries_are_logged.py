"""Deliveries of webhooks: what became of each, kept a while"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_DELIVERIES = sa.table(
    "deliveries",
    sa.column("done_ms", sa.BigInteger),
    sa.column("status", sa.Integer),
    sa.column("error", sa.String),
)


def upgrade() -> None:
    """Forward: what there is still waits."""
    with op.batch_alter_table("deliveries") as table:
        table.add_column(sa.Column("done_ms", sa.BigInteger()))
        table.add_column(sa.Column("status", sa.Integer()))
        table.add_column(sa.Column("error", sa.String()))
    op.execute(sa.update(_DELIVERIES).values(done_ms=0, status=0, error=""))
    with op.batch_alter_table("deliveries") as table:
        for name in ("done_ms", "status", "error"):
            table.alter_column(name, nullable=False)
        table.create_index("ix_deliveries_done_ms", ["done_ms"])


def downgrade() -> None:
    """Back: what is done is forgotten, so that it is not delivered again."""
    op.execute(sa.delete(_DELIVERIES).where(_DELIVERIES.c.done_ms > 0))
    with op.batch_alter_table("deliveries") as table:
        table.drop_index("ix_deliveries_done_ms")
        for name in ("error", "status", "done_ms"):
            table.drop_column(name)
