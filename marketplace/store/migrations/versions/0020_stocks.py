"""What hosts have of images, and what images are made of"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: adapters tell it again by themselves."""
    op.create_table(
        "stocks",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("held", sa.LargeBinary(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("start_ms", "pull_ms", "bytes_s")
        ),
        sa.Column("went", sa.JSON(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("provider"),
    )
    op.create_table(
        "images",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index("ix_images_at_ms", "images", ["at_ms"])


def downgrade() -> None:
    """Back: nothing is known of images, and places are found by price alone."""
    op.drop_table("images")
    op.drop_table("stocks")
