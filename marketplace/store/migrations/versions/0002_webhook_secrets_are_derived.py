"""Webhook secrets are derived from the market's key, and no longer stored

The stored ones are dropped, and the table is written anew so that they do not lie on in pages that
the database merely calls free. A webhook made before has rotation 0: its owner rotates it to see
the secret that signs from now on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    context = op.get_context()
    sqlite = context.dialect.name == "sqlite"
    if sqlite:  # what is freed is overwritten with zeros
        op.execute("PRAGMA secure_delete=ON")
    op.execute("UPDATE webhooks SET secret=''")
    with op.batch_alter_table("webhooks") as table:
        table.drop_column("secret")
        table.add_column(sa.Column("rotation", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("webhooks") as table:
        table.alter_column("rotation", server_default=None)
    with context.autocommit_block():
        op.execute("VACUUM" if sqlite else "VACUUM FULL webhooks")
        if sqlite:
            op.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def downgrade() -> None:
    """Back: the secrets are gone, so nobody can check a signature until it makes new webhooks."""
    with op.batch_alter_table("webhooks") as table:
        table.drop_column("rotation")
        table.add_column(sa.Column("secret", sa.String(), nullable=False, server_default=""))
