"""Every code of the doctor, provoked where it arises: a file, a command, NVML, the daemon, the
market.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapter.core.workload import RuntimeFault
from adapter.devices.nvml.nvml import Nvml
from adapter.doctor.findings import CODES, Severity
from adapter.doctor.run import exit_code, redact, report_json, run_doctor, support_bundle
from adapter.doctor.world import DoctorConfig, ProbeFailed, World
from adapter.simulate.host import FaultKind, SimClock, SimHost, SimProcess
from adapter.simulate.library import SimulatedNvml
from marketplace.chain.encoding import address as addresses
from marketplace.domain.canonical import blake2b_224

PROVIDER_PAGE = Path(__file__).parents[3] / "docs" / "provider.md"
INFO: dict[str, Any] = {
    "SecurityOptions": ["name=seccomp,profile=default"], "InitBinary": "docker-init",
    "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True, "Driver": "overlay2",
    "LiveRestoreEnabled": True, "CDISpecDirs": ["/etc/cdi"],
    "RegistryConfig": {"InsecureRegistryCIDRs": ["127.0.0.0/8"], "IndexConfigs": {}},
}  # fmt: skip
VERSION: dict[str, Any] = {
    "ApiVersion": "1.50",
    "Components": [{"Name": "runc", "Version": "1.2.6"}],
}
COMMANDS = {
    "nvidia-ctk": (0, "NVIDIA Container Toolkit CLI version 1.18.1"),
    "dmesg": (0, "all quiet"),
    "iptables": (0, ""),
    "ip6tables": (0, ""),
    "bwrap": (0, "bubblewrap 0.8.0"),
    "setpriv": (0, "setpriv"),
    "timedatectl": (0, "yes"),
}


KEYS = {"meter": b"\x01" * 32, "hot": b"\x02" * 32, "fee": b"\x03" * 32}
BARE = {
    name: addresses.to_text(addresses.key_address(blake2b_224(vk), None, False))
    for name, vk in KEYS.items()
}


class Healthy:
    """A host on which the doctor finds nothing; a case breaks exactly one thing of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sim = SimHost("h100", SimClock())
        for gpu in self.sim.gpus:  # hardware, as far as the doctor can tell
            gpu.model = dataclasses.replace(gpu.model, name="NVIDIA H100 80GB HBM3")
        self.sim.driver = "580.65.06"
        self.library: Any = SimulatedNvml(self.sim)
        self.real = True
        self.deadline_s = 20.0
        self.info, self.version = dict(INFO), dict(VERSION)
        self.commands = dict(COMMANDS)
        self.docker_fault = ""
        self.skew = 0.0
        self.market_fault = ""
        self.known_names = True
        self.chain_fault = ""
        self.held = {"fee": 20_000_000, "hot": 0}
        self.free = (100_000, 900, 1000)
        self.no_volumes = ""
        self.no_mesh = ""
        self.no_stores = ""
        self.own_address = "203.0.113.7"
        self.uid = 0
        self.trial: Callable[[DoctorConfig], list[str]] = lambda _config: []
        state = self.file("var/lib/tally/.keep", "").parent
        state.chmod(0o700)
        key = self.file("etc/tally/adapter.key", "x")
        key.chmod(0o600)
        self.config = DoctorConfig(
            state=state, market="https://market.example", payout=BARE["meter"], key=key,
            chain_url="https://chain.example", volumes=True, mesh="203.0.113.7", stores=True,
            runtimes=("docker", "process"), allow=("ghcr.io/acme/*",),
        )  # fmt: skip
        uuid = self.sim.gpus[0].uuid
        self.file("etc/cdi/nvidia.yaml", f"kind: nvidia.com/gpu\ndevices:\n- name: {uuid}\n")
        self.file("proc/driver/nvidia/version", "NVRM version: Kernel Module  580.65.06  x")
        self.file("proc/modules", "nvidia 1 0\n")
        self.file("proc/sys/kernel/osrelease", "6.1.0")
        self.file("proc/sys/kernel/random/boot_id", "b\n")
        self.file("proc/meminfo", "MemAvailable: 9000000 kB\n")
        self.file("proc/self/limits", "Max open files            65536    65536   files\n")
        self.file("proc/mounts", "ext4 / ext4 rw 0 0\ncgroup /sys/fs/cgroup cgroup2 rw 0 0\n")
        self.file("proc/net/if_inet6", "fe80 eth0\n")
        self.file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids io")
        for name in ("nvidiactl", "nvidia-uvm"):
            self.file(f"dev/{name}", "")

    def file(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def set(self, **changes: Any) -> None:
        self.config = dataclasses.replace(self.config, **changes)

    def world(self) -> World:
        def command(line: Sequence[str]) -> tuple[int, str]:
            return self.commands.get(line[0], (127, f"{line[0]}: not found"))

        def docker(_host: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
            if self.docker_fault:
                raise RuntimeFault(self.docker_fault)
            return self.info, self.version

        def market(_url: str) -> float:
            if self.market_fault:
                raise ProbeFailed(self.market_fault)
            return time.time() + self.skew

        def chain(_config: DoctorConfig, path: str) -> Any:
            if self.chain_fault:
                raise ProbeFailed(self.chain_fault)
            if path == "/genesis":
                return {"network_magic": 1}
            lovelace = next(n for name, n in self.held.items() if path.endswith(BARE[name]))
            return (
                {"amount": [{"unit": "lovelace", "quantity": str(lovelace)}]} if lovelace else None
            )

        return World(
            chain=chain, keys=lambda _folder: dict(KEYS), config=self.config, root=self.root, command=command,
            nvml=lambda: Nvml(self.library, self.deadline_s), docker=docker, market_time=market,
            resolves=lambda _name: self.known_names, disk=lambda _path: self.free,
            nvml_deadline_s=self.deadline_s, uid=lambda: self.uid, container=lambda config: self.trial(config), volumes=lambda _folder: self.no_volumes,
            mesh=lambda _runtimes: self.no_mesh, stores=lambda: self.no_stores, owns=lambda address: address == self.own_address,
        )  # fmt: skip

    def codes(self, budget_s: float = 30.0) -> set[str]:
        return {one.code for one in run_doctor(self.world(), budget_s)}


class Unprefixed(SimulatedNvml):
    """The simulated library without the mark in its models' names: stands in for hardware."""

    def nvmlDeviceGetName(self, device: Any, buffer: Any, length: Any) -> int:
        code = super().nvmlDeviceGetName(device, buffer, length)
        buffer.value = buffer.value.replace(b"SIMULATED ", b"")
        return code


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Healthy]:
    made = Healthy(tmp_path)
    made.library = Unprefixed(made.sim)
    yield made
    made.sim.clear_faults()


def test_a_healthy_host_has_no_findings(host: Healthy) -> None:
    assert host.codes() == set()


def _pretend(name: str, value: Any) -> Callable[[Healthy], None]:
    return lambda host: host.info.update({name: value})


def _command(name: str, code: int, said: str = "") -> Callable[[Healthy], None]:
    return lambda host: host.commands.update({name: (code, said)})


def _file(name: str, text: str) -> Callable[[Healthy], None]:
    def change(host: Healthy) -> None:
        host.file(name, text)

    return change


def _gone(name: str) -> Callable[[Healthy], None]:
    return lambda host: (host.root / name).unlink()


def _set(**changes: Any) -> Callable[[Healthy], None]:
    return lambda host: host.set(**changes)


def _attribute(name: str, value: Any) -> Callable[[Healthy], None]:
    return lambda host: setattr(host, name, value)


def _fault(kind: FaultKind) -> Callable[[Healthy], None]:
    return lambda host: host.sim.fault_now(kind)


def _mig_without_slices(host: Healthy) -> None:
    host.sim.gpus[0].mig = True
    host.set(gpu_request="legacy")


def _no_energy(host: Healthy) -> None:
    class Old(Unprefixed):
        def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, energy: Any) -> int:
            return 3  # NVML_ERROR_NOT_SUPPORTED

    host.library = Old(host.sim)


def _simulated(host: Healthy) -> None:
    host.library = SimulatedNvml(host.sim)


def _no_gpus(host: Healthy) -> None:
    host.sim.gpus.clear()


def _quarantined(host: Healthy) -> None:
    (host.config.state / "quarantine.json").write_text('{"GPU-1": "scrub: 3 bad blocks"}')


def _state_elsewhere(host: Healthy) -> None:
    host.set(state=host.file("plain", "a file"))


def _remote_state(host: Healthy) -> None:
    host.file("proc/mounts", f"srv:/x {host.config.state} nfs4 rw 0 0\n")


def _open_mode(name: str, mode: int) -> Callable[[Healthy], None]:
    return lambda host: (host.root / name).chmod(mode)


def _old_runc(host: Healthy) -> None:
    host.version["Components"] = [{"Name": "runc", "Version": "1.1.5"}]


def _trial(error: Exception | None, complaints: list[str]) -> Callable[[Healthy], None]:
    def look(_config: DoctorConfig) -> list[str]:
        if error is not None:
            raise error
        return complaints

    return _attribute("trial", look)


def _slow_trial(_config: DoctorConfig) -> list[str]:
    time.sleep(3)
    return []


def _cgroup_one_tree_missing(host: Healthy) -> None:
    host.file("sys/fs/cgroup/cgroup.controllers", "cpu memory")


CASES: dict[str, Callable[[Healthy], None]] = {
    "NVML_ABSENT": _fault(FaultKind.NVML_GONE),
    "NVML_HUNG": lambda h: _hung(h),
    "DRIVER_TOO_OLD": lambda h: (setattr(h.sim, "driver", "470.1"), h.file("proc/driver/nvidia/version", ""))[0],
    "DRIVER_MISMATCH": _file("proc/driver/nvidia/version", "NVRM version: Kernel Module  570.1  x"),
    "NOUVEAU_LOADED": _file("proc/modules", "nouveau 1 0\n"),
    "GPU_NONE": _no_gpus,
    "GPU_LOST": lambda h: _fallen(h),
    "GPU_SIMULATED": _simulated,
    "GPU_BUSY": lambda h: h.sim.set_processes(0, [SimProcess(4711, 100)]),
    "GPU_HOT": lambda h: _hot(h),
    "GPU_THROTTLED": _fault(FaultKind.THROTTLE),
    "GPU_QUARANTINED": _quarantined,
    "MIG_EMPTY": _mig_without_slices,
    "ENERGY_UNSUPPORTED": _no_energy,
    "XID_RECENT": _command("dmesg", 0, "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus"),
    "DEVICE_FILES_MISSING": _gone("dev/nvidiactl"),
    "UVM_MISSING": _gone("dev/nvidia-uvm"),
    "TOOLKIT_MISSING": _command("nvidia-ctk", 127, "nvidia-ctk: not found"),
    "TOOLKIT_VULNERABLE": _command("nvidia-ctk", 0, "version 1.17.7"),
    "TOOLKIT_OLD": _command("nvidia-ctk", 0, "version 1.17.8"),
    "CDI_MISSING": _gone("etc/cdi/nvidia.yaml"),
    "CDI_UNREADABLE": _file("etc/cdi/nvidia.yaml", "{{{"),
    "CDI_STALE": _file("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices: []\n"),
    "DOCKER_UNREACHABLE": _attribute("docker_fault", "no socket"),
    "DOCKER_OLD": lambda h: h.version.update(ApiVersion="1.40") or h.set(gpu_request="legacy"),
    "DOCKER_CDI_OFF": _pretend("CDISpecDirs", []),
    "DOCKER_NO_SECCOMP": _pretend("SecurityOptions", []),
    "DOCKER_NO_INIT": _pretend("InitBinary", ""),
    "DOCKER_ROOTLESS": _pretend("SecurityOptions", ["name=seccomp", "name=rootless"]),
    "DOCKER_LIVE_RESTORE_OFF": _pretend("LiveRestoreEnabled", False),
    "DOCKER_STORAGE_SLOW": _pretend("Driver", "vfs"),
    "DOCKER_LIMITS_MISSING": _pretend("PidsLimit", False),
    "DOCKER_INSECURE_REGISTRY": _pretend("RegistryConfig", {"InsecureRegistryCIDRs": ["10.0.0.0/8"]}),
    "DOCKER_TCP_OPEN": _file("etc/docker/daemon.json", '{"hosts": ["tcp://0.0.0.0:2375"]}'),
    "RUNC_VULNERABLE": _old_runc,
    "CONTAINER_NO_IMAGE": _trial(LookupError("no image"), []),
    "CONTAINER_FAILED": _trial(RuntimeFault("exit code 125"), []),
    "CONTAINER_UNCONFINED": _trial(None, ["it holds capabilities"]),
    "IPTABLES_MISSING": _command("iptables", 127, "not found"),
    "IPTABLES_DENIED": _command("iptables", 4, "Permission denied (you must be root)"),
    "IPV6_UNFILTERED": _command("ip6tables", 127),
    "CGROUP_MISSING": _gone("sys/fs/cgroup/cgroup.controllers"),
    "CGROUP_CONTROLLER_MISSING": _cgroup_one_tree_missing,
    "CGROUP_READONLY": _file("proc/mounts", "cgroup /sys/fs/cgroup cgroup2 ro 0 0\n"),
    "BUBBLEWRAP_MISSING": _command("bwrap", 127),
    "SETPRIV_MISSING": _command("setpriv", 127),
    "VOLUMES_IMPOSSIBLE": _attribute("no_volumes", "mkfs.ext4: not found"),
    "MESH_IMPOSSIBLE": _attribute("no_mesh", "the program wireguard-go"),
    "STORES_IMPOSSIBLE": _attribute("no_stores", "the program rclone"),
    "MESH_ELSEWHERE": _attribute("own_address", "192.168.1.7"),
    "ALLOW_LIST_OPEN": _set(allow=("*",)),
    "NOT_ROOT": _attribute("uid", 1000),
    "KERNEL_OLD": _file("proc/sys/kernel/osrelease", "4.19.0"),
    "NOFILE_LOW": _file("proc/self/limits", "Max open files            1024    1024   files\n"),
    "MEMORY_LOW": _file("proc/meminfo", "MemAvailable: 5000 kB\n"),
    "BOOT_ID_MISSING": _gone("proc/sys/kernel/random/boot_id"),
    "CLOCK_UNSYNCHRONISED": _command("timedatectl", 0, "no"),
    "CLOCK_OFF": _attribute("skew", 60.0),
    "DISK_LOW": _attribute("free", (100, 900, 1000)),
    "INODES_LOW": _attribute("free", (100_000, 3, 1000)),
    "STATE_UNWRITABLE": _state_elsewhere,
    "STATE_EXPOSED": _open_mode("var/lib/tally", 0o755),
    "STATE_ON_NETWORK": _remote_state,
    "KEY_MISSING": _gone("etc/tally/adapter.key"),
    "KEY_EXPOSED": _open_mode("etc/tally/adapter.key", 0o644),
    "PAYOUT_MISSING": _set(payout=""),
    "PAYOUT_UNREADABLE": _set(payout="addr1nonsense"),
    "PAYOUT_KEY_PRESENT": _file("etc/tally/payment.skey", "{}"),
    "PRICE_UNMATCHED": _set(priced=("corre", "h100")),
    "FEES_LOW": _attribute("held", {"fee": 7_000_000, "hot": 0}),
    "END_KEY_FUNDED": _attribute("held", {"fee": 20_000_000, "hot": 1_500_000}),
    "CHAIN_UNREACHABLE": _attribute("chain_fault", "status 403"),
    "MARKET_UNSET": _set(market=""),
    "MARKET_INSECURE": _set(market="http://market.example"),
    "MARKET_UNRESOLVED": _attribute("known_names", False),
    "MARKET_UNREACHABLE": _attribute("market_fault", "connection refused"),
    "CHECK_FAILED": _file("etc/docker/daemon.json", "{"),
}  # fmt: skip
ALSO = {"MIG_EMPTY": {"GPU_NONE"}}
"""What necessarily comes with a case: an undivided device also leaves nothing to rent."""


def _fallen(host: Healthy) -> None:
    """The device falls off the bus between the inventory and its reading."""

    class Falling(Unprefixed):
        def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, energy: Any) -> int:
            return 15  # NVML_ERROR_GPU_IS_LOST

    host.library = Falling(host.sim)


def _hung(host: Healthy) -> None:
    host.deadline_s = 0.3
    host.sim.fault_now(FaultKind.HANG)


def _hot(host: Healthy) -> None:
    class Hot(Unprefixed):
        def nvmlDeviceGetTemperature(self, device: Any, sensor: Any, value: Any) -> int:
            value._obj.value = 91
            return 0

    host.library = Hot(host.sim)


@pytest.mark.parametrize("code", CASES)
def test_the_code_is_provoked_alone(host: Healthy, code: str) -> None:
    CASES[code](host)
    assert host.codes() - ALSO.get(code, set()) == {code}


def test_a_check_that_hangs_is_a_finding_and_delays_nobody(host: Healthy) -> None:
    host.trial = _slow_trial
    assert host.codes(budget_s=1.5) == {"CHECK_SLOW"}


def test_every_code_is_provoked_by_some_case() -> None:
    assert set(CASES) | {"CHECK_SLOW"} == set(CODES)
    assert len(CODES) >= 25


def test_every_code_stands_with_its_remedy_in_the_providers_page() -> None:
    page = PROVIDER_PAGE.read_text()
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| \w+ \| (.+?) \|$", page, re.MULTILINE))
    assert rows == {code: remedy for code, (_severity, remedy) in CODES.items()}


def test_the_report_is_the_documented_json(host: Healthy) -> None:
    CASES["DISK_LOW"](host)
    findings = run_doctor(host.world())
    report = json.loads(report_json(findings))
    assert set(report) == {"findings"}
    assert set(report["findings"][0]) == {"code", "severity", "cause", "remedy"}
    assert report["findings"][0]["severity"] == "error"
    assert exit_code(findings) == 1
    assert exit_code([]) == 0


def test_errors_come_first(host: Healthy) -> None:
    for code in ("ALLOW_LIST_OPEN", "DISK_LOW", "NOT_ROOT"):
        CASES[code](host)
    found = [one.severity for one in run_doctor(host.world())]
    assert found == [Severity.ERROR, Severity.WARNING, Severity.INFO]


SECRETS = (
    'api_key = "k3y-of-mine"', "token: abc.def", "password=hunter2", '{"secret": "s3cr3t"}',
    "ed25519e_sk1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "f" * 64,
    "postgres://bob:hunter2@db/x", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.sig",
)  # fmt: skip


def test_the_support_bundle_holds_no_secret(host: Healthy, tmp_path: Path) -> None:
    texts = {"config.yaml": "\n".join(SECRETS) + "\nregion: eu\n", "../log.txt": "all is well"}
    made = support_bundle(tmp_path / "b" / "bundle.tar.gz", [], texts)
    assert made.stat().st_mode & 0o077 == 0
    with tarfile.open(made) as archive:
        names = archive.getnames()
        files = [archive.extractfile(name) for name in names]
        whole = b"\n".join(file.read() for file in files if file is not None).decode()
    assert names == ["findings.json", "versions.json", "config.yaml", "log.txt"]
    for word in ("k3y", "abc.def", "hunter2", "s3cr3t", "sk1qqqq", "ffff", "MIIE", "eyJ"):
        assert word not in whole, word
    assert "region: eu" in whole and "all is well" in whole
    assert redact("units_milli: 1000") == "units_milli: 1000"
