"""A process that opens channels from a purse, one for each line that it reads: see
``test_two_at_once``.

``python -m tests.integration.support.opener HOME CHAIN_URL [die]``; with *die* it kills itself once
the log has its transaction and the chain does not.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import TallyError
from tests.integration.support.client import PASSPHRASE
from tests.unit.support.adapter import core_job, offer, terms_for

AMOUNT = 3_000_000


async def main(home: Path, url: str, die: bool) -> None:
    purse = Purse.load(home, passphrase=PASSPHRASE)
    chain = await connect(url)
    till = Till(purse, chain)
    if die:
        _mortal(chain)
    print("ready", flush=True)
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        terms = terms_for(
            offer(), core_job(), session=purse.new_session(), consumer_vkh=purse.signer.key_hash
        )
        try:
            print(await till.open(terms, AMOUNT), flush=True)
        except TallyError as error:
            print(f"failed {error!r}", flush=True)


def _mortal(chain: ChainReader) -> None:
    async def submit(tx: bytes, *, strictly: bool = False) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(f"sent {tx.hex()}")

    chain.submit = submit


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], "die" in sys.argv[3:])
