"""Files are put into a workspace while its tenant, who owns it, swaps folders for links to
elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from adapter.runtime.workspace import Workspace

CALLS = 4_000  # before folders were opened by handle, some hundred were enough
TENANT = """
import os, shutil, sys
os.chdir(sys.argv[1])
print(flush=True)
aside = f"aside{os.getpid()}"
def may(act, *given):
    try: act(*given)
    except OSError: pass
while True:
    if not os.path.islink("a"): may(os.rename, "a", aside)
    may(os.symlink, sys.argv[2], "a")
    may(os.unlink, "a")
    may(os.mkdir, "a")
    shutil.rmtree(aside, ignore_errors=True)
"""


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cron").write_text("safe")
    place = Workspace(tmp_path, "lease_x")
    place.create({"a/b": b""}, os.geteuid(), os.getegid())
    command = [sys.executable, "-c", TENANT, str(place.path), str(outside)]
    tenants = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for one in tenants:
            assert one.stdout is not None and one.stdout.readline()
        for _ in range(CALLS):
            with contextlib.suppress(OSError):  # a start that fails is the tenant's own loss
                place.create({"a/cron": b"from the tenant"}, os.geteuid(), os.getegid())
            assert [p.name for p in outside.iterdir()] == ["cron"]
            assert (outside / "cron").read_text() == "safe"
    finally:
        for one in tenants:
            one.kill()
            one.communicate()
    assert outside.stat().st_mode & 0o777 == 0o755


def test_files_are_put_there_as_their_tenant_may_use_them(tmp_path: Path) -> None:
    place = Workspace(tmp_path, "lease_x")
    files = {"a/b/run": b"#!/bin/sh\n", "a/data": b"x", "top": b"y"}
    for _ in range(2):
        place.create(files, os.geteuid(), os.getegid())
        found = {str(p.relative_to(place.path)): p for p in place.path.rglob("*") if p.is_file()}
        assert {name: p.read_bytes() for name, p in found.items()} == files
        assert found["a/b/run"].stat().st_mode & 0o777 == 0o755
        assert found["top"].stat().st_mode & 0o777 == 0o644
    assert place.path.stat().st_mode & 0o777 == 0o700
