"""Leases that go on under renewed terms"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_NEW = (
    ("renewal", sa.LargeBinary(), sa.text("''")),
    ("renewal_signature", sa.LargeBinary(), sa.text("''")),
    ("renewal_refused", sa.String(), ""),
)


def upgrade() -> None:
    """Forward: no lease is being renewed."""
    with op.batch_alter_table("leases") as table:
        for name, kind, empty in _NEW:
            table.add_column(sa.Column(name, kind, nullable=False, server_default=empty))
    with op.batch_alter_table("leases") as table:
        for name, _, _ in _NEW:
            table.alter_column(name, server_default=None)


def downgrade() -> None:
    """Back: renewals that not both signed are forgotten; signed ones are the lease's terms."""
    with op.batch_alter_table("leases") as table:
        for name, _, _ in _NEW:
            table.drop_column(name)
