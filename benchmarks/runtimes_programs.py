"""What ``tally bench runtimes`` runs, wherever it runs: programs for a Python that has PyTorch
and Hivemind.

They are text, since nothing of the product needs PyTorch. Each prints words and whole numbers.
"""

from __future__ import annotations

from typing import Final

WARM: Final = 5
"""Steps that count for nothing: what is made once is made then."""
WAYS: Final = ("ddp", "local", "hivemind")
"""How members train together."""
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
import hivemind
import torch.distributed as dist
from hivemind.averaging import DecentralizedAverager
from torch.nn.parallel import DistributedDataParallel
own, members, warm, steps, blocks = map(int, sys.argv[1:])
where, first = os.environ["GLOO_SOCKET_IFNAME"], os.environ["MASTER_ADDR"]
store = dist.TCPStore(first, int(os.environ["MASTER_PORT"]), members, own == 0)
at = f"/ip4/{os.environ.get('TALLY_MESH_ADDRESS', first)}/tcp/0"
known = store.get("peers").decode().split() if own else []
dht = hivemind.DHT(initial_peers=known, host_maddrs=[at], start=True)
if own == 0:
    store.set("peers", " ".join(map(str, dht.get_visible_maddrs())))
averager = DecentralizedAverager(
    [part.detach().clone() for part in model.parameters()], dht, prefix="bench",
    target_group_size=members, min_group_size=members, start=True,
)
dist.init_process_group("gloo", store=store, rank=own, world_size=members)
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
def by_hivemind():
    for _ in range(steps):
        step(model)
    with averager.get_tensors() as held, torch.no_grad():
        for mine, part in zip(held, model.parameters(), strict=True):
            mine.copy_(part)
    assert len(averager.step(timeout=60)) == members
    with averager.get_tensors() as held, torch.no_grad():
        for mine, part in zip(held, model.parameters(), strict=True):
            part.copy_(mine)
ways = [("ddp", every_step), ("local", at_the_end), ("hivemind", by_hivemind)]
for _ in range(warm):
    step(shared)
by_hivemind()
for block in range(blocks):
    for name, way in ways if block % 2 == 0 else ways[::-1]:
        dist.barrier()
        before, start = sent(), time.perf_counter_ns()
        way()
        dist.barrier()
        print(name, (time.perf_counter_ns() - start) // steps, (sent() - before) // steps)
dist.destroy_process_group()
averager.shutdown()
dht.shutdown()
"""
)
"""``OWN MEMBERS WARM STEPS BLOCKS``: of each block of steps with gradients averaged at every one
(``ddp``), and with parameters averaged after the last, at once (``local``) and by Hivemind, whose
peers find each other first (``hivemind``): ns and bytes sent a step.
"""


def numbers(said: str, word: str) -> list[tuple[int, ...]]:
    """What a program printed behind *word*, a row for each time."""
    rows = (line.split() for line in said.splitlines())
    return [tuple(map(int, row[1:])) for row in rows if row[:1] == [word]]
