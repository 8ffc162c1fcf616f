"""API keys: the most that they may commit in a calendar month"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COLUMNS = {"month_cap": sa.BigInteger, "month": sa.Integer, "month_committed": sa.BigInteger}
_KEYS = sa.table("api_keys", *(sa.column(name, kind) for name, kind in _COLUMNS.items()))


def upgrade() -> None:
    """Forward: the keys that there are have no such cap."""
    with op.batch_alter_table("api_keys") as table:
        for name, kind in _COLUMNS.items():
            table.add_column(sa.Column(name, kind()))
    op.execute(sa.update(_KEYS).values(**dict.fromkeys(_COLUMNS, 0)))
    with op.batch_alter_table("api_keys") as table:
        for name in _COLUMNS:
            table.alter_column(name, nullable=False)


def downgrade() -> None:
    """Back: their budgets bound them still."""
    with op.batch_alter_table("api_keys") as table:
        for name in reversed(_COLUMNS):
            table.drop_column(name)
