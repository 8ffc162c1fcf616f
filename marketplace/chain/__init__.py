"""The only Cardano: pycardano and blockfrost-python end here.

Anyone with a Blockfrost URL and a key can use this package: market, adapter, payer, watchtower and
the command line alike. Nothing below knows which chain it is on, and nothing but `market_ledger.py`
(which implements the market's port) imports the market. Money is int lovelace, time int
milliseconds; slots stay inside.

Reading (every call is async, in a thread, with a deadline; raises
:class:`~marketplace.chain.errors.ChainFault` when the world fails)::

    from marketplace.chain.node.blockfrost import connect
    chain = await connect(url, project_id)   # ChainReader
    chain.magic, chain.mainnet
    await chain.tip()                        # Tip(slot, time_ms, height, hash)
    await chain.utxos(address)               # list[Utxo]
    await chain.output(ref)                  # Output(utxo, spent_by) | None
    await chain.transaction(tx_id)           # Included(height, slot) | None: in no block
    await chain.snapshot(scripts)            # Snapshot: frozen input of every builder
    await chain.evaluate(tx_bytes)           # Units per redeemer; ScriptRefused
    await chain.submit(tx_bytes)             # transaction id; TxRefused(conflict)

A channel, from the chain alone. A finder remembers the last known output of each; *origin* is a
channel's open output; ``ChannelUnfit`` says why a channel does not carry its terms::

    from marketplace.chain.channels.finder import ChannelFinder, check_channel
    finder = ChannelFinder(chain, scripts_for(asset))
    view = await finder.find(session_vk, origin)   # ChannelView | ChannelEnded
    check_channel(terms, view, snapshot)           # Capacity(most, now, reserve)

Doing, with keys as arguments. A :class:`~marketplace.chain.actions.session.Desk` is a chain, a
wallet (whose money pays), an asset and a transaction log; each action reads, builds, evaluates,
signs, logs the id and submits, and is safe to repeat. A claim needs nobody's key but that of the
fee's payer; of a top-up and a close the desk's wallet is the consumer's::

    from marketplace.chain.actions.session import (
        Desk, open_channels, top_up, claim, close_channel, finish_channels, deploy, pay)
    from marketplace.chain.build.plans import Opening
    from marketplace.chain.build.wallet import Wallet
    desk = Desk(chain, Wallet(Signer(seed), mainnet, stake_key_hash))
    opening = Opening(amount, consts=lambda first_input, index: Consts(...), stake=stake)
    opened = await open_channels(desk, [opening])             # Opened(sent, refs)
    pairs, payouts = [(view, voucher)], {payout_hash: payout_address}
    await claim(desk, pairs, payouts)
    await finish_channels(desk, pairs, payouts, adapter=Signer(seed))
    await top_up(desk, view, amount)
    await close_channel(desk, view)

A transaction that was sent, until it is final (BUILT, SUBMITTED, SEEN, FINAL; or ROLLED_BACK or
EXPIRED)::

    from marketplace.chain.node.follow import Follower
    from marketplace.chain.node.submit import TransactionLog, MemoryLog, FileLog, TxRecord
    await Follower(chain, log).wait(tx_id, blocks=1)

Beside these: ``encoding.address`` (``from_text``, ``to_text``, ``payout_hash``,
``channel_address``); ``transaction.scripts.scripts_for`` ("" is ADA, else the hex of policy and
name); ``encoding.txbytes.insert_witnesses`` (a CIP-30 wallet's signatures into the same bytes);
``actions.explain.explain`` (every step and output of somebody's transaction, before it is signed).

Building without IO (`build/plans.py`): every builder takes a Snapshot and returns a Draft;
``draft.bytes`` is what to evaluate, ``draft.finish(units)`` the Unsigned transaction,
``unsigned.sign(keys)`` the Signed.
"""

import os

# pycardano picks its CBOR library when it is imported; the C one is byte-identical and saves about
# a second a transaction. This package is always imported before pycardano, so this is the one
# place.
os.environ.setdefault("CBOR_C_EXTENSION", "1")
