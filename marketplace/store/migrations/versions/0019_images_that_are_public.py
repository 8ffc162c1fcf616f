"""Images that are public"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: there were none."""
    op.create_table(
        "public_images",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("repository", "account")),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("repository"),
    )
    op.create_index("ix_public_images_account", "public_images", ["account"])


def downgrade() -> None:
    """Back: each image is its account's alone again."""
    op.drop_table("public_images")
