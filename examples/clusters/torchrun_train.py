"""What examples/clusters/torchrun.yaml runs: a small regression, on data that it makes.

Each member keeps its checkpoints in its own workspace. Whenever workers start, those of the member
with the newest one tell it to all: one that replaces a lost member has none.
"""

import datetime
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, PACE_S = int(os.environ.get("STEPS", "200")), float(os.environ.get("PACE_S", "0"))
KEPT = pathlib.Path("checkpoint.pt")
EVERY = 10


def main() -> None:
    # A lost member says nothing: without a timeout of its own the others would wait half an hour.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = restore(model, optimizer)
    member = os.environ.get("TALLY_MEMBER", "0")
    print(f"member {member} is rank {rank} of {world}, from step {first}", flush=True)
    truth, loss = torch.arange(8.0).unsqueeze(1), torch.zeros(())
    for step in range(first, STEPS):
        torch.manual_seed(step * world + rank)  # each its own part of the step's data
        data = torch.randn(64, 8)
        loss = torch.nn.functional.mse_loss(model(data), data @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(PACE_S)
        if (step + 1) % EVERY == 0:
            keep(step + 1, model, optimizer)
            print(f"step {step + 1} of {STEPS}: world {world}, loss {loss.item():.6f}", flush=True)
    print(f"trained: loss {loss.item():.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def keep(step: int, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: a member may be lost at any moment."""
    new = KEPT.with_suffix(".new")
    torch.save((step, model.module.state_dict(), optimizer.state_dict()), new)
    new.replace(KEPT)


def restore(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> int:
    """Everybody goes on where the member with the newest checkpoint was; the step of that."""
    own = torch.load(KEPT) if KEPT.exists() else (0, None, None)
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(steps, torch.tensor([own[0]]))
    newest = max(range(len(steps)), key=lambda at: steps[at].item())
    told = [own]
    dist.broadcast_object_list(told, src=newest)
    step, weights, state = told[0]
    if weights is not None:
        model.module.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return step


if __name__ == "__main__":
    main()
