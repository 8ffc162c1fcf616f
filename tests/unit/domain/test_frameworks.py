"""What members of a cluster run where its file names a framework: one command for all, that acts by
the member's number.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.domain.work.frameworks import Framework, launched
from marketplace.domain.work.jobfile import write
from tests.ports import free_port

FILE = "version: 1\nimage: python:3.11\ncommand: [python3, train.py, 'a b']\n"
NAMED = [one for one in Framework if one is not Framework.NONE]


@pytest.mark.parametrize("framework", NAMED)
def test_what_is_run_is_part_of_the_job_and_one_for_all(framework: Framework) -> None:
    """Both sides sign it, and the members stay one group; written and read again it is the same."""
    spec = jobfiles.loads(f"{FILE}cluster: {{members: 3, min: 2, framework: {framework}}}").spec()
    assert spec.command[-3:] == ("python3", "train.py", "a b")
    assert spec.command == launched(framework, ("python3", "train.py", "a b"), 2, 3)
    members = spec.members()
    assert len({one.command for one in members}) == len({one.group for one in members}) == 1
    assert jobfiles.loads(json.dumps(write(spec))).spec() == spec


@pytest.mark.parametrize(("ports", "page"), [("", False), ("ports: [80]\n", False),
                                             ("ports: [80, 8265]\n", True)])  # fmt: skip
def test_rays_head_has_its_page_where_the_job_names_its_port(ports: str, page: bool) -> None:
    spec = jobfiles.loads(f"{FILE}{ports}cluster: {{members: 3, framework: ray}}").spec()
    script = spec.command[2]
    assert ("--include-dashboard=true" in script) == ("--dashboard-port=8265" in script) == page
    assert ("--include-dashboard=false" in script) == (not page)
    other = jobfiles.loads(f"{FILE}{ports}cluster: {{members: 3, framework: torchrun}}").spec()
    assert "dashboard" not in other.command[2]


def test_without_one_each_member_runs_the_command_itself() -> None:
    for more in ("cluster: {members: 3}", "cluster: {members: 3, framework: none}"):
        assert jobfiles.loads(FILE + more).spec().command == ("python3", "train.py", "a b")


def _run(
    folder: Path, member: int, framework: Framework, *command: str, **programs: str
) -> subprocess.CompletedProcess[str]:
    """As a member does, where each of *programs* is such a script."""
    for name, program in {"sleep": "", **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / name).chmod(0o755)
    env = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "TALLY_MEMBER": str(member), "TALLY_MESH_ADDRESS": "100.64.0.10",
    }  # fmt: skip
    line = launched(framework, command, 2, 3)
    return subprocess.run(
        line, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=30
    )


def test_torchrun_is_met_at_member_0_and_runs_the_command_word_for_word(tmp_path: Path) -> None:
    for member in (0, 2):
        command = ("python3", "it's.py", "a b")
        shows = r'printf "%s\n" "$@"'
        done = _run(tmp_path, member, Framework.TORCHRUN, *command, torchrun=shows)
        words = done.stdout.splitlines()
        assert done.returncode == 0, done
        assert words[-4:] == ["--no-python", *command]
        assert {"--nnodes=2:3", "--rdzv-endpoint=member-0:29400"} <= set(words)
        assert f"is_host={int(member == 0)}" in done.stdout


def test_torchrun_is_begun_anew_a_few_times_and_then_its_failure_is_the_members(
    tmp_path: Path,
) -> None:
    failing = _run(tmp_path, 1, Framework.TORCHRUN, "a", torchrun="echo begun; exit 7")
    assert (failing.returncode, failing.stdout.count("begun")) == (1, 5)
    mends = "echo begun >> log; [ $(wc -l < log) -ge 3 ]"
    mended = _run(tmp_path, 1, Framework.TORCHRUN, "a", torchrun=mends)
    assert (mended.returncode, (tmp_path / "log").read_text().count("begun")) == (0, 3)


def test_rays_head_runs_the_command_once_and_ends_as_it_does(tmp_path: Path) -> None:
    ray, ok = 'echo ray "$@"', "exit 0"
    command = ("sh", "-c", 'echo "at $RAY_ADDRESS $1"; exit $2', "sh", "a b")
    for code in ("0", "3"):
        done = _run(tmp_path, 0, Framework.RAY, *command, code, ray=ray, python3=ok)
        assert done.returncode == int(code), done
        assert done.stdout.splitlines()[1:] == ["at 100.64.0.10:6379 a b"]
        assert done.stdout.startswith("ray start --head --port=6379 ")
        assert "--node-ip-address=100.64.0.10" in done.stdout
        assert '--resources={"member":1}' in done.stdout


def test_ray_has_more_time_to_begin_than_its_own_half_minute(tmp_path: Path) -> None:
    done = _run(tmp_path, 0, Framework.RAY, "env", ray="", python3="exit 0")
    assert "RAY_agent_register_timeout_ms=120000" in done.stdout.splitlines()


def test_rays_head_fails_where_ray_does_not_begin_or_nobody_joins(tmp_path: Path) -> None:
    failing = _run(tmp_path, 0, Framework.RAY, "echo", "ran", ray="echo $1; exit 1")
    assert (failing.returncode, failing.stdout.count("start")) == (1, 5)
    alone = _run(tmp_path, 0, Framework.RAY, "echo", "ran", ray="", python3="exit 1")
    assert (alone.returncode, alone.stdout) == (1, "")


def test_a_ray_worker_that_finds_no_head_gives_up_and_does_not_fail(tmp_path: Path) -> None:
    """Whether the work was done is the head's to say; this one would be billed for ever."""
    done = _run(tmp_path, 1, Framework.RAY, "echo", "ran", ray='echo "$2"; exit 1')
    assert done.returncode == 0 and "ran" not in done.stdout
    assert done.stdout.splitlines() == ["--address=member-0:6379", "--force"] * 40


def test_hivemind_runs_a_script_of_python_that_names_its_port(tmp_path: Path) -> None:
    python, flag, script, *rest = launched(Framework.HIVEMIND, ("a", "b c"), 2, 3)
    assert (python, flag, rest) == ("python3", "-c", ["a", "b c"])
    compile(script, "hivemind", "exec")
    assert "29400" in script and "@" not in script


def test_a_hivemind_peer_tells_where_it_is_also_after_callers_that_hung_up(tmp_path: Path) -> None:
    """Whoever joins late asks for it; one that was killed in the middle of asking is forgotten."""
    (tmp_path / "hivemind.py").write_text(
        "class DHT:\n"
        "    def __init__(self, **_): pass\n"
        "    def get_visible_maddrs(self): return ['/here']\n"
    )
    port = free_port()
    python, flag, script, *command = launched(
        Framework.HIVEMIND, ("python3", "-c", CALLERS, str(port)), 2, 3
    )
    env = {
        **os.environ, "PYTHONPATH": str(tmp_path), "TALLY_MEMBER": "0", "TALLY_MEMBERS": "1",
        "TALLY_MESH_ADDRESS": "127.0.0.1",
    }  # fmt: skip
    line = [python, flag, script.replace("29400", str(port)), *command]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["/here", "/here"], done.stderr


CALLERS = """
import os, socket, struct, sys
door = ("127.0.0.1", int(sys.argv[1]))
for _ in range(200):
    caller = socket.create_connection(door, timeout=5)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
print(os.environ["HIVEMIND_PEERS"], flush=True)
print(socket.create_connection(door, timeout=5).makefile().read(), flush=True)
"""
