"""Terms: what both sign before a lease. The price in them is the price that is charged."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int, want_list, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.metering.kinds import Resource, want_resource
from marketplace.domain.money.channel import Consts
from marketplace.domain.units import owed, unit_ms

TAG: Final = "tally/terms/v1"
MAX_FEE_BPS: Final = 100  # adapters refuse more: the bounty is a settler's pay, not a tax
ADA: Final = ""
PUBLIC_MAGICS: Final = (764824073, 1, 2)  # mainnet, preprod, preview
CLOSE_FLOOR_MS: Final = 12 * 3_600_000
"""The least close period on a public network: the 2,160 blocks that a rollback may take back, a
night in which nobody is there, and hours in which somebody may try to keep a claim out of blocks.
"""


class TermsRefused(Refusal):
    """Terms that one side did not offer, did not ask for, or did not sign."""

    code = "TERMS_REFUSED"
    remedy = "ask for a new quote and compare it with the offer"


class ClosePeriodShort(Refusal):
    """A close period in which a provider may not get its last claim into a block."""

    code = "CLOSE_PERIOD_SHORT"
    remedy = "set close_period to 12h or more (24h is the default); a devnet takes any"


def close_period_floor(magic: int) -> int:
    """The least close period on that network, in milliseconds; 0 on a devnet."""
    return CLOSE_FLOOR_MS if magic in PUBLIC_MAGICS else 0


def check_close_period(magic: int, close_period_ms: int) -> None:
    """:class:`ClosePeriodShort` below the network's floor."""
    if close_period_ms < close_period_floor(magic):
        raise ClosePeriodShort(
            f"a close period of {close_period_ms} ms is below the {CLOSE_FLOOR_MS} ms of network"
            f" {magic}",
            least_ms=CLOSE_FLOOR_MS,
        )


@dataclass(frozen=True)
class Terms:
    """One lease's agreement, on channel *session_vk*.

    *rate_micro*: micro-lovelace per GPU- or core-second; *units_milli*: devices x per-mille share,
    or milli-cores; *ceiling*: the most lovelace this lease may ever owe; *asset*: "" for ADA, else
    hex of policy and name; *work*: blake2b_256 of the canonical job; *devices*: hash of the
    grant (``grant.Grant.hash``). Keys and hashes as their names say; times in milliseconds.
    """

    magic: int
    lease: str
    job: str
    offer: str
    provider: str
    adapter_vk: bytes
    adapter_vkh: bytes
    payout: bytes
    session_vk: bytes
    consumer_vkh: bytes
    resource: Resource
    rate_micro: int
    units_milli: int
    tick_ms: int
    grace_ms: int
    pause_limit_ms: int
    close_period_ms: int
    fee_bps: int
    ceiling: int
    max_duration_ms: int
    asset: str
    work: bytes
    devices: bytes
    expires_at_ms: int

    def __post_init__(self) -> None:
        rules = (
            (1000 <= self.tick_ms <= 60_000, "a tick lasts 1 to 60 s"),
            (0 <= self.fee_bps <= MAX_FEE_BPS, f"fee_bps is at most {MAX_FEE_BPS}"),
            (self.rate_micro > 0 and self.units_milli > 0, "rate and units are positive"),
            (self.ceiling > 0, "the ceiling is positive"),
            (self.close_period_ms >= 0, "close_period_ms is not negative"),
        )
        for holds, why in rules:
            if not holds:
                raise TermsRefused(why)

    def consts(self) -> Consts:
        """What the channel's datum must say."""
        return Consts(
            session_vk=self.session_vk,
            adapter_vkh=self.adapter_vkh,
            payout=self.payout,
            consumer_vkh=self.consumer_vkh,
            close_period_ms=self.close_period_ms,
            fee_bps=self.fee_bps,
        )

    def tick_owed(self) -> int:
        """Lovelace of one full tick, rounded up: the unit of either side's exposure."""
        return owed(unit_ms(self.tick_ms, self.units_milli), self.rate_micro) + 1

    def encode(self) -> bytes:
        """The canonical bytes that both sign."""
        return canonical.encode([TAG, *self.fields()])

    def fields(self) -> tuple[object, ...]:
        """Their values, in the order in which they are signed."""
        return _values(self)

    @staticmethod
    def decode(data: bytes) -> Terms:
        """The reverse; :class:`Malformed` for anything else."""
        f: dict[str, Any] = dict(
            zip(_FIELDS, canonical.decode_tagged(data, TAG, len(_FIELDS)), strict=True)
        )
        want_resource(f["resource"])
        for name in ("lease", "job", "offer", "provider", "asset"):
            want_text(f[name], name, 200)
        for name, length in _BYTES.items():
            want_bytes(f[name], length, name)
        for name in _INTS:
            want_int(f[name], name)
        return Terms(**f)

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding."""
        return canonical.blake2b_256(self.encode())


_FIELDS: Final = (
    "magic", "lease", "job", "offer", "provider", "adapter_vk", "adapter_vkh", "payout",
    "session_vk", "consumer_vkh", "resource", "rate_micro", "units_milli", "tick_ms", "grace_ms",
    "pause_limit_ms", "close_period_ms", "fee_bps", "ceiling", "max_duration_ms", "asset", "work",
    "devices", "expires_at_ms",
)  # fmt: skip
_values: Final = attrgetter(*_FIELDS)
_BYTES: Final = {
    "adapter_vk": 32, "adapter_vkh": 28, "payout": 28, "session_vk": 32, "consumer_vkh": 28,
    "work": 32, "devices": 32,
}  # fmt: skip
_INTS: Final = (
    "magic", "rate_micro", "units_milli", "tick_ms", "grace_ms", "pause_limit_ms",
    "close_period_ms", "fee_bps", "ceiling", "max_duration_ms", "expires_at_ms",
)  # fmt: skip


@dataclass(frozen=True)
class SignedTerms:
    """The bytes, the adapter's signature, and the consumer's (None until it agreed)."""

    body: bytes
    adapter_signature: bytes
    session_signature: bytes | None = None

    @property
    def terms(self) -> Terms:
        """The decoded agreement."""
        return Terms.decode(self.body)

    def verify_adapter(self) -> Terms:
        """The terms, if the adapter that they name signed them."""
        terms = self.terms
        if not verifies(terms.adapter_vk, self.body, self.adapter_signature):
            raise TermsRefused("the adapter did not sign these terms")
        return terms

    def verify(self) -> Terms:
        """The terms, if both signed them."""
        terms = self.verify_adapter()
        if self.session_signature is None or not verifies(
            terms.session_vk, self.body, self.session_signature
        ):
            raise TermsRefused("the session key did not sign these terms")
        return terms

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.body, self.adapter_signature, self.session_signature or b""]

    @staticmethod
    def from_wire(value: object) -> SignedTerms:
        """The reverse; does not check signatures."""
        a, b, c = want_list(value, 3, "terms")
        signature = want_bytes(c, None, "session_signature")
        if len(signature) not in (0, 64):
            raise Malformed("session_signature is not 64 bytes")
        return SignedTerms(
            want_bytes(a, None, "body"), want_bytes(b, 64, "adapter_signature"), signature or None
        )
