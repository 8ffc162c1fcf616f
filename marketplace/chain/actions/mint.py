"""A token of one's own, for trying the stable-token instance where no stable token is: a native
script policy of the wallet's key, minted by pycardano's own builder.
"""

from __future__ import annotations

from typing import Final

from pycardano import (
    Address,
    Asset,
    AssetName,
    MultiAsset,
    PaymentSigningKey,
    ScriptPubkey,
    Transaction,
    TransactionBody,
    TransactionOutput,
    TransactionWitnessSet,
    Value,
    VerificationKeyHash,
    VerificationKeyWitness,
)

from marketplace.chain.actions.session import Desk
from marketplace.chain.build import plans
from marketplace.chain.node.submit import MemoryLog, send_bytes
from marketplace.chain.transaction.outputs import Out, input_of, least
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.canonical import blake2b_256

_ROOM: Final = 400  # bytes that minting adds to a plain payment: script, signature, the bundle


async def mint_token(desk: Desk, name: bytes, quantity: int, to: bytes) -> bytes:
    """Mint *quantity* of *name* under the desk's key and pay it to *to*; policy and name."""
    snapshot, funds, _ = await desk.look()
    policy = ScriptPubkey(VerificationKeyHash(desk.wallet.signer.key_hash))
    unit = bytes(policy.hash()) + name
    out = Out(to, 0, ((unit, quantity),))
    out = Out(to, least(snapshot, out), ((unit, quantity),))
    funding = funds.take(out.lovelace + 3_000_000)
    size = sum(o.size for o in (out, Out(funds.change, 2**40))) + 40 * len(funding) + _ROOM
    fee = snapshot.params.fee(size, Units(0, 0), 0)
    change = sum(u.lovelace for u in funding) - out.lovelace - fee
    bundle = MultiAsset({policy.hash(): Asset({AssetName(name): quantity})})
    body = TransactionBody(
        inputs=[input_of(u.ref) for u in funding],
        outputs=[
            out.to_pycardano(),
            TransactionOutput(Address.from_primitive(funds.change), Value(change)),
        ],
        fee=fee,
        ttl=snapshot.slot_at(snapshot.tip.time_ms + plans.TTL_MS),
        mint=bundle,
    )
    key = PaymentSigningKey(desk.wallet.signer.seed)
    signature = desk.wallet.signer.sign(blake2b_256(body.to_cbor()))
    witness = VerificationKeyWitness(key.to_verification_key(), signature)
    whole = Transaction(body, TransactionWitnessSet([witness], [policy]))
    await send_bytes(desk.chain, desk.log or MemoryLog(), whole.to_cbor(), "mint")
    return unit
