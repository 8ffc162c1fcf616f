"""What examples/clusters/ray.yaml runs on its head: Ray Train, one worker a member, teaches a small
network to read the handwritten digits that scikit-learn ships, until it reads ACCURACY of those
that it was not shown.

Each member keeps the newest checkpoint in its own workspace, or in the cluster's store where it has
one. Whenever workers start, the one with the newest of all tells it to the others: a member that
replaces a lost one has none.
"""

import logging
import os
import pathlib
import sys
import time

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from sklearn.datasets import load_digits

EPOCHS, ACCURACY = int(os.environ.get("EPOCHS", "30")), float(os.environ.get("ACCURACY", "0.95"))
PACE_S = float(os.environ.get("PACE_S", "0"))
MEMBERS = int(os.environ.get("TALLY_MEMBERS", "1"))
KEPT = pathlib.Path(os.environ.get("TALLY_STORE", "/workspace"), "checkpoint.pt")
SHOWN, BATCH = 1437, 32  # the rest of the 1797 images is for the test


def train() -> float:
    """One worker's part: its share of each epoch's images. Of the test's, how many are right."""
    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    digits = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    shown, test = order[:SHOWN], order[SHOWN:]
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = prepare_model(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    first = restore(net, optimizer)

    def right() -> float:
        with torch.no_grad():
            return (net(images[test]).argmax(1) == digits[test]).float().mean().item()

    member = os.environ.get("TALLY_MEMBER", "0")
    print(f"member {member} is rank {rank} of {world}, from epoch {first}", flush=True)
    for epoch in range(first, EPOCHS):
        shuffled = torch.randperm(SHOWN, generator=torch.Generator().manual_seed(epoch))
        for at in range(rank * BATCH, SHOWN - world * BATCH, world * BATCH):
            part = shown[shuffled[at : at + BATCH]]
            loss = torch.nn.functional.cross_entropy(model(images[part]), digits[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(PACE_S)
        keep(epoch + 1, net, optimizer)
        reached = right()
        if rank == 0:
            line = f"epoch {epoch + 1} of {EPOCHS}: world {world}, accuracy {reached:.3f}"
            print(line, flush=True)
        ray.train.report({"epoch": epoch + 1, "accuracy": reached})
    return right()


def keep(epoch: int, net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: a member may be lost at any moment."""
    new = KEPT.with_suffix(f".{dist.get_rank()}")
    torch.save((epoch, net.state_dict(), optimizer.state_dict()), new)
    new.replace(KEPT)


def restore(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Everybody goes on where the member with the newest checkpoint was; the epoch of that."""
    own = torch.load(KEPT) if KEPT.exists() else (0, None, None)
    epochs = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(epochs, torch.tensor([own[0]]))
    newest = max(range(len(epochs)), key=lambda at: epochs[at].item())
    told = [own]
    dist.broadcast_object_list(told, src=newest)
    epoch, weights, state = told[0]
    if weights is not None:
        net.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return epoch


def quiet() -> None:
    """Ray Train asks Ray's dashboard how it stands, which is not there, and says so each second."""
    logging.getLogger("ray.train").setLevel(logging.ERROR)


def main() -> None:
    ray.init(logging_level=logging.WARNING, runtime_env={"worker_process_setup_hook": quiet})
    trainer = TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo"),
        # With a member lost it goes on with two, and with three again once another is there.
        scaling_config=ScalingConfig(
            num_workers=(min(2, MEMBERS), MEMBERS),
            resources_per_worker={"CPU": 1, "member": 1},
            elastic_resize_monitor_interval_s=10,
        ),
        run_config=RunConfig(
            name="digits",
            storage_path="/workspace/ray",
            failure_config=FailureConfig(max_failures=5),
        ),
    )
    reached = trainer.fit().return_value
    print(f"trained: accuracy {reached:.3f}, {ACCURACY} was asked for", flush=True)
    sys.exit(reached < ACCURACY)


if __name__ == "__main__":
    main()
