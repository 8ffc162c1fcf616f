"""Channels: how long they are kept open while they are idle, as their consumers ordered"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_CHANNELS = sa.table(
    "channels", sa.column("keep_ms", sa.BigInteger), sa.column("keep_signature", sa.LargeBinary)
)


def upgrade() -> None:
    """Forward: of the channels that there are nothing was ordered."""
    with op.batch_alter_table("channels") as table:
        table.add_column(sa.Column("keep_ms", sa.BigInteger()))
        table.add_column(sa.Column("keep_signature", sa.LargeBinary()))
    # Written, not defaulted: an empty default is bytes to one database and text to the other.
    op.execute(sa.update(_CHANNELS).values(keep_ms=0, keep_signature=b""))
    with op.batch_alter_table("channels") as table:
        table.alter_column("keep_ms", nullable=False)
        table.alter_column("keep_signature", nullable=False)


def downgrade() -> None:
    """Back: the adapters that heard an order keep to it."""
    with op.batch_alter_table("channels") as table:
        table.drop_column("keep_signature")
        table.drop_column("keep_ms")
