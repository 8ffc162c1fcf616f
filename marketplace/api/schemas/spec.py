"""A job as its file says it, all ranges and units resolved: what is posted, shown and signed for.

Its lists of fixed length keep the order in which the job is hashed (``JobSpec.to_wire``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from marketplace.api.schemas.shape import Answer, maybe, told
from marketplace.domain.isolation import Isolation

Range = Annotated[
    tuple[int, int], Field(description="least and most, both included; 2^53: no upper end")
]
Gpus = Annotated[
    tuple[list[str], Range, Range, int],
    Field(
        description="models (none: any), how many devices, memory of each in MiB, and the share of"
        " each in thousandths"
    ),
]
Block = Annotated[
    tuple[Range, Range, Range, Gpus | None],
    Field(description="CPU in thousandths of a core, memory in MiB, disk in MiB, and GPUs if any"),
]
FileIn = Annotated[
    tuple[str, str, int, int],
    Field(description="path in the workload, sha256 of the bytes in hex, size in bytes, mode"),
]
Port = Annotated[tuple[int, str], Field(description="port, and `token` or `public`")]


class Placement(Answer):
    """Where a job may run."""

    regions: list[str] = told("any of these; none: anywhere")
    isolation: Isolation = told("this or stronger; a `process` as such only")
    min_trust: int = told("0 to 100")
    labels: dict[str, str] = told("what an offer's labels must say, by name")
    providers: list[str] = told("only these, by key in hex; none: any")
    not_providers: list[str] = told("none of these, by key in hex")


class Policy(Answer):
    """Limits of a job, and what to do when it fails."""

    max_duration_ms: int = told("it is ended after so much running, ms")
    retry_on: list[str] = told("reasons of an end after which it is placed again")
    retry_max: int = told("how often, 0 to 100")
    idle_gpu_below: int = told("idle is GPU use below this, per cent; 0: never")
    idle_for_ms: int = told("it is ended after so much idling, ms")
    queue: bool = told("wait while nothing fits; else it is refused")
    priority: int = told("0 to 100: the market's operator grants what is above 0")


class Spec(Answer):
    """A job, as `JobSpec.to_wire()` writes it."""

    name: str = told("what its consumer calls it")
    kind: Literal["job", "service"] = told("a job ends by itself, a service is stopped")
    image: str = told("its digest; empty where the isolation is a process's")
    command: list[str] = told("program and arguments; none: the image's own")
    resources: list[Block] = told("acceptable sets, in order of preference")
    env: dict[str, str] = told("environment, by name")
    secrets: list[str] = told("names of what is brought, sealed, when the quote is signed")
    files: list[FileIn] = told("put there before the start; their bytes are blobs")
    ports: list[Port] = told("reachable at `/p/{job}/{port}/`")
    outputs: list[str] = told("paths that are given back at the end")
    placement: Placement = told("where it may run")
    price: tuple[int, int, int] = told(
        "caps: micro-lovelace per GPU-second and per core-second (0: none), and the whole budget"
        " in lovelace"
    )
    policy: Policy = told("limits, and what to do when it fails")
    gang: tuple[int, bool, bool] = maybe(
        "only where there is one: members, each on a host of its own, all in one region"
    )
    egress: Literal["open"] | list[str] = maybe(
        "only where asked for: where it may connect out to, anywhere or a list of `host:port`"
    )
