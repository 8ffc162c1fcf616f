"""Logs: when each piece came in"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_LOGS = sa.table("logs", sa.column("at_ms", sa.BigInteger))


def upgrade() -> None:
    """Forward: of what was printed before nobody noted the time."""
    with op.batch_alter_table("logs") as table:
        table.add_column(sa.Column("at_ms", sa.BigInteger()))
    op.execute(sa.update(_LOGS).values(at_ms=0))
    with op.batch_alter_table("logs") as table:
        table.alter_column("at_ms", nullable=False)


def downgrade() -> None:
    """Back: the text stays."""
    with op.batch_alter_table("logs") as table:
        table.drop_column("at_ms")
