"""How the store fails. A lost race is a Conflict of the domain; everything else is a StoreFault."""

from __future__ import annotations

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from marketplace.domain.errors import Conflict, Fault, Malformed, TallyError


class StoreFault(Fault):
    """The database did not answer, or answered with an error of its own."""

    code = "STORE_FAULT"
    remedy = "see whether the database runs, has room and accepts this market's user"


class StoreFull(StoreFault):
    """The database has no room for what was to be written; nothing of it counts, and reads go
    on.
    """

    code = "DISK_FULL"
    remedy = (
        "the operator frees or adds space where the database lies; what was not acknowledged is"
        " said again by those who said it"
    )


def map_database(error: SQLAlchemyError) -> TallyError:
    """The one door through which the library's errors leave."""
    if isinstance(error, IntegrityError):
        return Conflict("the record exists")
    if isinstance(error, DataError):
        return Malformed("a value that no record can have")
    kind = type(error.orig).__name__ if isinstance(error, DBAPIError) else type(error).__name__
    fault = StoreFull if _is_full(error) else StoreFault
    return fault(f"database: {kind}: {str(error).splitlines()[0][:200]}")


def _is_full(error: SQLAlchemyError) -> bool:
    """By the database's own code: SQLITE_FULL, or PostgreSQL's class 53 ``disk_full``."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    told = (getattr(orig, "sqlite_errorname", None), getattr(orig, "sqlstate", None))
    return told[0] == "SQLITE_FULL" or told[1] == "53100"
