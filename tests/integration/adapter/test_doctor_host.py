"""The doctor on this very host: the container path is tried, nothing hangs, nothing is made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adapter.config import Config
from adapter.doctor.configured import examine, judge
from adapter.doctor.findings import CODES
from adapter.doctor.run import run_doctor
from adapter.doctor.trial import try_container
from adapter.doctor.world import DoctorConfig, World
from tests.integration.support import images
from tests.requires import need_docker


@pytest.mark.docker
def test_the_container_path_of_this_host_holds(tmp_path: Path) -> None:
    need_docker()
    images.python_image()
    assert try_container(DoctorConfig(state=tmp_path)) == []


@pytest.mark.docker
def test_a_simulated_host_is_examined_whole(tmp_path: Path) -> None:
    need_docker()
    images.python_image()
    config = Config(home=tmp_path, simulate="h100x2", market="")
    judged = judge(config)
    assert judged.payout and judged.gpu_request == "legacy"
    codes = {one.code for one in examine(config)}
    assert "GPU_SIMULATED" in codes or "CHECK_SLOW" in codes
    assert codes <= set(CODES)
    assert "CHECK_FAILED" not in codes


def test_a_host_without_docker_is_told_so(tmp_path: Path) -> None:
    config = DoctorConfig(state=tmp_path, docker_host=f"unix://{tmp_path}/none.sock")
    codes = {one.code for one in run_doctor(World(config), 60)}
    assert "DOCKER_UNREACHABLE" in codes


def test_the_doctor_needs_the_adapters_extra_only(tmp_path: Path) -> None:
    """Whatever the market needs cannot even be imported here."""
    code = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {'fastapi', 'numpy', 'sqlmodel', 'sqlalchemy', 'uvicorn', 'jinja2',
                                      'alembic', 'psycopg', 'py_mini_racer'}:
            raise ImportError(name)
sys.meta_path.insert(0, Wall())
from pathlib import Path
from adapter.config import Config
from adapter.doctor.configured import examine
from adapter.doctor.run import report_json
import adapter.main
print(report_json(examine(Config(state=Path(sys.argv[1])), quick=True)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert all(set(one) == {"code", "severity", "cause", "remedy"} for one in report["findings"])
