"""What a workload gave back carries its provider's signature"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: nobody signed what there was before."""
    with op.batch_alter_table("outputs") as batch:
        batch.add_column(sa.Column("signature", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    """Back: the signatures go."""
    with op.batch_alter_table("outputs") as batch:
        batch.drop_column("signature")
