"""A frozen chain for tests of pure building: mainnet's parameters, no network, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256

from contracts import blueprint
from marketplace.chain.build.wallet import Funds, Wallet
from marketplace.chain.channels.capacity import Funding
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.snapshot import Deployment, Params, Snapshot, Tip, Units
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Closing, Consts, Open, Stage

ADA = 1_000_000
PARAMS = Params(
    fee_per_byte=44,
    fee_fixed=155_381,
    max_tx_size=16_384,
    max_units=Units(16_500_000, 10_000_000_000),
    price_mem=Fraction("0.0577"),
    price_step=Fraction("0.0000721"),
    per_utxo_byte=4_310,
    collateral_percent=150,
    key_deposit=2_000_000,
    ref_byte=Fraction(15),
    costs_v3=(1, 2, 3),
)
NOW_MS = 1_800_000_000_000
STAKE = Credential(b"\x5a" * 28)


def key(name: str) -> Signer:
    return Signer(sha256(name.encode()).digest())


def ref(number: int, index: int = 0) -> OutRef:
    return OutRef(sha256(number.to_bytes(4, "big")).digest(), index)


def snapshot(rewards: int | None = 0, deployed: bool = True) -> Snapshot:
    return Snapshot(
        magic=42,
        mainnet=False,
        params=PARAMS,
        tip=Tip(150_000_000, NOW_MS, 9_000_000, "ab" * 32),
        scripts=blueprint.ada(),
        deployment=Deployment(ref(9001), ref(9001, 1)) if deployed else None,
        rewards=rewards,
    )


WALLET = Wallet(key("wallet"), False, b"\x77" * 28)


def money(*lovelaces: int, start: int = 5000) -> tuple[Utxo, ...]:
    return tuple(Utxo(ref(start + i), WALLET.address, n) for i, n in enumerate(lovelaces))


def funds(*lovelaces: int) -> Funds:
    return Funds.of(WALLET.address, money(*lovelaces))


def consts(name: str, provider: str = "p", fee_bps: int = 0) -> Consts:
    return Consts(
        key(f"session {name}").verify_key,
        key(f"adapter {provider}").key_hash,
        addresses.payout_hash(payout_address(provider)),
        WALLET.signer.key_hash,
        86_400_000,
        fee_bps,
    )


def payout_address(provider: str) -> bytes:
    return addresses.key_address(key(f"payout {provider}").key_hash, None, False)


def view(
    name: str,
    at: OutRef,
    amount: int,
    *,
    claimed: int = 0,
    provider: str = "p",
    expire_at_ms: int | None = None,
    fee_bps: int = 0,
    fundings: Sequence[Funding] | None = None,
) -> ChannelView:
    """A channel that holds *amount* now, Closing if *expire_at_ms* is given."""
    const = consts(name, provider, fee_bps)
    stage: Stage = Open(const, claimed)
    if expire_at_ms is not None:
        stage = Closing(const, claimed, expire_at_ms)
    address = addresses.channel_address(blueprint.ada().stub_hash, STAKE, False)
    utxo = Utxo(at, address, amount, datum=datum.stage_bytes(stage))
    whole = tuple(fundings or (Funding(amount + claimed, 99),))
    return ChannelView(const.session_vk, utxo, stage, utxo, whole, 9_000_000)
