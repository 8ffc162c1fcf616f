"""A payment whose transaction id sorts before another's, as anybody makes one who wants it so."""

from __future__ import annotations

from dataclasses import replace

from marketplace.chain.actions.session import Desk
from marketplace.chain.build import plans
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.outputs import Out

_TRIES = 50_000


async def pay_before(desk: Desk, out: Out, place: OutRef) -> Utxo:
    """*out*, paid for by *desk*, at a reference that comes before *place*; a few lovelace more.

    A transaction's id is a hash of what it says: bodies that differ by a lovelace are made until
    one comes first, and only that one is sent. However early *place* is, it costs one payment.
    """
    snapshot, funds, _ = await desk.look()
    for more in range(_TRIES):
        one = plans.pay(snapshot, funds, [replace(out, lovelace=out.lovelace + more)]).finish()
        if one.tx_id < place.tx_id:
            made = (await desk.send(one, "before")).made
            return next(u for u in made if u.address == out.address and u.datum is not None)
    raise AssertionError(f"of {_TRIES} transactions none came before {place}")
