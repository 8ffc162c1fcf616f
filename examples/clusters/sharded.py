"""What examples/clusters/sharded.yaml runs: a small transformer, of which each member holds a part.

Parameters, gradients and Adam's moments take 16 bytes a parameter. SHARD says how they are divided:
``tensor`` cuts every matrix, so that activations cross the network; ``fsdp`` cuts what each member
holds, so that parameters and gradients do. By itself, without torchrun, it trains the whole.
"""

import datetime
import os
import resource
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

SHARD, STEPS = os.environ.get("SHARD", "tensor"), int(os.environ.get("STEPS", "10"))
LAYERS, WIDTH = int(os.environ.get("LAYERS", "10")), int(os.environ.get("WIDTH", "576"))
HEADS, WORDS = 6, 64
ROWS, LENGTH = 6, 16  # of a step, over all members: both HEADS and ROWS can be cut in 2, 3 or 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.mix = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        # As many heads as there are columns here: a member may have a part of them.
        q, k, v = (
            part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(y.transpose(1, 2).flatten(2))
        return x + self.narrow(gelu(self.wide(self.between(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.guess = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.words(x) + self.places.weight
        for block in self.blocks:
            y = block(y)
        return self.guess(self.last(y))


def main() -> None:
    alone = "RANK" not in os.environ
    if not alone:
        # A lost member says nothing: without a timeout the others would wait half an hour.
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, world = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    with torch.device(
        "meta"
    ):  # nobody ever holds the whole: what it is filled with comes part by part
        model = Model()
    if not alone:
        divide(model, init_device_mesh("cpu", (world,)))
    fill(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    whole = sum(one.numel() for one in model.parameters())
    own = sum(
        (one.to_local() if isinstance(one, DTensor) else one).numel() for one in model.parameters()
    )
    print(f"rank {rank} of {world} holds {own} of {whole} parameters", flush=True)
    rows = slice(rank, None, world) if SHARD == "fsdp" else slice(None)
    for step in range(1, STEPS + 1):
        began = time.monotonic()
        text = data(step)[rows]
        guess = model(text[:, :-1])
        loss = cross_entropy(guess.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if not alone:
            dist.all_reduce(mean)
        if rank == 0:
            took = time.monotonic() - began
            print(f"step {step}: loss {mean.item() / world:.6f}, {took:.2f} s", flush=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"trained: rank {rank} took {most} MB at most", flush=True)
    if not alone:
        dist.barrier()
        dist.destroy_process_group()


def divide(model: Model, mesh: DeviceMesh) -> None:
    if SHARD == "tensor":
        columns = dict.fromkeys(("query", "key", "value", "wide"), ColwiseParallel())
        for block in model.blocks:
            parallelize_module(
                block, mesh, columns | dict.fromkeys(("mix", "narrow"), RowwiseParallel())
            )
    else:
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)


def fill(model: Model) -> None:
    """The same numbers, however it is divided: one parameter after the other is made, and of that
    the own part is kept.
    """
    model.to_empty(device="cpu")
    for at, (name, one) in enumerate(model.named_parameters()):
        made = torch.Generator().manual_seed(at)
        whole = torch.zeros(one.shape) if name.endswith("bias") else torch.ones(one.shape)
        if one.dim() == 2:
            nn.init.normal_(whole, std=0.02, generator=made)
        with torch.no_grad():
            if isinstance(one, DTensor):
                own = distribute_tensor(whole, one.device_mesh, one.placements, src_data_rank=None)
                one.copy_(own)
            else:
                one.copy_(whole)


def data(step: int) -> torch.Tensor:
    """Rows in which each word says the next one, so that there is something to learn."""
    text = [torch.randint(WORDS, (ROWS, 1), generator=torch.Generator().manual_seed(step))]
    for _ in range(LENGTH):
        text.append((text[-1] * 5 + 3) % WORDS)
    return torch.cat(text, 1)


if __name__ == "__main__":
    main()
