"""Run by Alembic: on the connection that ``migrate`` passes, never on one of its own."""

from __future__ import annotations

from alembic import context

from marketplace.store import tables  # the tables register themselves when imported

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.SQLModel.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
