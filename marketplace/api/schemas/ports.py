"""What the API answers about the ports of a job."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.shape import Answer, told


class JobPort(Answer):
    """A port of a job's workload, at an address of its own."""

    port: int = told("as the workload listens")
    auth: Literal["token", "public"] = told("`token`: its owner's and whom he shares it with")
    url: str = told(
        "for browsers; empty: this market has no domain for that, and it is at `/p/{job}/{port}/`"
    )


class Ticket(Answer):
    """What opens a port's own address in one browser, once."""

    url: str = told("to be loaded within a minute; whoever loads it is in")
    expires_at_ms: int = told("ms since 1970, UTC")


class PortLink(Answer):
    """A link that opens a port to whoever has it, without its secret."""

    id: str = told("its name in this market")
    port: int = told("of the job")
    created_at_ms: int = told("ms since 1970, UTC")
    expires_at_ms: int = told("when it opens nothing any more, ms since 1970, UTC")


class NewLink(PortLink):
    """A link that was just made."""

    url: str | None = told("the link, shown this once; null in a repetition")


class PortLinks(Answer):
    """The links that open a port."""

    items: list[PortLink] = told("oldest first; without those that are over")


class KnownOrigin(Answer):
    """A name that a port of a job has."""

    known: bool = told("always true: another name is 404")


class EndedLink(Answer):
    """A link that opens nothing any more."""

    id: str = told("the link's")
    ended: bool = told("always true")
