"""What examples/clusters/hivemind.yaml runs: a small regression that all members train together."""

import os
import time

import hivemind
import torch

EPOCHS = int(os.environ.get("EPOCHS", "20"))
PACE_S = float(os.environ.get("PACE_S", "0.2"))
MEMBER, MEMBERS = int(os.environ["TALLY_MEMBER"]), int(os.environ["TALLY_MEMBERS"])


def main() -> None:
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    dht = hivemind.DHT(
        initial_peers=os.environ["HIVEMIND_PEERS"].split(),
        host_maddrs=[f"/ip4/{os.environ['TALLY_MESH_ADDRESS']}/tcp/0"],
        start=True,
    )
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="tally",
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        batch_size_per_step=32,
        target_batch_size=32 * 8 * MEMBERS,
        use_local_updates=False,
        matchmaking_time=3.0,
        averaging_timeout=10.0,
    )
    optimizer.load_state_from_peers()
    print(f"member {MEMBER} begins at epoch {optimizer.local_epoch}", flush=True)
    torch.manual_seed(1000 + MEMBER)
    truth, seen = torch.arange(8.0).unsqueeze(1), optimizer.local_epoch
    loss = torch.zeros(())
    while optimizer.local_epoch < EPOCHS:
        data = torch.randn(32, 8)
        loss = torch.nn.functional.mse_loss(model(data), data @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(PACE_S)
        if optimizer.local_epoch != seen:
            seen = optimizer.local_epoch
            peers = optimizer.tracker.global_progress.num_peers
            print(f"epoch {seen} of {EPOCHS}: {peers} peers, loss {loss.item():.6f}", flush=True)
    print(f"trained: loss {loss.item():.6f}", flush=True)
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
