"""Control groups, process owners, kept logs, workspaces and firewall rules, on files and commands
of the test's own making.

Over 400 lines: every file of the host that is read, in one place.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.workload import EgressUnenforced, RuntimeRefused
from adapter.host.cgroup import CgroupFault, Cgroups, Usage
from adapter.host.processes import Attribution, start_time, workload_of
from adapter.runtime import egress
from adapter.runtime.egress import Firewall, bridge_name, is_closed, resolve
from adapter.runtime.logstore import LogStore
from adapter.runtime.workspace import Workspace
from marketplace.domain.supply.hardware import (
    Cpu,
    Gpu,
    HardwareMalformed,
    Health,
    HostHardware,
    MigMode,
    MigSlice,
    Pcie,
    Sharing,
)
from marketplace.domain.work.workload import WorkloadRefused, exit_reason, workspace_path

CONTAINER = "c0ffee" * 10 + "c0ff"


# -- control groups --------------------------------------------------------------------------------


def test_version_2_is_read_and_limited(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "tally").mkdir()
    groups = Cgroups(tmp_path)
    assert groups.version == 2
    groups.create("tally/a", cpu_milli=1500, memory_mib=64, pids=9)
    one = tmp_path / "tally" / "a"
    assert (one / "cpu.max").read_text() == "150000 100000"
    assert (one / "memory.max").read_text() == str(64 << 20)
    assert (one / "pids.max").read_text() == "9"
    assert (tmp_path / "tally" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert groups.usage("tally/a") is None, "no reading is better than a zero"
    (one / "cpu.stat").write_text("usage_usec 1234\nuser_usec 1\n")
    (one / "memory.current").write_text(str(7 << 20))
    (one / "memory.events").write_text("low 0\noom_kill 2\n")
    (one / "cgroup.procs").write_text("5\n6\n")
    assert groups.usage("tally/a") == Usage(1_234_000, 7, 2)
    assert groups.pids("tally/a") == {5, 6}
    groups.freeze("tally/a", True)
    assert groups.frozen("tally/a")
    groups.join("tally/a", 77)
    assert (one / "cgroup.procs").read_text() == "77"


def test_version_1_is_read_from_each_controllers_tree(tmp_path: Path) -> None:
    for name in ("cpu", "cpuacct", "memory", "pids", "freezer"):
        (tmp_path / name / "docker" / "x").mkdir(parents=True)
    groups = Cgroups(tmp_path)
    assert groups.version == 1
    (tmp_path / "cpuacct/docker/x/cpuacct.usage").write_text("999\n")
    (tmp_path / "memory/docker/x/memory.usage_in_bytes").write_text(str(3 << 20))
    (tmp_path / "memory/docker/x/memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert groups.usage("docker/x") == Usage(999, 3, 1)
    groups.create("tally/b", 500, 32, 4)
    assert (tmp_path / "cpu/tally/b/cpu.cfs_quota_us").read_text() == "50000"
    assert (tmp_path / "memory/tally/b/memory.limit_in_bytes").read_text() == str(32 << 20)
    groups.freeze("tally/b", True)
    assert (tmp_path / "freezer/tally/b/freezer.state").read_text() == "FROZEN"
    assert groups.usage("docker/gone") is None


def test_a_host_without_control_groups_says_so(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path / "nothing")
    assert groups.version == 0
    with pytest.raises(CgroupFault):
        groups.create("tally/a", 1, 1, 1)


def test_the_group_of_a_process_is_found_in_both_versions(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"4:cpu,cpuacct:/docker/{CONTAINER}\n0::/system.slice\n")
    old = tmp_path / "v1"
    (old / "cpuacct").mkdir(parents=True)
    assert Cgroups(old).of_pid(7, proc) == f"docker/{CONTAINER}"
    new = tmp_path / "v2"
    new.mkdir()
    (new / "cgroup.controllers").write_text("cpu")
    assert Cgroups(new).of_pid(7, proc) == "system.slice"
    assert Cgroups(new).of_pid(8, proc) is None


# -- owners ----------------------------------------------------------------------------------------


def process(proc: Path, pid: int, started: int, group: str) -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    fields = " ".join(["S", *["0"] * 18, str(started), "0"])
    (proc / str(pid) / "stat").write_text(f"{pid} (a name) with) brackets) {fields}")
    (proc / str(pid) / "cgroup").write_text(group)


def test_a_pid_that_is_used_again_has_a_new_owner(tmp_path: Path) -> None:
    process(tmp_path, 9, 100, f"0::/system.slice/docker-{CONTAINER}.scope")
    owners = Attribution(tmp_path)
    assert owners.split([9], CONTAINER) == ((9,), 0)
    process(tmp_path, 9, 200, "0::/user.slice")
    assert owners.split([9], CONTAINER) == ((), 1)
    (tmp_path / "9" / "stat").unlink()
    assert owners.split([9], CONTAINER) == ((), 0), "a process that is gone is no stranger"


def test_owners_are_containers_scopes_or_nobody(tmp_path: Path) -> None:
    process(tmp_path, 1, 5, f"3:cpuacct:/docker/{CONTAINER}")
    process(tmp_path, 2, 5, "3:cpuacct:/tally/adapter-lease.1")
    process(tmp_path, 3, 5, "0::/init.scope")
    found = [workload_of(pid, tmp_path) for pid in (1, 2, 3, 4)]
    assert found == [CONTAINER, "adapter-lease.1", None, None]
    assert start_time(1, tmp_path) == 5
    owners = Attribution(tmp_path)
    owners.split([1, 2, 3], "x")
    owners.forget([1])
    assert set(owners._known) == {1}


# -- kept logs -------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=90), max_size=30), st.integers(20, 120))
def test_a_kept_log_is_the_newest_bytes_at_their_own_offsets(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    logs = LogStore(tmp_path_factory.mktemp("logs"))
    whole = b""
    for piece in pieces:
        logs.append("l", piece, limit)
        whole += piece
    assert logs.end("l") == len(whole)
    chunk = logs.read("l", 0, 10_000)
    assert chunk.data == whole[chunk.offset :]
    assert len(chunk.data) <= limit
    assert len(chunk.data) >= min(len(whole), limit // 2 if len(whole) > limit else len(whole) // 2)
    assert logs.read("l", chunk.next, 10).data == b""
    if len(chunk.data) > 2:
        part = logs.read("l", chunk.offset + 1, 1)
        assert part.data == whole[chunk.offset + 1 : chunk.offset + 2]


# -- workspaces ------------------------------------------------------------------------------------


def test_a_link_in_place_of_a_folder_leads_nowhere(tmp_path: Path) -> None:
    space = Workspace(tmp_path, "l")
    space.create({"a/b.txt": b"x", "run.sh": b"#!/bin/sh\n"}, 0, 0)
    assert (space.path / "run.sh").stat().st_mode & 0o111
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    (space.path / "out").symlink_to(secret)
    found = space.collect(("out/key", "a", "*.sh"), 1)
    with tarfile.open(found.path) as archive:
        assert archive.getnames() == ["a/b.txt", "run.sh"]
    assert found.skipped == ("out: a link",)
    assert space.usage().entries == 4
    space.remove()
    assert (secret / "key").exists(), "removal followed a link"


@pytest.mark.parametrize(
    "path", ["", "..", "../x", "/etc/x", "a/../../x", "/workspace", "a\0b", "/"]
)
def test_paths_stay_inside_the_workspace(path: str) -> None:
    with pytest.raises(WorkloadRefused):
        workspace_path(path)


def test_paths_are_normal() -> None:
    assert [workspace_path(p) for p in ("/workspace/a/b", "a//b", "./a/c/../b")] == ["a/b"] * 3


def test_why_a_workload_ended() -> None:
    cases = [
        (0, False, False),
        (1, False, False),
        (137, True, False),
        (137, True, True),
        (None, False, False),
    ]
    found = [exit_reason(c, out_of_memory=o, stopped=s).value for c, o, s in cases]
    assert found == ["COMPLETED", "CRASHED", "OUT_OF_MEMORY", "STOPPED", "LOST"]


# -- firewall --------------------------------------------------------------------------------------


class Tables:
    """iptables, as far as it goes: chains of rules, -C -A -I -D -N -S -L, and restore."""

    def __init__(self, broken: str = "", ipv6: bool = False) -> None:
        self.chains: dict[str, list[list[str]]] = {"INPUT": [], "FORWARD": []}
        self.broken = broken
        self.ipv6 = Tables() if ipv6 else None
        self.open_moments = 0
        self.asked = 0

    def __call__(self, line: Sequence[str], text: str) -> tuple[int, str]:
        self.asked += 1
        if line[0] == "ip6tables":
            if self.ipv6 is None:
                return 1, "no IPv6"
            return self.ipv6(("iptables", *line[1:]), text)
        if line[0] == "iptables-restore":
            return self._restore(text)
        assert line[3:5] == ("-t", "mangle"), "filter is Docker's and the firewall managers'"
        action, *rest = [word for word in line[5:] if word != "-n"]
        if action in self.broken:
            return 4, "Permission denied"
        if action == "-S" and not rest:
            return 0, "\n".join(self._act("-S", chain, ())[1] for chain in self.chains)
        done = self._act(action, rest[0], rest[1:])
        self._look()
        return done

    def _look(self) -> None:
        """Count every moment at which a rule that once stood does not."""
        jump = ["-i", "tly+", "-j", egress.HOST]
        started = self.chains.get(egress.FORWARD)
        self.open_moments += bool(started) and jump not in self.chains["INPUT"]

    def _restore(self, text: str) -> tuple[int, str]:
        for line in text.splitlines():
            if line.startswith(":"):
                self.chains[line[1:].split()[0]] = []
            elif line.startswith("-A"):
                _a, chain, *rule = line.split()
                self.chains[chain].append(rule)
        return 0, ""

    def _act(self, action: str, chain: str, rule: Sequence[str]) -> tuple[int, str]:
        if action == "-N":
            self.chains[chain] = []
            return 0, ""
        if chain not in self.chains:
            return 1, "No chain"
        rules, rule = self.chains[chain], list(rule)
        match action:
            case "-C":
                return int(rule not in rules), ""
            case "-A":
                rules.append(rule)
            case "-I":
                rules.insert(0, rule[1:])
            case "-D" if rule[0].isdecimal():
                del rules[int(rule[0]) - 1]
            case "-D":
                rules.remove(rule)
            case "-S":
                return 0, "\n".join([f"-N {chain}", *(f"-A {chain} {' '.join(r)}" for r in rules)])
            case _:
                pass
        return 0, ""


def test_the_rules_close_the_host_first_and_are_idempotent(tmp_path: Path) -> None:
    tables = Tables()
    wall = Firewall(tables, tmp_path / "lock")
    wall.ensure()
    before = json.dumps(tables.chains)
    wall.ensure()
    assert json.dumps(tables.chains) == before
    assert tables.chains["INPUT"][0] == ["-i", "tly+", "-j", egress.HOST]
    assert tables.chains["FORWARD"][0] == ["-i", "tly+", "-j", egress.FORWARD]
    assert tables.chains[egress.HOST][-1] == ["-j", "DROP"]
    forward = tables.chains[egress.FORWARD]
    assert forward[-1] == ["-j", "DROP"]
    closed = [rule[1] for rule in forward if rule[:1] == ["-d"]]
    assert closed == list(egress.CLOSED)
    assert forward.index(["-j", egress.LISTED]) > forward.index(
        ["-d", "169.254.0.0/16", "-j", "DROP"]
    )


def test_rules_that_stand_cost_two_questions_and_any_that_does_not_is_put_back(
    tmp_path: Path,
) -> None:
    tables = Tables(ipv6=True)
    wall = Firewall(tables, tmp_path / "lock")
    wall.ensure()
    whole = json.dumps(tables.chains)
    assert tables.ipv6 is not None

    def questions() -> int:
        before = tables.asked
        wall.ensure()
        return tables.asked - before

    assert questions() == 2
    for chain in (egress.HOST, egress.FORWARD, "INPUT", "FORWARD"):
        for place in range(len(tables.chains[chain])):
            del tables.chains[chain][place]
            assert questions() > 2
            assert json.dumps(tables.chains) == whole, f"rule {place} of {chain}"
    for chain in ("INPUT", "FORWARD"):
        tables.ipv6.chains[chain].clear()
        assert questions() > 2
        assert tables.ipv6.chains[chain] == [["-i", "tly+", "-j", "DROP"]]


def test_a_rule_that_another_tool_put_first_is_overtaken(tmp_path: Path) -> None:
    tables = Tables()
    wall = Firewall(tables, tmp_path / "lock")
    wall.ensure()
    tables.chains["INPUT"].insert(0, ["-j", "ACCEPT"])
    tables.open_moments = 0
    wall.ensure()
    jump = ["-i", "tly+", "-j", egress.HOST]
    assert tables.chains["INPUT"] == [jump, ["-j", "ACCEPT"]]
    assert tables.open_moments == 0, "between two commands there was no rule at all"


def test_a_leases_own_rules_come_and_go(tmp_path: Path) -> None:
    tables = Tables()
    wall = Firewall(tables, tmp_path / "lock")
    wall.ensure()
    wall.allow("tlyaaaa", [egress.Target("x", "203.0.113.9", 443)])
    wall.open("tlybbbb")
    assert tables.chains[egress.LISTED] == [
        ["-i", "tlyaaaa", "-d", "203.0.113.9", "-p", "tcp", "--dport", "443", "-j", "ACCEPT"]
    ]
    assert tables.chains[egress.OPENED] == [["-i", "tlybbbb", "-j", "ACCEPT"]]
    wall.forget("tlybbbb")
    assert tables.chains[egress.OPENED] == []
    assert len(tables.chains[egress.LISTED]) == 1


def test_what_cannot_be_enforced_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(EgressUnenforced):
        Firewall(Tables(broken="-N"), tmp_path / "lock").ensure()
    with pytest.raises(EgressUnenforced):
        Firewall(Tables(), tmp_path / "no" / "lock").ensure()


@pytest.mark.parametrize(
    "entry", ["127.0.0.1:80", "169.254.169.254:80", "10.1.2.3:443", "192.168.0.1:1"]
)
def test_a_list_is_no_way_to_the_neighbours(entry: str) -> None:
    with pytest.raises(RuntimeRefused, match="closed to all"):
        resolve([entry])


@pytest.mark.parametrize("entry", ["example.org", "example.org:0", ":80", "x:99999"])
def test_a_list_names_hosts_and_ports(entry: str) -> None:
    with pytest.raises(RuntimeRefused, match="host:port"):
        resolve([entry])


def test_public_addresses_are_open_and_names_fit_the_kernel() -> None:
    assert not is_closed("8.8.8.8") and is_closed("::1")
    assert resolve(["8.8.8.8:53"]) == [egress.Target("8.8.8.8", "8.8.8.8", 53)]
    assert len(bridge_name("l" * 64, "a")) <= 15
    assert bridge_name("l", "a") != bridge_name("l", "b")


# -- hardware on the wire --------------------------------------------------------------------------

GPU = Gpu(
    "MIG-1", "NVIDIA H100", 9728, 3, "580.1", "9.0", Pcie("0:1", 5, 16), MigMode.ENABLED,
    MigSlice("1g.10gb", "GPU-1", 7, 0), Sharing.MIG, Health.DEGRADED, "warm", 500, ("GPU-2",), True,
)  # fmt: skip
HOST = HostHardware("h", Cpu("EPYC", 8, 7000), 1024, 2048, (GPU,), "eu", 1, 2, ("docker",))


def test_hardware_survives_the_wire() -> None:
    assert HostHardware.from_wire(json.loads(json.dumps(HOST.to_wire()))) == HOST
    assert HOST.simulated and HOST.gpu("MIG-1") == GPU and HOST.gpu("x") is None
    assert HOST.rentable() == (GPU,)
    assert not GPU.with_health(Health.QUARANTINED).rentable
    assert not replace(GPU, share=0).rentable


@pytest.mark.parametrize(
    ("field", "value"),
    [("uuid", ""), ("vram_mib", -1), ("share", 1001), ("health", "fine"), ("mig", 3), ("links", "x"),
     ("pcie", 5), ("simulated", "no"), ("links", [1]), ("vram_mib", True)],
)  # fmt: skip
def test_malformed_hardware_is_refused(field: str, value: object) -> None:
    with pytest.raises(HardwareMalformed):
        Gpu.from_wire({**GPU.to_wire(), field: value})


def test_two_devices_never_share_a_name() -> None:
    with pytest.raises(HardwareMalformed):
        HostHardware.from_wire({**HOST.to_wire(), "gpus": [GPU.to_wire(), GPU.to_wire()]})
