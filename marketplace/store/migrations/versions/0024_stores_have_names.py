"""Which stores an account has"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: a store of before is listed once a cluster uses it again, for of it only a hash is
    known.
    """
    op.create_table(
        "kept_stores",
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "name"),
    )


def downgrade() -> None:
    """Back: the stores stay, unlisted."""
    op.drop_table("kept_stores")
