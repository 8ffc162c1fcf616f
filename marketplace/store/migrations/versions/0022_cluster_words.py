"""What is signed of the members of clusters"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: no cluster runs yet."""
    op.create_table(
        "cluster_words",
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("word", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("lease", "word"),
    )


def downgrade() -> None:
    """Back: adapters keep the orders that they have taken, and consumers sign newer ones."""
    op.drop_table("cluster_words")
