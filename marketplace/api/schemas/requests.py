"""The bodies that the API takes, each with an example. Unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from marketplace.api.schemas.jobfile import FILE, JobFile
from marketplace.api.schemas.shape import Shape
from marketplace.api.schemas.spec import Spec
from marketplace.domain.errors import Malformed
from marketplace.market.base.story import KINDS

Json = dict[str, Any]
HEX32: Final = "4f" * 32
HEX28: Final = "1c" * 28
SPEC: Final[dict[str, Any]] = {
    "version": 2,
    "name": "hello",
    "kind": "job",
    "image": "sha256:" + "ab" * 32,
    "command": ["python", "-c", "print('hello')"],
    "resources": [{"cpu": {"least": 1000}, "memory": {"least": 512}, "disk": {"least": 0}}],
    "env": {},
    "secrets": [],
    "files": [],
    "ports": [],
    "outputs": [],
    "placement": {
        "regions": [],
        "isolation": "container",
        "min_trust": 0,
        "labels": {},
        "providers": [],
        "not_providers": [],
    },
    "price": {"max_gpu_rate": 0, "max_core_rate": 0, "budget": 10_000_000},
    "policy": {
        "max_duration_ms": 600_000,
        "retry_on": [],
        "retry_max": 0,
        "idle_gpu_below": 0,
        "idle_for_ms": 0,
        "queue": False,
        "priority": 0,
    },
}
Key32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", examples=[HEX32])]
Lovelace = Annotated[int, Field(ge=0, le=2**53, examples=[10_000_000])]
Vkh = Annotated[str, Field(pattern="^([0-9a-f]{56})?$", examples=[HEX28])]
ADDRESS: Final = "addr_test1vz0ng9klp2ql4jhfcyvghz5uj09aa2yu4n8s9mrhcy7w0ugsayf6e"
Address = Annotated[str, Field(min_length=10, max_length=250, examples=[ADDRESS])]
Utxos = Annotated[list[Annotated[str, Field(max_length=20_000)]], Field(max_length=500)]
_CONSUMER: Final = "hash of the account's own payment key, hex; empty: the account itself"
_KEY: Final = "a fresh session key, hex"
_WALLET: Final = "the wallet's address, Bech32 or hex as CIP-30 gives it"
_UTXOS: Final = "the wallet's outputs, hex of their CBOR as CIP-30 gives them; none: the chain's"


class Body(BaseModel):
    """Base of all bodies."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Body):
    """Nothing is said beside the job."""


class JobKeys(Body):
    """The keys by which a job's channel can be named."""

    session_vk: Key32 = Field(description=_KEY)
    consumer_vkh: Vkh = Field(default="", description=_CONSUMER)
    channels: list[Key32] = Field(
        default_factory=list[Key32],
        max_length=100,
        description="session keys of open channels that may be used again, hex",
    )
    spares: list[Key32] = Field(
        default_factory=list[Key32],
        max_length=100,
        description="fresh session keys for retries on another provider, hex",
    )
    hop: str = Field(
        default="",
        pattern="^([0-9a-f]{64})?$",
        examples=[HEX32],
        description="session key of the account's channel to this market's router, hex: a lease may"
        " be paid over it, and its key is then for that lease alone; empty: none",
    )


class GangKeys(Body):
    """A fresh session key for each member of a gang."""

    session_vks: list[Key32] = Field(
        min_length=2, max_length=64, description="one fresh session key for each member, hex"
    )
    consumer_vkh: Vkh = Field(default="", description=_CONSUMER)


class SpecBody(Body):
    """A job by its compact form, as ``JobSpec.to_wire()`` writes it."""

    spec: Annotated[dict[str, Any], Shape(Spec)] = Field(
        examples=[SPEC], description="the form that is hashed and signed for: units resolved"
    )


class JobBody(JobKeys, SpecBody):
    """A job by its compact form, and the keys by which its channel can be named."""


class GangBody(GangKeys, SpecBody):
    """A gang by its compact form, and its members' keys."""


class FileBody(Body):
    """A job by its job file."""

    job: Annotated[dict[str, Any], Shape(JobFile)] = Field(
        examples=[FILE], description="as docs/jobs.md says it"
    )


class JobFileBody(JobKeys, FileBody):
    """A job by its job file, and the keys by which its channel can be named."""


class GangFileBody(GangKeys, FileBody):
    """A gang by its job file, and its members' keys."""


def job_forms(by_file: type[FileBody], by_spec: type[SpecBody], beside: type[Body]) -> Json:
    """OpenAPI's entry for a body that is a job in any of its forms (``http.jobforms``), and for
    what is in the query where the body is the file itself."""
    names = [model.__name__ for model in (by_file, by_spec, JobFile)]
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    content = {
        "application/json": {"schema": {"anyOf": refs}},
        "application/yaml": {"schema": refs[-1]},
    }
    schema = beside.model_json_schema()
    query = [
        {"name": name, "in": "query", "required": False, "schema": about,
         "description": about["description"] + "; where the body is the job file itself"}
        for name, about in schema.get("properties", {}).items()
    ]  # fmt: skip
    return {"requestBody": {"required": True, "content": content}, "parameters": query}


class SignBody(Body):
    """The consumer's signature over the quote's terms."""

    session_signature: str = Field(
        pattern="^[0-9a-f]{128}$",
        examples=["5e" * 64],
        description="of the terms' exact bytes, by the session key, hex",
    )
    channel_tx: str = Field(
        default="",
        pattern="^([0-9a-f]{64})?$",
        examples=["7a" * 32],
        description="the transaction that opens the channel, hex; empty for one that is reused, and"
        " for a route",
    )
    open_tx: str = Field(
        default="",
        max_length=8192,
        pattern="^([0-9a-f]{2})*$",
        description="its signed bytes, hex, for a provider that serves before the first block;"
        " relayed as they are",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="by name, sealed to the provider's key, hex",
    )


class ResumeBody(Body):
    """The fresh session key that a retry needs."""

    session_vk: Key32 = Field(description=_KEY)


class ReasonBody(Body):
    """Why; shown to both sides."""

    reason: str = Field(
        default="",
        max_length=40,
        pattern="^[A-Z_]*$",
        examples=["CANCELLED"],
        description="a reason of an end; empty: CANCELLED",
    )


class LinkBody(Body):
    """How long a link opens a port."""

    lasts_ms: int = Field(
        default=86_400_000,
        ge=60_000,
        le=2_592_000_000,
        examples=[7_200_000],
        description="from now on, ms: 1 minute to 30 days",
    )


class ImageBody(Body):
    """Who may pull an image."""

    public: bool = Field(description="anybody; else the account, and the providers of its leases")


class ServiceBody(Body):
    """How a service is met."""

    auth: Literal["token", "public"] = Field(
        default="token", description="`public`: anybody; else this account, and whom it lets in"
    )
    sticky: bool = Field(
        default=False, description="a browser stays with the replica that had its first request"
    )
    hold_ms: int = Field(
        default=60_000,
        ge=0,
        le=300_000,
        description="so long a request waits where no replica is in rotation, ms",
    )


class ReplicaBody(Body):
    """A job's part in a service."""

    port: int = Field(ge=1, le=65_535, examples=[8000], description="of its workload")
    serving: bool = Field(default=True, description="whether it gets new requests")


class ExecBody(Body):
    """A command to run inside the workload."""

    command: list[Annotated[str, Field(max_length=32_768)]] = Field(
        min_length=1,
        max_length=256,
        examples=[["nvidia-smi"]],
        description="program and arguments",
    )


class ChallengeBody(Body):
    """The address that wants to sign in (bech32, or hex as CIP-30 gives it), and the *market*'s own
    address as the caller dialled it (empty: its public one).
    """

    address: str = Field(
        min_length=10,
        max_length=250,
        examples=[ADDRESS],
        description="that wants to sign in, Bech32 or hex as CIP-30 gives it",
    )
    market: str = Field(
        "",
        max_length=300,
        examples=["https://market.example"],
        description="the market's origin as the caller dialled it; empty: its public one",
    )


class VerifyBody(ChallengeBody):
    """CIP-30 signData's answer over the challenge's message."""

    signature: str = Field(
        max_length=8192,
        pattern="^[0-9a-fA-F]*$",
        examples=["84582a…"],
        description="COSE_Sign1 over the challenge's message, hex",
    )
    key: str = Field(
        default="",
        max_length=2048,
        pattern="^[0-9a-fA-F]*$",
        examples=["a401…"],
        description="COSE_Key, hex; empty where the signature names it",
    )


class KeyBody(Body):
    """A scoped API key."""

    name: str = Field(
        min_length=1, max_length=80, examples=["ci"], description="what its owner calls it"
    )
    verbs: list[str] = Field(
        min_length=1,
        max_length=10,
        examples=[["read", "jobs"]],
        description="what it may do: read, jobs, channels, blobs, webhooks, keys",
    )
    budget: Lovelace = Field(default=0, description="the most its jobs may cost, lovelace")
    month_cap: Lovelace = Field(
        default=0,
        description="the most that what it posts in one calendar month (UTC) may cost, lovelace;"
        " 0: no such cap. A key with one makes no other key",
    )
    expires_at_ms: int = Field(
        ge=0, le=2**53, examples=[1_900_000_000_000], description="ms since 1970, UTC"
    )


class OpenBody(Body):
    """An unsigned open transaction for the lease's channel."""

    lease: str = Field(
        max_length=64,
        examples=["lease_01J0000000000000000000000"],
        description="the id of the quoted lease",
    )
    address: Address = Field(description=_WALLET)
    amount: Lovelace = Field(
        default=0, description="what to put into it, lovelace; 0: the ceiling and the reserve"
    )
    utxos: Utxos = Field(default_factory=list[str], description=_UTXOS)


class HopBody(Body):
    """A channel to the market's router, with the constants that its offer asks for."""

    session_vk: Key32 = Field(description="its session key, hex")
    consumer_vkh: Vkh = Field(default="", description=_CONSUMER)
    tx: Key32 = Field(description="the transaction that opens it, hex")
    index: int = Field(default=0, ge=0, le=65_535, description="of its output there")


class ChannelBody(Body):
    """An unsigned step of a channel."""

    address: Address = Field(description=_WALLET)
    amount: Lovelace = Field(default=0, description="of a top-up: what to add, lovelace")
    utxos: Utxos = Field(default_factory=list[str], description=_UTXOS)


class WitnessBody(Body):
    """The wallet's witness set for a transaction that was built here."""

    tx: Key32 = Field(description="the transaction's id, hex")
    witness: str = Field(
        max_length=65_536,
        pattern="^[0-9a-fA-F]*$",
        examples=["a100…"],
        description="the witness set as CIP-30's `signTx` gives it, hex",
    )


class HookBody(Body):
    """Where to be told of job and balance events."""

    url: str = Field(
        min_length=8,
        max_length=500,
        examples=["https://example.org/tally"],
        description="where deliveries are posted",
    )
    kinds: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list[str],
        max_length=40,
        examples=[["QUOTED", "FINISHED"]],
        description="of events; none: all. One of " + ", ".join(f"`{kind}`" for kind in KINDS),
    )


def unhex(text: str, name: str) -> bytes:
    """Bytes of *text*, or Malformed."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise Malformed(f"{name} is not hex") from error


POSTED: Final[tuple[type[BaseModel], ...]] = (
    FileBody, SpecBody, JobFileBody, JobBody, GangFileBody, GangBody, JobFile,
)  # fmt: skip
"""Bodies that the routes read by themselves: the document has them of this list."""
