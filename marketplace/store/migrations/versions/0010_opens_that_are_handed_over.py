"""Leases: the bytes of an open transaction, from its payer to the adapter"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_LEASES = sa.table("leases", sa.column("open_tx", sa.LargeBinary))


def upgrade() -> None:
    """Forward: with the leases that there are nothing was handed over."""
    with op.batch_alter_table("leases") as table:
        table.add_column(sa.Column("open_tx", sa.LargeBinary()))
    # Written, not defaulted: an empty default is bytes to one database and text to the other.
    op.execute(sa.update(_LEASES).values(open_tx=b""))
    with op.batch_alter_table("leases") as table:
        table.alter_column("open_tx", nullable=False)


def downgrade() -> None:
    """Back: who is not told yet waits for a block."""
    with op.batch_alter_table("leases") as table:
        table.drop_column("open_tx")
