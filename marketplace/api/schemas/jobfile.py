"""The document's words for a job file. What is posted is read by
``marketplace/domain/work/jobfile/parse.py``; docs/jobs.md is its page.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from marketplace.api.schemas.shape import maybe
from marketplace.domain.isolation import Isolation

FILE: Final[dict[str, Any]] = {
    "version": 1,
    "name": "hello",
    "image": "docker.io/library/python@sha256:" + "ab" * 32,
    "command": ["python", "-c", "print('hello')"],
    "resources": {"cpu": 1, "memory": "512MB.."},
    "price": {"budget": "10 ADA"},
    "policy": {"max_duration": "10m"},
}
Amount = Annotated[str | int | float, Field(description="a number, or text with a range or unit")]
Port = Annotated[int, Field(ge=1, le=65535)]


class FilePart(BaseModel):
    """Base of the parts of a job file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class FileGpu(FilePart):
    """GPUs of a resource block. Ranges: `4` exactly, `4..` at least, `..8` at most, `1..2`."""

    model: str | list[str] = maybe("any of these models; none: any", examples=["H100"])
    count: Amount = maybe("how many", examples=["1..2"])
    vram: Amount = maybe("memory of each, as devices are sold", examples=["24GB.."])
    share: int = maybe("per-mille of each device; 1000: whole", examples=[1000])


class FileResources(FilePart):
    """What one acceptable host has free."""

    gpu: str | int | FileGpu = maybe("a model, a count, or both with more", examples=["H100"])
    cpu: Amount = maybe("cores; `0.5` is half a core", examples=["4.."])
    memory: Amount = maybe("`MB`, `GB`, `TB`", examples=["16GB.."])
    disk: Amount = maybe("`MB`, `GB`, `TB`", examples=["50GB"])


class FileInput(FilePart):
    """A file that is there when the job starts."""

    src: str = Field(
        description="`sha256:` and the hash of a blob (PUT /v1/blobs/{sha256}); on the command "
        "line, a path beside the job file",
        examples=["sha256:" + "cd" * 32],
    )
    dst: str = Field(description="its place", examples=["/workspace/train.py"])
    mode: str = maybe("permissions", examples=["0644"])


class FilePort(FilePart):
    """A port of a service, reachable through the market."""

    port: Port = Field(description="as the workload listens", examples=[8888])
    auth: Literal["token", "public"] = maybe("who may call it; `token`: this account")
    direct: bool = maybe("at an address of the provider's own as well, open to anybody")


class FilePlacement(FilePart):
    """Where the job may run."""

    regions: list[str] = maybe("any of these")
    isolation: Isolation = maybe("this or stronger; a `process` as such only")
    min_trust: int = maybe("0 to 100")
    labels: dict[str, str] = maybe("what an offer's labels must say, by name")
    providers: list[str] = maybe("only these, by key in hex")
    not_providers: list[str] = maybe("none of these, by key in hex")


class FilePrice(FilePart):
    """Caps. Amounts: `40 ADA`, `1.5 ADA`, `2000 lovelace`; rates are per second."""

    max_per_gpu_second: str = maybe("at most so dear", examples=["2000 lovelace"])
    max_per_core_second: str = maybe("at most so dear", examples=["0.5 lovelace"])
    max_per_gb_second: str = maybe("of a volume, at most so dear", examples=["0.02 lovelace"])
    budget: str = maybe("a hard cap over all that the job ever costs", examples=["40 ADA"])
    wait_per_second: str = maybe(
        "what a second until it runs is worth: an offer that starts it sooner may cost so much more"
        " over the whole `max_duration`; without it, as much as a second of running",
        examples=["500 lovelace"],
    )


class FileRetry(FilePart):
    """When another provider is tried."""

    on: list[str] = Field(
        description="provider_lost, provider_fault, start_failed, preempted",
        examples=[["provider_lost"]],
    )
    max: int = Field(description="how often, 1 to 10", examples=[2])


IdleStop = dict[Literal["gpu_below", "for"], str | int]


class FilePolicy(FilePart):
    """Limits, and what to do when it fails. Times: `90s`, `15m`, `6h`, `2d`."""

    max_duration: str = maybe("it is ended after so much running", examples=["6h"])
    retry: FileRetry = maybe("none: never")
    idle_stop: IdleStop = maybe(
        "ended when the GPU is used less than `gpu_below` per cent `for` so long",
        examples=[{"gpu_below": 5, "for": "10m"}],
    )
    queue: bool = maybe("wait while nothing fits; else it is refused")
    priority: int = maybe("0 to 100: the market's operator grants what is above 0")


class FileApart(FilePart):
    """Where members are, to each other."""

    spread: bool = maybe("each on a host of its own")
    same_region: bool = maybe("all in one region")


class FileGang(FileApart):
    """Equal members, placed all together or not at all."""

    members: int = Field(description="2 to 64", examples=[3])


class FileStore(FilePart):
    """A folder that a cluster's members share, and that outlives them: the market's own by a name,
    or yours at a url.
    """

    name: str = maybe("the market's own, yours alone by this name", examples=["run-1"])
    url: str = maybe(
        "one of your own, S3 or WebDAV; `secrets` then names STORE_USER and STORE_PASSWORD",
        examples=["s3://bucket/run-1"],
    )
    endpoint: str = maybe("of an S3 that is not Amazon's", examples=["https://s3.example"])


class FileRole(FilePart):
    """Members of a cluster that differ from others. What it does not say is the job's."""

    members: int = maybe("how many; without it, 1", examples=[3])
    resources: FileResources = maybe("what each needs")
    any_of: list[FileResources] = maybe("other acceptable sets, in order of preference")
    command: str | list[str] = maybe("what each runs", examples=[["python", "worker.py"]])
    env: dict[str, str] = maybe("beside the job's, and before it", examples=[{"EPOCHS": "3"}])
    budget: str = maybe(
        "of the job's, for all of its members; without it, an equal part of what others leave",
        examples=["20 ADA"],
    )


class FileCluster(FileApart):
    """Members that work as one: they begin, pause and go on together, and one that is lost is
    replaced. Its policy's `retry` says when; without it, after each end that it can name, 3 times.
    """

    members: int = maybe("2 to 64 equal ones; needed where there are no `roles`", examples=[3])
    roles: dict[str, FileRole] = maybe(
        "in place of `members`: those that differ, by the name of their role; the first role's have"
        " the first numbers",
        examples=[{"head": {"resources": {"cpu": 4}}, "worker": {"members": 3}}],
    )
    min: int = maybe("so many must be up for it to begin; without it, all", examples=[2])
    stall: Literal["pause", "run"] = maybe(
        "when fewer than `min` are left, the others are frozen and unbilled, or run on"
    )
    assemble: str = maybe(
        "how long a member waits unbilled for the first order to run, 1 h at most", examples=["1m"]
    )
    hold: str = maybe(
        "how long one is frozen unbilled, all holds together, 1 h at most", examples=["2m"]
    )
    network: Literal["mesh", "none"] = maybe("a network of the members' own; without it, `mesh`")
    store: FileStore = maybe("a folder that they share")


class FileRelay(FilePart):
    """A Cardano relay: only time in which it answers at the tip of its chain is billed."""

    network: Literal["mainnet", "preprod", "preview"] = Field(description="of the chain")
    port: Port = maybe("where it answers by node-to-node", examples=[3001])
    lag: str = maybe("how old its tip may be", examples=["5m"])


class FileMount(FilePart):
    """A volume, as this job sees it."""

    volume: str = Field(
        description="its lease; on the command line, its name", examples=["lease_01ABC"]
    )
    path: str = Field(description="where", examples=["/data"])
    read_only: bool = maybe("it cannot write there")


class JobFile(FilePart):
    """A job file (docs/jobs.md), as YAML or JSON. What is left out has its default."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [FILE]})

    version: Literal[1] = Field(description="of this format")
    name: str = maybe("for people", examples=["finetune"])
    kind: Literal["job", "service", "volume"] = maybe(
        "a job ends by itself, a service is stopped, a volume is disk alone"
    )
    image: str = maybe(
        "by its digest, or one with the tag `local` that a provider here announces; none where "
        "the isolation is `process`",
        examples=["docker.io/library/python@sha256:" + "ab" * 32],
    )
    command: str | list[str] = maybe(
        "a list, or one line for `sh -c`; none: the image's own", examples=[["python", "train.py"]]
    )
    resources: FileResources = maybe("what it needs; none: 1 core, 512 MB")
    any_of: list[FileResources] = maybe("other acceptable sets, in order of preference")
    files: list[FileInput] = maybe("put there before the start")
    env: dict[str, str] = maybe("environment, by name", examples=[{"EPOCHS": "3"}])
    secrets: list[str] = maybe("names of what is brought, sealed, when the quote is signed")
    ports: list[Port | FilePort] = maybe("reachable through the market", examples=[[8888]])
    egress: str | list[str] = maybe(
        "what it may connect to: `none`, `open`, or a list of `host:port`",
        examples=[["pypi.org:443"]],
    )
    outputs: list[str] = maybe("paths that come back at the end", examples=[["/workspace/out"]])
    placement: FilePlacement = maybe("where it may run")
    price: FilePrice = maybe("caps and budget")
    policy: FilePolicy = maybe("limits, and what to do when it fails")
    relay: FileRelay = maybe("where it is a relay")
    volumes: list[FileMount] = maybe("those that it mounts")
    gang: FileGang = maybe("only for POST /v1/quotes, /v1/explain and /v1/gangs")
    cluster: FileCluster = maybe("instead of `gang`, and where that may be")
