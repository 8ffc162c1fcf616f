"""Gangs of before, which were told by looking over their members, have a record, and go back
without.
"""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import command

from marketplace.domain.work.gang import GangState
from marketplace.store.engines import create_engine
from marketplace.store.migrate import config

ROW = """INSERT INTO jobs (id, account, api_key, name, kind, spec, consumer_vkh, channels, state,
created_ms, updated_ms, session_vk, spares, priority, lease, provider, reason, message, needs, retries,
spent_before, avoid, explain, gang, busy, not_before_ms, version) VALUES (:id, :account, '', '', 'job',
'{}', '', '[]', :state, 0, 0, '', '[]', 0, :lease, '', :reason, '', '', 0, 0, :avoid, '{}', :gang, '{}',
0, 0)"""
BEFORE = {
    "": [("RUNNING", "l", "", [])],
    "fresh": [("POSTED", "", "", [])] * 2,
    "runs": [("RUNNING", "l", "", []), ("ENDED", "l", "COMPLETED", [])],
    "declined": [("POSTED", "", "", ["p"]), ("QUOTED", "l", "", [])],
    "all declined": [("POSTED", "", "", ["p"])] * 2,
    "one stopped": [("POSTED", "", "", []), ("ENDED", "", "CANCELLED", [])],
    "over": [("ENDED", "l", "COMPLETED", []), ("ENDED", "l", "FAILED", [])],
}
WHOLE = ("runs", "declined", "all declined", "one stopped")


def test_gangs_of_before_get_a_record(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/market.db")
    with engine.connect() as connection:
        command.upgrade(config(connection), "0007")
        for gang, members in BEFORE.items():
            for at, (state, lease, reason, avoid) in enumerate(members):
                values = {
                    "id": f"{gang}{at}",
                    "account": f"of {gang}",
                    "state": state,
                    "lease": lease,
                }
                values |= {"reason": reason, "avoid": json.dumps(avoid), "gang": gang}
                connection.execute(sa.text(ROW), values)
        command.upgrade(config(connection), "0008")
        rows = connection.execute(sa.text("SELECT id, account, state, reason, version FROM gangs"))
        states = dict.fromkeys(WHOLE, "WHOLE") | {"fresh": "WANTED", "over": "ENDED"}
        assert set(rows) == {(g, f"of {g}", state, "", 0) for g, state in states.items()}
        assert set(states.values()) <= set(GangState.__members__)
        command.downgrade(config(connection), "0007")
        assert "gangs" not in sa.inspect(connection).get_table_names()
    engine.dispose()
