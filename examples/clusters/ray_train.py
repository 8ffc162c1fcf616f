"""What examples/clusters/ray.yaml runs on its head: a small regression whose gradients the members
compute, each on data of its own. A part whose member was lost is computed by another one.
"""

import os
import time

import numpy as np
import ray

ROUNDS = int(os.environ.get("ROUNDS", "30"))
PACE_S = float(os.environ.get("PACE_S", "0"))
PARTS = 6
TRUTH = np.arange(8.0)


@ray.remote(num_cpus=0.5, max_retries=-1, scheduling_strategy="SPREAD")
def gradient(weights: np.ndarray, seed: int) -> tuple[str, np.ndarray, float]:
    """Of one part of a round, and on which node."""
    data = np.random.default_rng(seed).normal(size=(256, 8))
    wrong = data @ (weights - TRUTH)
    time.sleep(PACE_S)
    node = ray.get_runtime_context().get_node_id()[:8]
    return node, 2 * data.T @ wrong / len(data), float(np.mean(wrong**2))


def main() -> None:
    ray.init(log_to_driver=False)
    weights, loss = np.zeros(8), 0.0
    for at in range(ROUNDS):
        parts = [gradient.remote(weights, at * PARTS + part) for part in range(PARTS)]
        done = ray.get(parts)
        weights -= 0.1 * np.mean([grad for _, grad, _ in done], axis=0)
        loss = max(part for _, _, part in done)
        nodes = sorted({node for node, _, _ in done})
        print(f"round {at + 1} of {ROUNDS}: loss {loss:.6f} on {len(nodes)} {nodes}", flush=True)
    print(f"trained: loss {loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
