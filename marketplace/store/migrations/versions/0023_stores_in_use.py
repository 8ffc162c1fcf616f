"""Which leases use a store is found by the word's kind"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward: nothing of what is kept changes."""
    op.create_index("cluster_words_by_word", "cluster_words", ["word", "at_ms"])


def downgrade() -> None:
    """Back."""
    op.drop_index("cluster_words_by_word", "cluster_words")
