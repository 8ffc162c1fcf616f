"""The container path, tried: one hardened container that looks at itself from the inside."""

from __future__ import annotations

import json
import time
from typing import Final

import anyio

from adapter.core.workload import RuntimeFault
from adapter.doctor.world import DoctorConfig
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import connect
from adapter.runtime.docker.runtime import DockerRuntime
from marketplace.domain.work.workload import WorkloadSpec, WorkloadState

IMAGE: Final = "tally/python:local"
_LOOK: Final = """
import json, os
def writable(path):
    try:
        open(path, 'w').close()
        return True
    except OSError:
        return False
status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
print(json.dumps({
    'uid': os.getuid(),
    'capabilities': int(status['CapEff'], 16),
    'no_new_privileges': int(status['NoNewPrivs']),
    'seccomp': int(status['Seccomp']),
    'root_writable': writable('/etc/x'),
    'interfaces': sorted(os.listdir('/sys/class/net')),
}))
"""


def try_container(config: DoctorConfig) -> list[str]:
    """What a container on this host was not held by; empty when all holds.

    Raises LookupError when there is no local image to try with, RuntimeFault when the container
    could not be run.
    """
    client = connect(config.docker_host, 6)
    try:
        tags = {tag: image.id for image in client.images.list() for tag in image.tags}
    finally:
        client.close()
    if IMAGE not in tags:
        raise LookupError(f"{IMAGE} is not on this host")
    return anyio.run(_look, config, str(tags[IMAGE]))


async def _look(config: DoctorConfig, image: str) -> list[str]:
    runtime = DockerRuntime(
        DockerConfig(config.state, "doctor", host=config.docker_host, deadline_s=6.0)
    )
    spec = WorkloadSpec(f"doctor-{time.time_ns():x}", image, ("python3", "-c", _LOOK))
    handle = await runtime.start(spec)
    try:
        status = await runtime.status(handle)
        deadline = anyio.current_time() + 6
        while status.state is not WorkloadState.EXITED:
            if anyio.current_time() > deadline:
                raise RuntimeFault("the trial container did not end")
            await anyio.sleep(0.05)
            status = await runtime.status(handle)
        said = (await runtime.logs(handle, 0, 65_536)).data
        if status.times.exit_code != 0:
            raise RuntimeFault(f"exit code {status.times.exit_code}: {said[-200:]!r}")
        return _judge(json.loads(said))
    except ValueError as error:
        raise RuntimeFault(f"the trial container gave no answer: {error}") from error
    finally:
        await runtime.remove(handle)


def _judge(facts: dict[str, object]) -> list[str]:
    rules = (
        (facts["uid"] != 0, "it runs as root"),
        (facts["capabilities"] == 0, "it holds capabilities"),
        (facts["no_new_privileges"] == 1, "it may gain privileges"),
        (facts["seccomp"] == 2, "no seccomp filter is in force"),
        (facts["root_writable"] is False, "its root file system is writable"),
        (facts["interfaces"] == ["lo"], "it has a network that it was not given"),
    )
    return [why for holds, why in rules if not holds]
