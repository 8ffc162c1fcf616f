"""Bring a database to this version's schema; several processes may try at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from marketplace.store.engines import create_engine, normal_url
from marketplace.store.errors import map_database

_FOLDER: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x7A11  # any fixed number: PostgreSQL's advisory lock of this schema


def migrate(url: str) -> None:
    """To the newest revision. StoreFault if the database is unreachable, full, or says no."""
    engine = create_engine(normal_url(url))
    try:
        upgrade(engine)
    except SQLAlchemyError as error:
        raise map_database(error) from error
    finally:
        engine.dispose()


def upgrade(engine: Engine) -> None:
    """Bring the database of an open *engine* to the newest revision, one process at a time."""
    with engine.connect() as connection:
        postgres = engine.dialect.name == "postgresql"
        if postgres:
            connection.execute(sa.select(sa.func.pg_advisory_lock(_LOCK)))
            connection.commit()
        try:
            command.upgrade(config(connection), "head")
            connection.commit()
        finally:
            if postgres:
                connection.rollback()
                connection.execute(sa.select(sa.func.pg_advisory_unlock(_LOCK)))
                connection.commit()


def config(connection: sa.Connection) -> Config:
    """Alembic's configuration without a file."""
    settings = Config()
    settings.set_main_option("script_location", str(_FOLDER))
    settings.attributes["connection"] = connection
    return settings
