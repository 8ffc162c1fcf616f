"""The same without async, asking before it pays:  python examples/run_job_sync.py
examples/hello.yaml
"""

import sys

from marketplace.client import CheckedQuote, Purse
from marketplace.client.sdk.sync import Market
from marketplace.domain.units import show_ada


def affordable(checked: CheckedQuote) -> bool:
    """Agree to whatever costs at most 5 ADA."""
    print(f"at most {show_ada(checked.quote.terms.ceiling)} at {checked.quote.device}")
    return checked.quote.terms.ceiling <= 5_000_000


def main(path: str) -> int:
    with Market(wallet=Purse.load()) as market:
        job = market.run(path, confirm=affordable)
        for line in job.logs():
            print(line)
        job.wait()
        print(f"{job.reason}: {show_ada(job.spent)}")
        return 0 if job.completed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
