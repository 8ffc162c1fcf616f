"""The document's words for a job as it is posted, shown and signed for. What is posted is read by
``JobSpec.from_wire`` in ``marketplace/domain/work/job.py``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from marketplace.api.schemas.shape import Answer, maybe, told
from marketplace.domain.isolation import Isolation


class Range(Answer):
    """From a least to a most, both included."""

    least: int = told("at least so much")
    most: int = maybe("at most so much; left out where there is no upper end")


class Gpus(Answer):
    """Devices that are asked for."""

    models: list[str] = told("any of these; none: any model")
    count: Range = told("how many devices")
    vram: Range = told("memory of each, MiB")
    share: int = told("of each device, in thousandths")


class Resources(Answer):
    """One acceptable set."""

    cpu: Range = told("thousandths of a core")
    memory: Range = told("MiB")
    disk: Range = told("MiB")
    gpu: Gpus = maybe("only where devices are asked for")


class FileIn(Answer):
    """A file that is put into the workload; its bytes are a blob."""

    dst: str = told("path in the workload")
    sha256: str = told("of the bytes, hex")
    size: int = told("bytes")
    mode: int = told("permissions, as in chmod(2)")


class Port(Answer):
    """A port that is reachable at `/p/{job}/{port}/`."""

    port: int = told("1 to 65535")
    auth: str = told("`token` or `public`")
    direct: bool = maybe("true: at an address of its provider's own as well; else left out")


class Price(Answer):
    """The most that is paid."""

    max_gpu_rate: int = told("micro-lovelace per GPU-second; 0: no cap")
    max_core_rate: int = told("micro-lovelace per core-second; 0: no cap")
    max_disk_rate: int = maybe("micro-lovelace per GB-second of a volume; without it: no cap")
    wait_rate: int = maybe(
        "what a second until it runs is worth, micro-lovelace; without it, a second of running"
    )
    budget: int = told("the whole job, lovelace")


class Members(Answer):
    """Members that are placed all together or not at all."""

    members: int = told("2 to 64")
    spread: bool = told("each on a host of its own")
    same_region: bool = told("all in one region")


class Placement(Answer):
    """Where a job may run."""

    regions: list[str] = told("any of these; none: anywhere")
    isolation: Isolation = told("this or stronger; a `process` as such only")
    min_trust: int = told("0 to 100")
    labels: dict[str, str] = told("what an offer's labels must say, by name")
    providers: list[str] = told("only these, by key in hex; none: any")
    not_providers: list[str] = told("none of these, by key in hex")


class Relay(Answer):
    """A Cardano relay: only time at its chain's tip is billed."""

    network: str = told("`mainnet`, `preprod` or `preview`")
    port: int = told("where it answers by node-to-node: one of the job's ports")
    lag_ms: int = told("how old its tip may be, ms")


class Mount(Answer):
    """A volume that a job mounts."""

    volume: str = told("its lease")
    path: str = told("where the workload sees it")
    read_only: bool = told("the workload cannot write there")


class Policy(Answer):
    """Limits of a job, and what to do when it fails."""

    max_duration_ms: int = told("it is ended after so much running, ms")
    retry_on: list[str] = told("reasons of an end after which it is placed again")
    retry_max: int = told("how often, 0 to 100")
    idle_gpu_below: int = told("idle is GPU use below this, per cent; 0: never")
    idle_for_ms: int = told("it is ended after so much idling, ms")
    queue: bool = told("wait while nothing fits; else it is refused")
    priority: int = told("0 to 100: the market's operator grants what is above 0")


class SharedStore(Answer):
    """A folder that a cluster's members share, and that outlives them."""

    name: str = maybe("the market's own, of this account by this name")
    url: str = maybe("else the consumer's own")
    endpoint: str = maybe("of an S3 that is not Amazon's")


class ClusterTerms(Answer):
    """What makes a cluster of a gang."""

    least: int = told("so many members must be up for it to begin")
    stall: Literal["pause", "run"] = told("what becomes of those that are left when fewer are")
    assemble_ms: int = told("how long a member is up unbilled before its first order to run, ms")
    hold_ms: int = told("how long it is frozen unbilled, all holds together, ms")
    mesh: bool = told("the members have a network of their own")
    store: SharedStore = maybe("only where they share a folder that outlives them")


class Role(Answer):
    """Members of a cluster that differ from others. A job that is posted has each in full; the job
    of a member has a hash of it, and its own role in its own fields.
    """

    name: str = told("`TALLY_ROLE`, and a name of its first member's host")
    members: int = told("how many; those of the first role have the first numbers")
    work: str = maybe("of a member's job: the hash of what follows, hex")
    resources: list[Resources] = maybe("acceptable sets, in order of preference")
    command: list[str] = maybe("program and arguments; none: the image's own")
    env: dict[str, str] = maybe("environment, by name")
    budget: int = maybe("of each of its members, lovelace")


class Spec(Answer):
    """A job, as `JobSpec.to_wire()` writes it."""

    version: Literal[2] = told("of this form")
    name: str = told("what its consumer calls it")
    kind: Literal["job", "service", "volume"] = told(
        "a job ends by itself, a service is stopped, a volume is disk alone"
    )
    image: str = told("its digest; empty where the isolation is a process's")
    command: list[str] = told("program and arguments; none: the image's own")
    resources: list[Resources] = told("acceptable sets, in order of preference")
    env: dict[str, str] = told("environment, by name")
    secrets: list[str] = told("names of what is brought, sealed, when the quote is signed")
    files: list[FileIn] = told("put there before the start; their bytes are blobs")
    ports: list[Port] = told("reachable through the market")
    outputs: list[str] = told("paths that are given back at the end")
    placement: Placement = told("where it may run")
    price: Price = told("caps and budget")
    policy: Policy = told("limits, and what to do when it fails")
    gang: Members = maybe("only where there is one")
    cluster: ClusterTerms = maybe("only where the gang works as one")
    roles: list[Role] = maybe("only where members of a cluster differ")
    egress: Literal["open"] | list[str] = maybe(
        "only where asked for: where it may connect out to, anywhere or a list of `host:port`"
    )
    relay: Relay = maybe("only where it is a relay")
    volumes: list[Mount] = maybe("only where it mounts some")


Places = Annotated[tuple[int, int], Field(description="least and most; 2^53: no upper end")]


class SpecV1(Answer):
    """A job in the form of before version 2: lists of fixed length in place of names. It is still
    taken, and kept as it was posted, since terms name its hash.
    """

    name: str = told("what its consumer calls it")
    kind: Literal["job", "service"] = told("a job ends by itself, a service is stopped")
    image: str = told("its digest; empty where the isolation is a process's")
    command: list[str] = told("program and arguments; none: the image's own")
    resources: list[tuple[Places, Places, Places, tuple[list[str], Places, Places, int] | None]] = (
        told("cpu, memory, disk, gpu: models, count, vram, share")
    )
    env: dict[str, str] = told("environment, by name")
    secrets: list[str] = told("names of what is brought, sealed, when the quote is signed")
    files: list[tuple[str, str, int, int]] = told("dst, sha256, size, mode")
    ports: list[tuple[int, str]] = told("port, auth")
    outputs: list[str] = told("paths that are given back at the end")
    placement: Placement = told("where it may run")
    price: tuple[int, int, int] = told("max_gpu_rate, max_core_rate, budget")
    policy: Policy = told("limits, and what to do when it fails")
    gang: tuple[int, bool, bool] = maybe("members, spread, same_region")
    egress: Literal["open"] | list[str] = maybe(
        "only where asked for: `open`, or a list of `host:port`"
    )
