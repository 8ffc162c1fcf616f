"""Links that open one port of a job to whoever has them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: nothing was shared before."""
    op.create_table(
        "port_links",
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("id", "hash", "account", "job", "key")
        ),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    for name in ("account", "job", "expires_ms"):
        op.create_index(f"ix_port_links_{name}", "port_links", [name])


def downgrade() -> None:
    """Back: every link has ended."""
    op.drop_table("port_links")
