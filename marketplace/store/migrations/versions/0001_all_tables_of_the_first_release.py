"""All tables of the first release

Over 400 lines: one schema, made in one step.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("verbs", sa.JSON(), nullable=False),
        sa.Column("budget", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("committed", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index("ix_api_keys_account", "api_keys", ["account"], unique=False)

    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_actor", "audit", ["actor"], unique=False)
    op.create_index("ix_audit_subject", "audit", ["subject"], unique=False)

    op.create_table(
        "blobs",
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "sha256"),
    )
    op.create_table(
        "channels",
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("payout_address", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("open_tx", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("end_cumulative", sa.BigInteger(), nullable=False),
        sa.Column("end_signature", sa.LargeBinary(), nullable=False),
        sa.Column("settled_tx", sa.String(), nullable=False),
        sa.Column("claimed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("session_vk"),
    )
    op.create_index("ix_channels_account", "channels", ["account"], unique=False)
    op.create_index("ix_channels_provider", "channels", ["provider"], unique=False)
    op.create_index("ix_channels_state", "channels", ["state"], unique=False)

    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("hook", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("next_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_deliveries_hook", "deliveries", ["hook"], unique=False)
    op.create_index("ix_deliveries_next_ms", "deliveries", ["next_ms"], unique=False)

    op.create_table(
        "events",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("events_by_job", "events", ["job", "id"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("api_key", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("consumer_vkh", sa.LargeBinary(), nullable=False),
        sa.Column("channels", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("spares", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("needs", sa.String(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("spent_before", sa.BigInteger(), nullable=False),
        sa.Column("avoid", sa.JSON(), nullable=False),
        sa.Column("explain", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_jobs_api_key", "jobs", ["api_key"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state"], unique=False)
    op.create_index("jobs_by_account", "jobs", ["account", "id"], unique=False)

    op.create_table(
        "leases",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("offer", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("rate_micro", sa.BigInteger(), nullable=False),
        sa.Column("ceiling", sa.BigInteger(), nullable=False),
        sa.Column("units_milli", sa.BigInteger(), nullable=False),
        sa.Column("resource", sa.String(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.Column("share", sa.Integer(), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("disk_mib", sa.BigInteger(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("adapter_signature", sa.LargeBinary(), nullable=False),
        sa.Column("session_signature", sa.LargeBinary(), nullable=False),
        sa.Column("channel_tx", sa.String(), nullable=False),
        sa.Column("secrets", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=False),
        sa.Column("stop_asked", sa.String(), nullable=False),
        sa.Column("settled_tx", sa.String(), nullable=False),
        sa.Column("owed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_leases_account", "leases", ["account"], unique=False)
    op.create_index("ix_leases_job", "leases", ["job"], unique=False)
    op.create_index("ix_leases_provider", "leases", ["provider"], unique=False)
    op.create_index("ix_leases_session_vk", "leases", ["session_vk"], unique=False)
    op.create_index("ix_leases_state", "leases", ["state"], unique=False)

    op.create_table(
        "locks",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "logins",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_logins_expires_ms", "logins", ["expires_ms"], unique=False)

    op.create_table(
        "logs",
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("lease", "offset"),
    )
    op.create_index("ix_logs_job", "logs", ["job"], unique=False)

    op.create_table(
        "offers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("away_ms", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("provider"),
    )
    op.create_index("ix_offers_state", "offers", ["state"], unique=False)

    op.create_table(
        "outbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("outbox_by_target", "outbox", ["target", "id"], unique=False)

    op.create_table(
        "outputs",
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", "path"),
    )
    op.create_index("ix_outputs_sha256", "outputs", ["sha256"], unique=False)

    op.create_table(
        "processes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("beat_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "receipts",
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("unit_ms", sa.BigInteger(), nullable=False),
        sa.Column("lease_owed", sa.BigInteger(), nullable=False),
        sa.Column("channel_owed", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_vk", "seq"),
    )
    op.create_index("receipts_by_lease", "receipts", ["lease", "tick"], unique=True)

    op.create_table(
        "remembered",
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "key"),
    )
    op.create_index("ix_remembered_at_ms", "remembered", ["at_ms"], unique=False)

    op.create_table(
        "settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "transactions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("fee", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_transactions_account", "transactions", ["account"], unique=False)
    op.create_index("ix_transactions_lease", "transactions", ["lease"], unique=False)
    op.create_index("ix_transactions_session_vk", "transactions", ["session_vk"], unique=False)
    op.create_index("ix_transactions_state", "transactions", ["state"], unique=False)

    op.create_table(
        "vouchers",
        sa.Column("session_vk", sa.LargeBinary(), nullable=False),
        sa.Column("cumulative", sa.BigInteger(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("lease", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_vk"),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhooks_account", "webhooks", ["account"], unique=False)


def downgrade() -> None:
    """Back."""
    op.drop_index("ix_webhooks_account", table_name="webhooks")

    op.drop_table("webhooks")
    op.drop_table("vouchers")
    op.drop_index("ix_transactions_state", table_name="transactions")
    op.drop_index("ix_transactions_session_vk", table_name="transactions")
    op.drop_index("ix_transactions_lease", table_name="transactions")
    op.drop_index("ix_transactions_account", table_name="transactions")

    op.drop_table("transactions")
    op.drop_table("settings")
    op.drop_index("ix_remembered_at_ms", table_name="remembered")

    op.drop_table("remembered")
    op.drop_index("receipts_by_lease", table_name="receipts")

    op.drop_table("receipts")
    op.drop_table("processes")
    op.drop_index("ix_outputs_sha256", table_name="outputs")

    op.drop_table("outputs")
    op.drop_index("outbox_by_target", table_name="outbox")

    op.drop_table("outbox")
    op.drop_index("ix_offers_state", table_name="offers")

    op.drop_table("offers")
    op.drop_index("ix_logs_job", table_name="logs")

    op.drop_table("logs")
    op.drop_index("ix_logins_expires_ms", table_name="logins")

    op.drop_table("logins")
    op.drop_table("locks")
    op.drop_index("ix_leases_state", table_name="leases")
    op.drop_index("ix_leases_session_vk", table_name="leases")
    op.drop_index("ix_leases_provider", table_name="leases")
    op.drop_index("ix_leases_job", table_name="leases")
    op.drop_index("ix_leases_account", table_name="leases")

    op.drop_table("leases")
    op.drop_index("jobs_by_account", table_name="jobs")
    op.drop_index("ix_jobs_state", table_name="jobs")
    op.drop_index("ix_jobs_api_key", table_name="jobs")

    op.drop_table("jobs")
    op.drop_index("events_by_job", table_name="events")

    op.drop_table("events")
    op.drop_index("ix_deliveries_next_ms", table_name="deliveries")
    op.drop_index("ix_deliveries_hook", table_name="deliveries")

    op.drop_table("deliveries")
    op.drop_index("ix_channels_state", table_name="channels")
    op.drop_index("ix_channels_provider", table_name="channels")
    op.drop_index("ix_channels_account", table_name="channels")

    op.drop_table("channels")
    op.drop_table("blobs")
    op.drop_index("ix_audit_subject", table_name="audit")
    op.drop_index("ix_audit_actor", table_name="audit")

    op.drop_table("audit")
    op.drop_index("ix_api_keys_account", table_name="api_keys")

    op.drop_table("api_keys")
    op.drop_table("accounts")
