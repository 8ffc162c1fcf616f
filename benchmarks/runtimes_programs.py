"""What ``tally bench runtimes`` runs, wherever it runs: programs for a Python that has PyTorch.

They are text, since nothing of the product needs PyTorch. Each prints words and whole numbers.
"""

from __future__ import annotations

from typing import Final

WARM: Final = 5
"""Steps that count for nothing: what is made once is made then."""
PARAMETERS: Final = 2 * (512 * 512 + 512)

_MODEL: Final = """\
import os, sys, time
print("began", time.time_ns(), flush=True)
import torch
print("imported", time.time_ns(), flush=True)
torch.set_num_threads(1)
torch.manual_seed(1)
one = lambda: torch.nn.Linear(512, 512)
model = torch.nn.Sequential(one(), torch.nn.ReLU(), one())
data = torch.randn(64, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step(model):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
"""
ALONE: Final = (
    _MODEL
    + """\
warm, steps = map(int, sys.argv[1:])
for at in range(warm + steps):
    start = time.perf_counter_ns()
    step(model)
    if at >= warm:
        print("step", time.perf_counter_ns() - start)
"""
)
"""``WARM STEPS``: the time of each step, in ns, on one core."""
TOGETHER: Final = (
    _MODEL
    + """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
own, members, warm, steps, blocks = map(int, sys.argv[1:])
where = os.environ["GLOO_SOCKET_IFNAME"]
meet = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
dist.init_process_group("gloo", init_method=meet, rank=own, world_size=members)
shared = DistributedDataParallel(model)
def sent():
    rows = (line.split(":") for line in open("/proc/net/dev") if ":" in line)
    return next(int(told.split()[8]) for name, told in rows if name.strip() == where)
def average():
    for part in model.parameters():
        dist.all_reduce(part.data)
        part.data /= members
def every_step():
    for _ in range(steps):
        step(shared)
def at_the_end():
    for _ in range(steps):
        step(model)
    average()
ways = [("ddp", every_step), ("local", at_the_end)]
for _ in range(warm):
    step(shared)
for block in range(blocks):
    for name, way in ways if block % 2 == 0 else ways[::-1]:
        dist.barrier()
        before, start = sent(), time.perf_counter_ns()
        way()
        dist.barrier()
        print(name, (time.perf_counter_ns() - start) // steps, (sent() - before) // steps)
dist.destroy_process_group()
"""
)
"""``OWN MEMBERS WARM STEPS BLOCKS``: of each block of steps with gradients averaged at every one
(``ddp``), and with parameters averaged after the last (``local``), ns and bytes sent a step.
"""


def numbers(said: str, word: str) -> list[tuple[int, ...]]:
    """What a program printed behind *word*, a row for each time."""
    rows = (line.split() for line in said.splitlines())
    return [tuple(map(int, row[1:])) for row in rows if row[:1] == [word]]
