"""What the API answers about services."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.shape import Answer, names_of, told
from marketplace.domain.work.job_machine import JobState


class ServiceLoad(Answer):
    """What passes to a service, through all processes of this market."""

    busy: int = told("requests that are being answered now, websockets too")
    held: int = told("requests that wait for a replica now")
    requests: int = told("all that came since the market's processes began")
    failed: int = told("those of them that got no answer")


class Replica(Answer):
    """A job of a service."""

    job: str = told("the job's id")
    port: int = told("of its workload, which is asked")
    serving: bool = told("whether it gets new requests")
    busy: int = told("requests that it is answering now")
    state: str = told("of its job", **names_of(JobState))
    provider: str = told("who runs it, by key in hex; empty before it is placed")


class Service(Answer):
    """One address for what several jobs serve."""

    id: str = told("its name in this market")
    name: str = told("the account's own name for it")
    auth: Literal["token", "public"] = told("`token`: its owner's and whom he shares it with")
    sticky: bool = told("a browser stays with the replica that had its first request")
    hold_ms: int = told("so long a request waits where no replica is in rotation, ms")
    created_at_ms: int = told("ms since 1970, UTC")
    url: str = told("its address; empty: this market has no domain for that")
    replicas: list[Replica] = told("its jobs, those out of rotation too")
    load: ServiceLoad = told("what passes to it")


class Services(Answer):
    """An account's services."""

    items: list[Service] = told("by name")


class EndedService(Answer):
    """A service that has no address any more."""

    name: str = told("the service's")
    ended: bool = told("always true")


class DroppedReplica(Answer):
    """A job that is no replica any more."""

    job: str = told("the job's id")
    dropped: bool = told("always true")
