"""The process runtime: real bubblewrap, real control groups, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from adapter.core.workload import RuntimeRefused
from adapter.host.cgroup import Cgroups
from adapter.runtime.confinement import UNCONFINED, ProcessConfig, device_nodes
from adapter.runtime.process import ProcessRuntime
from adapter.runtime.workspace import Workspace
from marketplace.domain.work.workload import (
    Egress,
    EgressMode,
    ExitReason,
    WorkloadSpec,
    WorkloadState,
)
from tests.integration.support import images
from tests.requires import need_bubblewrap

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def need_own_groups() -> None:
    need_bubblewrap()
    root = Cgroups().root
    writable = os.geteuid() == 0 and any(os.access(root / d, os.W_OK) for d in ("cpu", "."))
    if not writable:
        pytest.skip("own control groups need root and a writable /sys/fs/cgroup")


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    need_own_groups()
    return ProcessRuntime(ProcessConfig(tmp_path, images.lease_id("a")))


def spec(code: str, **changes: object) -> WorkloadSpec:
    fields: dict[str, object] = {
        "lease": images.lease_id(),
        "image": "",
        "command": ("python3", "-u", "-c", code),
        "memory_mib": 128,
        "disk_mib": 32,
        "pids": 64,
        **changes,
    }
    return WorkloadSpec(**fields)  # type: ignore[arg-type]


def _proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _uid(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


async def test_what_runs_as_root_sees_no_variable_of_a_tenant(runtime: ProcessRuntime) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's adapter runs anything as root")
    mine = {"MARK": "tenant", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    odd = "a 'quoted'\n$(touch /workspace/run) `x` \\"
    job = spec("import time; time.sleep(60)", env={**mine, "ODD": odd}, secrets={"TOKEN": "sesame"})
    async with images.running(runtime, job) as handle:
        seen: dict[int, list[bytes]] = {}
        for _ in range(1200):
            seen = {}
            for pid in runtime.cgroups.pids(handle.cgroup):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it just ended
                    seen.setdefault(_uid(pid), []).append(_proc(pid, "environ"))
                    assert b"sesame" not in _proc(pid, "cmdline")
            if any(b"MARK=tenant" in environ for environ in seen.get(10001, [])):
                break
            await anyio.sleep(0.05)
        assert any(b"TOKEN=sesame" in environ for environ in seen[10001])
        assert any(f"ODD={odd}".encode() in environ for environ in seen[10001])
        roots = seen.get(0, [])
        assert roots, "bubblewrap waits as root"
        assert not any(b"MARK" in one or b"GLIBC" in one or b"sesame" in one for one in roots)


async def test_files_are_written_through_no_link_that_a_tenant_left(tmp_path: Path) -> None:
    """A start that was cut off after the tenant's code ran is made again in the same folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("safe")
    place = Workspace(tmp_path, "lease_x")
    place.create({}, os.geteuid(), os.getegid())
    (place.path / "in.txt").symlink_to(outside / "victim")
    (place.path / "sub").symlink_to(outside)
    place.create({"in.txt": b"a", "sub/victim": b"b"}, os.geteuid(), os.getegid())
    assert (outside / "victim").read_text() == "safe"
    assert (place.path / "sub" / "victim").read_bytes() == b"b"


async def test_a_lease_from_start_to_outputs(runtime: ProcessRuntime) -> None:
    code = (
        "import os; print(open('in.txt').read(), os.environ['TOKEN'], os.getuid(), os.getcwd())\n"
        "open('out.txt', 'w').write('made'); os.symlink('/etc/shadow', 'link')"
    )
    job = spec(code, files={"in.txt": b"given"}, secrets={"TOKEN": "sesame"})
    async with images.running(runtime, job) as handle:
        status = await images.until_status(runtime, handle, WorkloadState.EXITED)
        assert status.reason is ExitReason.COMPLETED
        said = (await runtime.logs(handle, 0, 1000)).data
        assert said == b"given sesame 10001 /workspace\n"
        outputs = await runtime.outputs(handle, ("*",), 10)
        with tarfile.open(outputs.path) as archive:
            assert archive.getnames() == ["in.txt", "out.txt"]
        assert outputs.skipped == ("link: a link",)
        stored = "".join(p.read_text() for p in runtime._folder(job.lease).iterdir())
        assert "sesame" not in stored, "a secret lies on the disk"
    assert (await runtime.logs(handle, 0, 5)).data == b"given"
    assert not runtime.cgroups.pids(handle.cgroup)
    await runtime.remove(handle)


async def test_it_outlives_its_adapter_and_is_adopted(runtime: ProcessRuntime) -> None:
    job = spec("import time\nwhile True: print('tick', flush=True); time.sleep(0.05)")
    async with images.running(runtime, job) as handle:
        await images.until_log(runtime, handle, lambda said: b"tick" in said)
        after = ProcessRuntime(runtime.config)
        assert await after.adopt() == [handle]
        assert (await after.start(job)).pid == handle.pid
        await after.pause(handle)
        assert (await after.status(handle)).state is WorkloadState.PAUSED
        await after.resume(handle)
        said = await after.exec(handle, ("id", "-u"), 20_000, 100)
        assert (said.exit_code, said.output) == (0, b"10001\n")
        slow = await after.exec(handle, ("sleep", "300"), 500, 100)
        assert slow.exit_code == 137
        assert (await after.status(handle)).memory_mib > 0
        stopped = await after.stop(handle, 5000)
        assert (stopped.state, stopped.reason) == (WorkloadState.EXITED, ExitReason.STOPPED)


async def test_it_sees_little_and_can_do_less(runtime: ProcessRuntime) -> None:
    code = """
import json, os
facts = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
def write(path):
    try: open(path, 'w').close(); return True
    except OSError: return False
print(json.dumps([int(facts['CapEff'], 16) | int(facts['CapBnd'], 16), facts['NoNewPrivs'].strip(),
    os.listdir('/sys/class/net') if os.path.exists('/sys/class/net') else [],
    write('/usr/x'), write('/etc/x'), write('/proc/sys/kernel/core_pattern'), write('x'),
    write('/tmp/x'), write('/dev/shm/x'), write('/dev/x'),
    os.path.exists('/etc/shadow'), os.path.exists('/var/run/docker.sock'),
    len([p for p in os.listdir('/proc') if p.isdigit()]) < 10]))
"""
    _status, said = await images.outcome(runtime, spec(code))
    assert json.loads(said) == [
        0, "1", [], False, False, False, True, True, True, False, False, False, True
    ]  # fmt: skip


async def test_it_sees_the_folders_that_its_provider_shows_and_changes_nothing_there(
    tmp_path: Path,
) -> None:
    """Beside the interpreter of the adapter's own, wherever both are."""
    need_own_groups()
    shown, hidden = tmp_path / "shown" / "stack", tmp_path / "shown" / "other"
    for folder in (shown, hidden):
        folder.mkdir(parents=True)
        (folder / "said").write_text("of the provider")
    config = ProcessConfig(tmp_path, images.lease_id("a"), readable=(str(shown),))
    code = f"""
import os, sys
print(open({str(shown / "said")!r}).read(), os.path.exists({str(hidden)!r}), sys.base_prefix)
try: open({str(shown / "new")!r}, 'w')
except OSError as error: print(type(error).__name__)
"""
    _status, said = await images.outcome(ProcessRuntime(config), spec(code))
    assert said == f"of the provider False {sys.base_prefix}\nOSError\n"
    assert not (shown / "new").exists()


async def test_the_hosts_services_are_out_of_reach(runtime: ProcessRuntime) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import socket\ntry: socket.create_connection(('127.0.0.1', {port}), 2); print('in')\n"
            "except OSError: print('out')"
        )
        _status, said = await images.outcome(runtime, spec(code))
    assert said == "out\n"


async def test_hog_bomb_filler_and_flood_are_held(runtime: ProcessRuntime) -> None:
    hog = spec("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mib=48)
    status, _ = await images.outcome(runtime, hog)
    assert status.reason is ExitReason.OUT_OF_MEMORY

    bomb = spec(
        "import os, time\nn = 0\ntry:\n    while n < 5000:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n        n += 1\n"
        "except OSError: print('held at', n, flush=True)\nos._exit(9)",
        pids=24,
    )
    status, said = await images.outcome(runtime, bomb)
    assert status.times.exit_code == 9 and 0 < int(said.split()[-1]) < 24

    filler = spec(
        "import time\nn = 0\nwhile True:\n"
        "    open(str(n), 'wb').write(bytes(4 << 20)); n += 1; time.sleep(0.05)",
        disk_mib=12,
    )
    status, _ = await images.outcome(runtime, filler)
    assert status.reason is ExitReason.DISK_LIMIT

    flood = spec(
        "import sys\nfor n in range(50_000): sys.stdout.write('y' * 99 + '\\n')", log_limit_kib=64
    )
    async with images.running(runtime, flood) as handle:
        await images.until_status(runtime, handle, WorkloadState.EXITED, 120)
        assert 0 < len((await runtime.logs(handle, 0, 1 << 22)).data) <= 64 << 10


async def test_a_dead_shim_is_a_lost_workload(runtime: ProcessRuntime) -> None:
    async with images.running(runtime, spec("import time; time.sleep(300)")) as handle:
        facts = json.loads((runtime._folder(handle.lease) / "status.json").read_text())
        os.kill(int(facts["shim"]), 9)
        status = await images.until_status(runtime, handle, WorkloadState.EXITED)
        assert status.reason is ExitReason.LOST
        assert status.reason.by_provider


async def test_a_command_that_does_not_exist_is_reported(runtime: ProcessRuntime) -> None:
    status, said = await images.outcome(runtime, spec("", command=("no-such-program",)))
    assert status.reason is ExitReason.CRASHED
    assert "no-such-program" in said


async def test_what_it_cannot_give_is_refused(tmp_path: Path) -> None:
    sandboxed = ProcessRuntime(ProcessConfig(tmp_path, "a", bubblewrap="/usr/bin/bwrap"))
    for changes in (
        {"image": "sha256:" + "0" * 64},
        {"command": ()},
        {"egress": Egress(EgressMode.OPEN)},
        {"egress": Egress(EgressMode.LIST, ("example.org:443",))},
        {"ports": (8000,)},
    ):
        with pytest.raises(RuntimeRefused):
            await sandboxed.start(spec("pass", **changes))
    bare = ProcessRuntime(ProcessConfig(tmp_path, "a", bubblewrap=None))
    assert bare.confinement == UNCONFINED
    with pytest.raises(RuntimeRefused, match=UNCONFINED):
        await bare.start(spec("pass"))
    with pytest.raises(RuntimeRefused):
        await bare.prepare("sha256:" + "0" * 64, print)


async def test_a_process_reaches_out_only_where_it_may(tmp_path: Path) -> None:
    """The host's network is shared for what asked for all of it; ports alone do not bring it."""
    need_own_groups()
    shared = ProcessRuntime(ProcessConfig(tmp_path, images.lease_id("a"), host_network=True))
    there = "203.0.113.2"
    code = (
        f"import socket\ntry: socket.create_connection(('{there}', 8099), timeout=3); print('reached')\n"
        "except OSError: print('closed')"
    )
    with images.outside(there):
        for egress, word in ((Egress(), "closed"), (Egress(EgressMode.OPEN), "reached")):
            _status, said = await images.outcome(shared, spec(code, egress=egress))
            assert said.strip() == word
        with pytest.raises(RuntimeRefused, match="whole or not at all"):
            await shared.start(spec(code, ports=(8000,)))


async def test_unconfined_runs_only_where_the_provider_says_so(tmp_path: Path) -> None:
    need_own_groups()
    bare = ProcessRuntime(
        ProcessConfig(tmp_path, "bare", bubblewrap=None, unconfined=True, host_network=True)
    )
    job = spec("", command=("/bin/sh", "-c", "id -u"), egress=Egress(EgressMode.OPEN))
    status, said = await images.outcome(bare, job)
    assert (status.reason, said) == (ExitReason.COMPLETED, "10001\n")


def test_gpus_become_device_files_by_the_drivers_table(tmp_path: Path) -> None:
    card = tmp_path / "0000:01:00.0"
    card.mkdir()
    (card / "information").write_text("Model: \t X\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n")
    assert device_nodes(("GPU-1",), tmp_path)[-1] == "/dev/nvidia3"
    with pytest.raises(RuntimeRefused):
        device_nodes(("GPU-2",), tmp_path)


async def test_waiting_is_bounded(runtime: ProcessRuntime) -> None:
    with anyio.fail_after(60):
        status, _ = await images.outcome(runtime, spec("raise SystemExit(3)"))
    assert status.times.exit_code == 3


LAID_OVER = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
assert libc.unshare(0x10000000 | 0x00020000) == 0
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
open("/proc/self/gid_map", "w").write(f"0 {gid} 1")
for path in ("/usr/bin/setpriv", "/usr/bin/env", "/usr/bin/id", "/bin/sh"):
    assert libc.mount(b"/workspace/evil", path.encode(), None, 4096, None) == 0, path
libc.prctl(15, b"bwrap", 0, 0, 0)
print("laid over", flush=True)
time.sleep(60)
"""
TELLS = (
    b"#!/workspace/sh\nid -u > /workspace/proof; grep Cap /proc/self/status >> /workspace/proof\n"
)
SHELL = Path("/bin/sh").read_bytes()
SHOWS = "import os; print(os.getresuid(), os.getgroups(), open('/proc/self/status').read())"


async def test_a_command_inside_is_never_root_whatever_a_tenant_lays_over_the_hosts_programs(
    runtime: ProcessRuntime,
) -> None:
    files = {"evil": TELLS, "sh": SHELL}
    one = spec(LAID_OVER, files=files)
    handle = await runtime.start(one)
    try:
        with anyio.fail_after(60):
            while b"laid over" not in (await runtime.logs(handle, 0, 4000)).data:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        said = await runtime.exec(handle, ("id", "-u"), 20_000, 4000)
        assert said.exit_code == 0 and said.output.strip() == b"10001"
        said = await runtime.exec(handle, ("python3", "-c", SHOWS), 20_000, 4000)
        lines = dict(x.split(b":\t", 1) for x in said.output.splitlines() if b":\t" in x)
        assert said.output.startswith(b"(10001, 10001, 10001) []")
        assert {
            int(lines[b"Cap" + kind], 16) for kind in (b"Inh", b"Prm", b"Eff", b"Bnd", b"Amb")
        } == {0}
        assert lines[b"NoNewPrivs"].strip() == b"1"
        proof = runtime.config.state / "workspaces" / one.lease / "proof"
        assert not proof.exists(), proof.read_text()
    finally:
        await runtime.remove(handle)


async def test_a_terminal_inside_is_the_workloads_and_ends_with_whoever_sits_there(
    runtime: ProcessRuntime,
) -> None:
    handle = await runtime.start(spec("import time; time.sleep(300)"))
    try:
        terminal = await runtime.terminal(handle, ("sh",), 40, 100)
        # The last one says that it has the foreground: before, a Ctrl-C is the shell's own.
        runs = b"sh -c 'echo $((6 * 7)); exec sleep 300'"
        await terminal.write(b"id -u; stty size; echo $TERM; " + runs + b"\n")
        seen = b""
        with anyio.fail_after(60):
            while b"\n42\r" not in seen:
                seen += await terminal.read()
            assert b"xterm-256color" in seen
            assert b"10001" in seen and b"40 100" in seen
            await terminal.write(b"\x03")  # Ctrl-C, which ends what runs in the foreground
            # The kernel empties both ways at a Ctrl-C after it has sent the signal: what is typed
            # then may be lost, and the shell's prompt, too. So it is asked again.
            while b"\n48\r" not in seen:
                await terminal.write(b"echo $((6 * 8))\n")
                with anyio.move_on_after(1):
                    while b"\n48\r" not in seen:
                        seen += await terminal.read()
            await terminal.write(b"exit\n")
            while await terminal.read():
                pass
        await terminal.end()
        alone = await runtime.pids(handle)
        other = await runtime.terminal(handle, ("sh", "-c", "echo there; sleep 300"), 24, 80)
        with anyio.fail_after(30):
            while b"there" not in await other.read():
                pass
        assert await runtime.pids(handle) > alone
        await other.end()
        with anyio.fail_after(30):
            while await runtime.pids(handle) != alone:  # noqa: ASYNC110
                await anyio.sleep(0.05)
    finally:
        await runtime.remove(handle)


async def test_no_signal_is_ignored_or_held_back_inside(runtime: ProcessRuntime) -> None:
    """An adapter that a script has started in the background ignores SIGINT."""
    look = ("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; sleep 30")
    # Two are the C library's own, which lets nobody set them (signal(7), "Real-time signals").
    settable = sum(1 << (number - 1) for number in signal.valid_signals())
    was = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
    try:
        handle = await runtime.start(replace(spec(""), command=look))
        try:
            inside = (await runtime.exec(handle, (*look[:2], look[2][:-10]), 20_000, 1000)).output
            terminal = await runtime.terminal(handle, look, 24, 80)
            seen = b""
            with anyio.fail_after(60):
                while seen.count(b"Sig") < 2:
                    seen += await terminal.read()
                while (await runtime.logs(handle, 0, 1000)).data.count(b"Sig") < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            await terminal.end()
            for said in (inside, seen, (await runtime.logs(handle, 0, 1000)).data):
                held = [line.split() for line in said.decode().splitlines() if "Sig" in line]
                assert {(name, int(bits, 16) & settable) for name, bits in held} == {
                    ("SigBlk:", 0), ("SigIgn:", 0),
                }, said  # fmt: skip
        finally:
            await runtime.remove(handle)
    finally:
        signal.signal(signal.SIGINT, was)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})


async def test_a_command_inside_has_the_workloads_limits_and_ends_with_its_time(
    runtime: ProcessRuntime,
) -> None:
    handle = await runtime.start(spec("import time; time.sleep(60)"))
    try:
        said = await runtime.exec(
            handle, ("sh", "-c", "ulimit -f; ulimit -c; ulimit -n"), 20_000, 100
        )
        files, core, few = said.output.split()
        assert int(files) * 512 == 32 << 20 and int(core) == 0 and int(few) <= 16_384
        late = await runtime.exec(handle, ("setsid", "-w", "sleep", "4711"), 500, 100)
        assert late.exit_code == 137
        await runtime.pause(handle)
        with pytest.raises(RuntimeRefused, match="paused"):
            await runtime.exec(handle, ("true",), 5_000, 100)
        await runtime.resume(handle)
    finally:
        await runtime.remove(handle)
