"""Run a job file and print its output and its bill:  python examples/run_job.py examples/hello.yaml

Needs a funded purse (`tally purse fund`) and TALLY_PASSPHRASE_FILE, TALLY_MARKET, TALLY_CHAIN_URL.
"""

import sys

import anyio

from marketplace.client import Market, Purse
from marketplace.domain.units import show_ada


async def main(path: str) -> int:
    async with Market(wallet=Purse.load(), keep="0") as market:  # its channel ends with the job
        job = await market.run(path)
        async for line in job.logs():
            print(line)
        await job.wait()
        await job.settled()
        bill = await job.invoice(verify=True)
        print(f"{job.reason}: {show_ada(bill.owed)}, reconciled: {bill.reconciled}")
        return 0 if job.completed else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1]))
