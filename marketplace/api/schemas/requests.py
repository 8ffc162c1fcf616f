"""The bodies that the API takes, each with an example. Unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from marketplace.domain.errors import Malformed

HEX32: Final = "4f" * 32
HEX28: Final = "1c" * 28
SPEC: Final[dict[str, Any]] = {
    "name": "hello",
    "kind": "job",
    "image": "sha256:" + "ab" * 32,
    "command": ["python", "-c", "print('hello')"],
    "resources": [[[1000, 2**53], [512, 2**53], [0, 2**53], None]],
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
    "price": [0, 0, 10_000_000],
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


class Body(BaseModel):
    """Base of all bodies."""

    model_config = ConfigDict(extra="forbid")


class SpecBody(Body):
    """A job, as ``JobSpec.to_wire()`` writes it."""

    spec: dict[str, Any] = Field(
        examples=[SPEC],
        description='as a job file says it; `gang` and `egress` (`"open"`, or a list of `host:port`)'
        " only where they are asked for",
    )


class JobBody(SpecBody):
    """A job and the keys by which its channel can be named."""

    session_vk: Key32
    consumer_vkh: str = Field(pattern="^[0-9a-f]{56}$", examples=[HEX28])
    channels: list[Key32] = Field(default_factory=list[Key32], max_length=100)
    spares: list[Key32] = Field(
        default_factory=list[Key32],
        max_length=100,
        description="fresh session keys for retries on another provider",
    )


class GangBody(SpecBody):
    """A job with a gang, and a fresh session key for each member."""

    session_vks: list[Key32] = Field(min_length=2, max_length=64)
    consumer_vkh: str = Field(pattern="^[0-9a-f]{56}$", examples=[HEX28])


class SignBody(Body):
    """The consumer's signature over the quote's terms."""

    session_signature: str = Field(pattern="^[0-9a-f]{128}$", examples=["5e" * 64])
    channel_tx: str = Field(default="", pattern="^([0-9a-f]{64})?$", examples=["7a" * 32])
    secrets: dict[str, str] = Field(default_factory=dict[str, str])


class ResumeBody(Body):
    """The fresh session key that a retry needs."""

    session_vk: Key32


class ReasonBody(Body):
    """Why; shown to both sides."""

    reason: str = Field(default="", max_length=40, pattern="^[A-Z_]*$", examples=["CANCELLED"])


class ExecBody(Body):
    """A command to run inside the workload."""

    command: list[Annotated[str, Field(max_length=32_768)]] = Field(
        min_length=1, max_length=256, examples=[["nvidia-smi"]]
    )


class ChallengeBody(Body):
    """The address that wants to sign in (bech32, or hex as CIP-30 gives it), and the *market*'s own
    address as the caller dialled it (empty: its public one).
    """

    address: str = Field(
        min_length=10,
        max_length=250,
        examples=["addr_test1vz0ng9klp2ql4jhfcyvghz5uj09aa2yu4n8s9mrhcy7w0ugsayf6e"],
    )
    market: str = Field("", max_length=300, examples=["https://market.example"])


class VerifyBody(ChallengeBody):
    """CIP-30 signData's answer over the challenge's message."""

    signature: str = Field(max_length=8192, pattern="^[0-9a-fA-F]*$", examples=["84582a…"])
    key: str = Field(default="", max_length=2048, pattern="^[0-9a-fA-F]*$", examples=["a401…"])


class KeyBody(Body):
    """A scoped API key."""

    name: str = Field(min_length=1, max_length=80, examples=["ci"])
    verbs: list[str] = Field(min_length=1, max_length=10, examples=[["read", "jobs"]])
    budget: Lovelace = 0
    expires_at_ms: int = Field(ge=0, le=2**53, examples=[1_900_000_000_000])


class OpenBody(Body):
    """An unsigned open transaction for the lease's channel."""

    lease: str = Field(max_length=64, examples=["lease_01J0000000000000000000000"])
    address: str = Field(min_length=10, max_length=250)
    amount: Lovelace = Field(default=0, description="0: the ceiling and the reserve")
    utxos: list[Annotated[str, Field(max_length=20_000)]] = Field(
        default_factory=list[str], max_length=500
    )


class ChannelBody(Body):
    """An unsigned step of a channel."""

    address: str = Field(min_length=10, max_length=250)
    amount: Lovelace = 0
    utxos: list[Annotated[str, Field(max_length=20_000)]] = Field(
        default_factory=list[str], max_length=500
    )


class WitnessBody(Body):
    """The wallet's witness set for a transaction that was built here."""

    tx: Key32
    witness: str = Field(max_length=65_536, pattern="^[0-9a-fA-F]*$", examples=["a100…"])


class HookBody(Body):
    """Where to be told of job and balance events."""

    url: str = Field(min_length=8, max_length=500, examples=["https://example.org/tally"])
    kinds: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list[str], max_length=40, examples=[["QUOTED", "FINISHED"]]
    )


def unhex(text: str, name: str) -> bytes:
    """Bytes of *text*, or Malformed."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise Malformed(f"{name} is not hex") from error
