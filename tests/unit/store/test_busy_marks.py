"""Marks that lay among the providers to avoid are read as what they are, and go back as they
were.
"""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import command

from marketplace.store.engines import create_engine
from marketplace.store.migrate import config

ROW = """INSERT INTO jobs (id, account, api_key, name, kind, spec, consumer_vkh, channels, state,
created_ms, updated_ms, session_vk, spares, priority, lease, provider, reason, message, needs, retries,
spent_before, avoid, explain, gang, version) VALUES (:id, '', '', '', 'job', '{}', '', '[]', 'QUEUED',
0, 0, '', '[]', 0, '', '', '', '', '', 0, 0, :avoid, '{}', '', 0)"""
BEFORE = {"a": ["p1", "busy:p2", "busy:p2", "busy:p3"], "b": [], "c": ["busyness"]}


def test_marks_become_counts_and_back(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/market.db")
    with engine.connect() as connection:
        command.upgrade(config(connection), "0006")
        for job, avoid in BEFORE.items():
            connection.execute(sa.text(ROW), {"id": job, "avoid": json.dumps(avoid)})
        command.upgrade(config(connection), "0007")
        read = "SELECT id, avoid, busy, not_before_ms FROM jobs ORDER BY id"
        rows = [
            (i, json.loads(a), json.loads(b), t) for i, a, b, t in connection.execute(sa.text(read))
        ]
        assert rows == [
            ("a", ["p1"], {"p2": 2, "p3": 1}, 0),
            ("b", [], {}, 0),
            ("c", ["busyness"], {}, 0),
        ]
        command.downgrade(config(connection), "0006")
        read = "SELECT id, avoid FROM jobs"
        assert {i: json.loads(a) for i, a in connection.execute(sa.text(read))} == BEFORE
    engine.dispose()
