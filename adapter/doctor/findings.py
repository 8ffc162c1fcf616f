"""Every finding that the doctor can utter: code, severity, remedy.  The codes are stable.

``docs/provider.md`` lists the same codes; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """ERROR: nothing can be rented this way.  WARNING: it works, worse or riskier.  INFO: so it
    is.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

CODES: Final[dict[str, tuple[Severity, str]]] = {
    # the GPU and its driver
    "NVML_ABSENT": (_W, "install the NVIDIA driver, or rent out cores only"),
    "NVML_HUNG": (_E, "reboot the host; a hung driver meters nothing"),
    "DRIVER_TOO_OLD": (_W, "update the NVIDIA driver to 525 or later"),
    "DRIVER_MISMATCH": (_E, "reboot: the loaded kernel module and the library differ"),
    "NOUVEAU_LOADED": (_E, "blacklist nouveau and reboot; NVIDIA's driver cannot load beside it"),
    "GPU_NONE": (_W, "check power, seating and `lspci`; the driver is loaded but lists no GPU"),
    "GPU_LOST": (_E, "reboot; if it returns, reseat the card and check its power"),
    "GPU_SIMULATED": (_W, "a simulated device may be listed on a devnet only"),
    "GPU_BUSY": (
        _W,
        "end the process, or exclude the device: it uses memory that you would rent out",
    ),
    "GPU_HOT": (_W, "improve the cooling; a throttled device loses its reputation"),
    "GPU_THROTTLED": (_W, "check power supply and cooling: the hardware is slowing itself down"),
    "GPU_QUARANTINED": (_W, "reset the device, then `tally adapter release DEVICE`"),
    "MIG_EMPTY": (_W, "give the device a slice plan, or switch MIG off: it offers nothing now"),
    "PRICE_UNMATCHED": (
        _W,
        "correct the name in [prices]: core, or a part of a model's name; it prices nothing now",
    ),
    "ENERGY_UNSUPPORTED": (
        _I,
        "nothing: long meter gaps on this model cannot be proven and are free",
    ),
    "XID_RECENT": (_W, "look the Xid up in NVIDIA's catalogue; reset or replace the card"),
    "DEVICE_FILES_MISSING": (
        _E,
        "run `nvidia-modprobe -c0`; the driver's device files are missing",
    ),
    "UVM_MISSING": (_E, "run `nvidia-modprobe -u -c0`; CUDA needs /dev/nvidia-uvm"),
    # the container toolkit and CDI
    "TOOLKIT_MISSING": (_E, "install nvidia-container-toolkit 1.17.8 or later"),
    "TOOLKIT_VULNERABLE": (
        _E,
        "update nvidia-container-toolkit to 1.17.8 or later (CVE-2025-23266)",
    ),
    "TOOLKIT_OLD": (_I, "update to 1.18 or later, which refreshes CDI by itself"),
    "CDI_MISSING": (_E, "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"),
    "CDI_UNREADABLE": (_E, "generate the CDI specification anew; the file does not parse"),
    "CDI_STALE": (_E, "generate the CDI specification anew; it lacks a device"),
    # Docker
    "DOCKER_UNREACHABLE": (_E, "start Docker, and let the adapter's user open its socket"),
    "DOCKER_OLD": (_E, "update Docker to 20.10 or later"),
    "DOCKER_CDI_OFF": (
        _W,
        "update Docker to 25 or later with CDI on, or set gpu_request to legacy",
    ),
    "DOCKER_NO_SECCOMP": (_E, "use a Docker daemon with seccomp"),
    "DOCKER_NO_INIT": (_E, "install tini (docker-init): workloads need it to hear signals"),
    "DOCKER_ROOTLESS": (
        _W,
        "use a rootful daemon: rootless networks are not filtered by our rules",
    ),
    "DOCKER_LIVE_RESTORE_OFF": (
        _W,
        'set "live-restore": true, so that leases outlive a daemon restart',
    ),
    "DOCKER_STORAGE_SLOW": (_W, "use overlay2: vfs copies the whole image for each lease"),
    "DOCKER_LIMITS_MISSING": (_E, "enable the kernel's memory, CPU and pids control groups"),
    "DOCKER_INSECURE_REGISTRY": (
        _W,
        "remove insecure-registries: images could be replaced on the way",
    ),
    "DOCKER_TCP_OPEN": (
        _E,
        "remove the tcp:// host, or require TLS: it is root for anyone who connects",
    ),
    "RUNC_VULNERABLE": (
        _W,
        "update runc to 1.1.12 or later (CVE-2024-21626), or check the backport",
    ),
    "CONTAINER_NO_IMAGE": (_I, "nothing: no local image to try; the first lease will pull one"),
    "CONTAINER_FAILED": (_E, "read the cause: a workload would fail in the same way"),
    "CONTAINER_UNCONFINED": (_E, "read the cause: the container was not held by its limits"),
    # what contains a workload
    "IPTABLES_MISSING": (_E, "install iptables; without it a workload could reach the host"),
    "IPTABLES_DENIED": (_E, "run the adapter as root or with CAP_NET_ADMIN"),
    "IPV6_UNFILTERED": (_W, "install ip6tables, or switch IPv6 off on the host"),
    "CGROUP_MISSING": (_E, "mount the control group file system"),
    "CGROUP_CONTROLLER_MISSING": (_E, "enable the controller on the kernel's command line"),
    "CGROUP_READONLY": (
        _W,
        "run as root with /sys/fs/cgroup writable; the process runtime needs it",
    ),
    "BUBBLEWRAP_MISSING": (_E, "install bubblewrap, or leave the process runtime out of the offer"),
    "SETPRIV_MISSING": (
        _E,
        "install util-linux: the process runtime drops privileges with setpriv",
    ),
    "VOLUMES_IMPOSSIBLE": (
        _E,
        "install or allow what is named, or remove prices.disk: the adapter would not start",
    ),
    "MESH_IMPOSSIBLE": (
        _E,
        "install or allow what is named, or remove [mesh]: the adapter would not start",
    ),
    "STORES_IMPOSSIBLE": (
        _E,
        "install or allow what is named, or remove [stores]: the adapter would not start",
    ),
    "MESH_ELSEWHERE": (
        _I,
        "forward the UDP ports of [mesh] from that address to this host, each to the same one",
    ),
    "ALLOW_LIST_OPEN": (_I, "name the registries that you trust in [limits] images"),
    # the host
    "NOT_ROOT": (_W, "run the adapter as root: rules, control groups and MIG need it"),
    "KERNEL_OLD": (_W, "update the kernel to 5.4 or later"),
    "NOFILE_LOW": (_W, "raise the limit of open files to 4096 or more"),
    "MEMORY_LOW": (_E, "free some memory: less than 1 GiB is available"),
    "BOOT_ID_MISSING": (_E, "mount /proc: the meter needs the kernel's boot id"),
    "CLOCK_UNSYNCHRONISED": (_W, "switch NTP on: receipts carry the wall clock as a label"),
    "CLOCK_OFF": (_E, "set the clock: it differs from the market's by more than 5 s"),
    "DISK_LOW": (_E, "free at least 5 GiB where the adapter keeps its state"),
    "INODES_LOW": (_W, "free inodes: under 5 % are left where the adapter keeps its state"),
    "STATE_UNWRITABLE": (_E, "let the adapter's user write to its state folder"),
    "STATE_EXPOSED": (_W, "chmod 700 the state folder: others on this host can read it"),
    "STATE_ON_NETWORK": (_W, "keep the state on a local disk: vouchers must be durable at once"),
    # keys, money, market
    "KEY_MISSING": (_I, "nothing: `tally adapter run` makes the metering key at its first start"),
    "KEY_EXPOSED": (_E, "chmod 600 the adapter's key file"),
    "PAYOUT_MISSING": (_E, "set payout to a Cardano address that you hold the key of elsewhere"),
    "FEES_LOW": (
        _E,
        "send 20 ADA to that address from any wallet (devnet: `tally faucet ADDRESS '20 ADA'`):"
        " under about 8 ADA no lease is taken",
    ),
    "END_KEY_FUNDED": (
        _W,
        "start the adapter: it moves that to the fee key by one transaction; fund the fee key only",
    ),
    "CHAIN_UNREACHABLE": (_E, "check chain_url and project_id: the chain's door does not answer"),
    "PAYOUT_UNREADABLE": (_E, "set payout to a whole Cardano address, addr1… or addr_test1…"),
    "PAYOUT_KEY_PRESENT": (_W, "move the payout address's signing key off this machine"),
    "MARKET_UNSET": (_W, "set market to the market's address"),
    "MARKET_INSECURE": (_W, "use https:// or wss:// for a market that is not on this host"),
    "MARKET_UNRESOLVED": (_E, "check DNS: the market's name does not resolve"),
    "MARKET_UNREACHABLE": (
        _E,
        "check the network and the market's address; only outbound is needed",
    ),
    "CHECK_FAILED": (_W, "send the support bundle: a check of the doctor itself failed"),
    "CHECK_SLOW": (_W, "run the doctor again; a check did not end within its time"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: *cause* is what was seen, *remedy* what to do."""

    code: str
    severity: Severity
    cause: str
    remedy: str

    def to_wire(self) -> dict[str, str]:
        """For ``--json``."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "cause": self.cause,
            "remedy": self.remedy,
        }


def found(code: str, cause: str) -> Finding:
    """The finding *code*, with its severity and remedy from the table."""
    severity, remedy = CODES[code]
    return Finding(code, severity, cause, remedy)
