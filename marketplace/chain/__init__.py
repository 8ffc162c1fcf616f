"""The only Cardano: pycardano and blockfrost-python end here.

Anyone with a Blockfrost URL and a key can use this package: market, adapter, payer, watchtower
and the command line alike. Nothing below knows which chain it is on, and nothing imports the
market's service, store or api. Money is int lovelace, time int milliseconds; slots stay inside.

Reading (every call is async, in a thread, with a deadline; raises
:class:`~marketplace.chain.errors.ChainFault` when the world fails)::

    from marketplace.chain.connect import connect            # await connect(url, project_id) -> ChainReader
    chain.magic, chain.mainnet
    await chain.tip()                                        # Tip(slot, time_ms, height, hash)
    await chain.utxos(address)                               # list[Utxo]
    await chain.output(ref)                                  # Output(utxo, spent_by, height) | None
    await chain.transaction(tx_id)                           # Included(height, slot) | None
    await chain.snapshot(scripts)                            # Snapshot: frozen input of every builder
    await chain.evaluate(tx_bytes)                           # Units per redeemer; ScriptRefused
    await chain.submit(tx_bytes)                             # transaction id; TxRefused(conflict)

A channel, from the chain alone::

    from marketplace.chain.channels import ChannelFinder, check_channel
    finder = ChannelFinder(chain, scripts)                   # remembers the last known output of each
    view = await finder.find(session_vk, origin)             # ChannelView | ChannelEnded; origin: its open output
    check_channel(terms, view)                               # -> Capacity; ChannelRefused says which fact differs

Doing, with keys as arguments (:class:`~marketplace.chain.wallet.Wallet`, from a 32-byte seed)::

    from marketplace.chain.actions import (                  # each: build from a snapshot, evaluate, sign,
        open_channels, top_up, claim, close_channel,         # log the id, submit; -> Sent(tx_id, fee, ...)
        finish_channels, deploy, send)
    from marketplace.chain.follow import Follower            # BUILT -> SUBMITTED -> SEEN -> FINAL | ROLLED_BACK | EXPIRED
    from marketplace.chain.settler import Settler            # the settlement loop
    from marketplace.chain.watchtower import watch           # keyless rescue, from vouchers alone
    from marketplace.chain.foreign import (                  # CIP-30: unsigned open/top-up/close, and the
        unsigned_open, unsigned_top_up, unsigned_close, insert_witnesses)   # wallet's witnesses into the same bytes

Building without IO (`txs.py`): every builder takes a Snapshot and returns a Draft; ``draft.bytes``
is what to evaluate, ``draft.finish(units)`` the Unsigned transaction, ``unsigned.sign(keys)`` the Signed.
"""

import os

# pycardano picks its CBOR library when it is imported; the C one is byte-identical and saves about
# a second a transaction. This package is always imported before pycardano, so this is the one place.
os.environ.setdefault("CBOR_C_EXTENSION", "1")
