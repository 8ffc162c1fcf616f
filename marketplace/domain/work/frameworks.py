"""How a cluster's members run one command by a framework for work on several hosts.

What starts the framework is part of the job's own command, equal for all members: it is written
when the job file is read, so that both sides sign what is run, and nothing of it is an adapter's to
know. Each member acts by its number (``TALLY_MEMBER``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from marketplace.domain.work.mesh_net import MEETING_PORT, host_name

_RAY_PORT: Final = 6379
DASHBOARD: Final = 8265
"""Ray's page and its jobs, where the port is among the job's own."""
_RAY_PAGE: Final = f"--include-dashboard=true --dashboard-host=0.0.0.0 --dashboard-port={DASHBOARD}"


class Framework(StrEnum):
    """What starts the job's command on the members of a cluster."""

    NONE = "none"  # nothing: each member runs the command by itself
    TORCHRUN = "torchrun"  # each runs it as a worker; all begin anew when one is lost or joins
    RAY = "ray"  # member 0 is the head and runs it; the others work for it, and end with it
    HIVEMIND = "hivemind"  # each runs it, and finds in HIVEMIND_PEERS how the others are met


def launched(
    framework: Framework, command: Sequence[str], least: int, members: int,
    ports: Sequence[int] = (),
) -> tuple[str, ...]:  # fmt: skip
    """What each of so many *members* runs, so that the *framework* runs *command* once *least* of
    them are there. *ports*: the job's own; Ray's page and jobs are served where they are asked for.
    """
    if framework is Framework.NONE:
        return tuple(command)
    script = _SCRIPTS[framework]
    for name, value in (
        ("least", least), ("members", members), ("first", host_name(0)),
        ("port", _RAY_PORT if framework is Framework.RAY else MEETING_PORT),
        ("page", _RAY_PAGE if DASHBOARD in ports else "--include-dashboard=false"),
    ):  # fmt: skip
        script = script.replace(f"@{name}@", str(value))
    if framework is Framework.HIVEMIND:
        return ("python3", "-c", script, *command)
    return ("sh", "-c", script, framework.value, *command)


_TORCHRUN: Final = """\
# With member 0 is lost what they meet by: all begin anew with the one that takes its place.
# A store that is shared between rounds (torch 2.13) has in later ones no address for who is new.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
host=0; [ "$TALLY_MEMBER" = 0 ] && host=1
tries=0
until torchrun --nnodes=@least@:@members@ --max-restarts=10 --rdzv-backend=c10d --rdzv-id=tally \\
  --rdzv-endpoint=@first@:@port@ --rdzv-conf=is_host=$host,last_call_timeout=5 \\
  --local-addr="$TALLY_MESH_ADDRESS" --no-python "$@"
do
  tries=$((tries + 1)); [ $tries -lt 5 ] || exit 1
  sleep 2
done
"""
_RAY: Final = """\
over=/workspace/.ray-over
tries=0
# Ray takes a part of the host's memory, not of the member's, for what is shared; and as one file.
: ${RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES:=268435456}
# On a busy host its agents take longer than the half minute that it gives them. A node that is not
# heard is lost after some 25 s.
: ${RAY_agent_register_timeout_ms:=120000} ${RAY_health_check_timeout_ms:=5000}
: ${RAY_health_check_failure_threshold:=3}
# What does not fit into that goes to the disk: /tmp, Ray's own place, is memory of the member's.
: ${RAY_object_spilling_directory:=/workspace/.ray-spilled}
export RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES RAY_agent_register_timeout_ms
export RAY_health_check_timeout_ms RAY_health_check_failure_threshold RAY_object_spilling_directory
# What takes one "member" has a member of its own, however many cores Ray sees there.
node="--node-ip-address=$TALLY_MESH_ADDRESS --disable-usage-stats --resources={\\"member\\":1}"
if [ "$TALLY_MEMBER" = 0 ]; then
  # Ray gives itself half a minute, which is short on a busy host.
  until ray start --head --port=@port@ @page@ $node; do
    tries=$((tries + 1)); [ $tries -lt 5 ] || exit 1
    ray stop --force
  done
  export RAY_ADDRESS="$TALLY_MESH_ADDRESS:@port@"
  python3 -c 'import ray, time
ray.init(log_to_driver=False)
while sum(one["Alive"] for one in ray.nodes()) < @least@: time.sleep(0.5)' || exit 1
  "$@" || exit
  # The others end as it does, not when they miss it, a minute later.
  timeout 30 python3 -c 'import pathlib, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(log_to_driver=False)
end = ray.remote(num_cpus=0)(lambda: pathlib.Path("'$over'").touch())
nodes = [one["NodeID"] for one in ray.nodes() if one["Alive"]]
told = [end.options(scheduling_strategy=On(one, soft=False)).remote() for one in nodes]
ray.wait(told, num_returns=len(told), timeout=20)'
  exit 0
fi
# One that joins when all is over finds no head, and gives up.
while [ ! -e $over ] && [ $tries -lt 40 ]; do
  ray start --address=@first@:@port@ $node --block &
  while [ ! -e $over ] && kill -0 $!; do sleep 1; done 2>&-
  tries=$((tries + 1))
  [ -e $over ] || { ray stop --force; sleep 5; }
done
exit 0
"""
_HIVEMIND: Final = """\
import contextlib, os, socket, subprocess, sys, threading, time
import hivemind
own, members = int(os.environ["TALLY_MEMBER"]), int(os.environ["TALLY_MEMBERS"])
here = os.environ["TALLY_MESH_ADDRESS"]
def ask(member):
    try:
        with socket.create_connection((f"member-{member}", @port@), timeout=2) as way:
            return way.makefile().read().split()
    except OSError:
        return []
def others():
    return [one for at in range(members) if at != own for one in ask(at)]
def tell():
    while True:
        with contextlib.suppress(OSError):  # who asked hung up, or is lost
            caller, _ = door.accept()
            with caller:
                caller.sendall(mine.encode())
# Member 0 is the first where nobody is there yet; whoever replaces it joins those that are.
tries = 0
while not (peers := others()) and (own or tries < 3):
    tries += 1
    time.sleep(1)
dht = hivemind.DHT(initial_peers=peers, host_maddrs=[f"/ip4/{here}/tcp/0"], start=True)
mine = " ".join(map(str, dht.get_visible_maddrs()))
door = socket.create_server((here, @port@))
threading.Thread(target=tell, daemon=True).start()
code = subprocess.call(sys.argv[1:], env={**os.environ, "HIVEMIND_PEERS": " ".join([mine, *peers])})
os._exit(code if code >= 0 else 128 - code)
"""
_SCRIPTS: Final = {
    Framework.TORCHRUN: _TORCHRUN,
    Framework.RAY: _RAY,
    Framework.HIVEMIND: _HIVEMIND,
}
