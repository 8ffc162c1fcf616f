"""Make an API key for a program, and print it once:  python examples/api_key.py

It may post and read jobs, spends at most 5 ADA in all, and is dead after a day. Needs a purse,
which signs in; the key itself signs nothing and holds nothing.
"""

import time

import anyio

from marketplace.client import Market, Purse

DAY_MS = 24 * 3_600_000


async def main() -> None:
    async with Market(wallet=Purse.load()) as market:
        wanted = {
            "name": "ci",
            "verbs": ["read", "jobs"],
            "budget": 5_000_000,
            "expires_at_ms": time.time_ns() // 1_000_000 + DAY_MS,
        }
        made = await market.http.post("/v1/keys", wanted)
        print(made["secret"])


if __name__ == "__main__":
    anyio.run(main)
