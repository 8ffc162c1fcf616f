"""What examples/clusters/ray_data.yaml runs on its head: Ray Data streams a set that is four times
as large as a member's memory to a consumer on each member, which works for a moment on each block.
A block is made on one member, and goes to another one only where its own has enough of them.
"""

import logging
import os
import time
from typing import Any

import numpy as np
import ray
import ray.data
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

SET_MB, BLOCK_MB = int(os.environ.get("SET_MB", "8192")), 16
WORK_S = float(os.environ.get("WORK_S", "0.6"))  # on a block, as a GPU does that leaves the cores
BLOCKS = SET_MB // BLOCK_MB
MB = 1 << 20


def block(numbers: dict[str, Any]) -> dict[str, Any]:
    """What would be read from a store: one block, its number and the member that made it."""
    (number,) = numbers["id"]
    made = np.full((1, BLOCK_MB * MB), number % 251, dtype=np.uint8)
    return {"bytes": made, "number": [number], "maker": [int(os.environ["TALLY_MEMBER"])]}


@ray.remote(num_cpus=0, resources={"member": 1})
class Consumer:
    """Of one member: works on its part of the set, and tells what it had and how long it waited."""

    def consume(self, part: ray.data.DataIterator) -> dict[str, Any]:
        own = int(os.environ["TALLY_MEMBER"])
        numbers, foreign, waited, began = list[int](), 0, 0.0, time.monotonic()
        blocks = iter(part.iter_batches(batch_size=1, prefetch_batches=2))
        while True:
            asked = time.monotonic()
            batch = next(blocks, None)
            waited += time.monotonic() - asked
            if batch is None:
                break
            number = int(batch["number"][0])
            assert (batch["bytes"] == number % 251).all() and batch["bytes"].size == BLOCK_MB * MB
            numbers.append(number)
            foreign += int(batch["maker"][0]) != own
            time.sleep(WORK_S)
        wall = time.monotonic() - began
        return {"member": own, "numbers": numbers, "foreign": foreign, "waited": waited / wall}


def main() -> None:
    ray.init(logging_level=logging.WARNING, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    made = ray.data.range(BLOCKS, override_num_blocks=BLOCKS).map_batches(block, batch_size=1)
    parts = made.streaming_split(len(nodes), equal=False, locality_hints=nodes)
    began = time.monotonic()
    at = [Consumer.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes]
    done = ray.get([one.consume.remote(part) for one, part in zip(at, parts, strict=True)])
    for one in done:
        print(
            f"member {one['member']}: {len(one['numbers'])} blocks, {one['foreign']} of others', "
            f"waited {one['waited']:.1%} of the time",
            flush=True,
        )
    assert sorted(number for one in done for number in one["numbers"]) == list(range(BLOCKS))
    crossed, took = sum(one["foreign"] for one in done), time.monotonic() - began
    print(
        f"streamed {BLOCKS * BLOCK_MB} MB on {len(done)} members in {took:.0f} s; "
        f"{crossed * BLOCK_MB} MB of it crossed the mesh; "
        f"waited at most {max(one['waited'] for one in done):.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
