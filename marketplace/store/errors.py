"""How the store fails. A lost race is a Conflict of the domain; everything else is a StoreFault."""

from __future__ import annotations

from marketplace.domain.errors import Fault


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
