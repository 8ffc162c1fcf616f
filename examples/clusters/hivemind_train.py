"""What examples/clusters/hivemind.yaml runs: a small regression that all members train together,
until its loss on examples that none of them trains on is at the target.
"""

import os
import time

import hivemind
import torch

TARGET = float(os.environ.get("TARGET", "0.02"))
EPOCHS = int(os.environ.get("EPOCHS", "100"))  # no longer than this, whatever the loss is
PACE_S = float(os.environ.get("PACE_S", "0.2"))
MEMBER, MEMBERS = int(os.environ["TALLY_MEMBER"]), int(os.environ["TALLY_MEMBERS"])
BATCH = 32


def truth(data: torch.Tensor) -> torch.Tensor:
    return torch.sin(data @ torch.linspace(-0.5, 0.5, 8).unsqueeze(1))


def main() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    unseen = torch.randn(512, 8)
    dht = hivemind.DHT(
        initial_peers=os.environ["HIVEMIND_PEERS"].split(),
        host_maddrs=[f"/ip4/{os.environ['TALLY_MESH_ADDRESS']}/tcp/0"],
        start=True,
    )
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="tally",
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        batch_size_per_step=BATCH,
        target_batch_size=BATCH * 8 * MEMBERS,
        use_local_updates=False,
        matchmaking_time=2.0,
        averaging_timeout=10.0,
    )
    optimizer.load_state_from_peers()
    seen, steps, loss = optimizer.local_epoch, 0, float("inf")
    print(f"member {MEMBER} begins at epoch {seen}", flush=True)
    torch.manual_seed(time.time_ns())  # whoever replaces a member trains on other examples
    while loss > TARGET and seen < EPOCHS:
        data = torch.randn(BATCH, 8)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), truth(data)).backward()
        optimizer.step()
        steps += 1
        time.sleep(PACE_S)
        if optimizer.local_epoch != seen:
            seen = optimizer.local_epoch
            peers = optimizer.tracker.global_progress.num_peers
            with torch.no_grad():
                loss = torch.nn.functional.mse_loss(model(unseen), truth(unseen)).item()
            print(f"epoch {seen}: {peers} peers, {steps} steps here, loss {loss:.4f}", flush=True)
    print(f"trained: loss {loss:.4f} at epoch {seen}, target {TARGET}", flush=True)
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
