"""Channels: whether money was seen to move over them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    with op.batch_alter_table("channels") as table:
        table.add_column(sa.Column("paid", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("channels") as table:
        table.alter_column("paid", server_default=None)


def downgrade() -> None:
    """Back."""
    with op.batch_alter_table("channels") as table:
        table.drop_column("paid")
