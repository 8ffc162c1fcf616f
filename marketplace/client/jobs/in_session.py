"""Runs in the workload of a session, and needs nothing there but Python: takes up the files of a
session before, starts JupyterLab, and ends it once nobody has worked in it for ``IDLE_S`` seconds.

JupyterLab can end by itself, but a page that is merely open asks it something every few seconds,
and that would count. What counts here: a kernel or a terminal that does something, and a file that
changes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.request import urlopen

TAKEN_UP = ".taken-up.tar"
SERVER = "http://127.0.0.1:8888"
LOOK_S = 5.0
MOST_FILES = 50_000  # of which the times are looked at


def take_up() -> None:
    """What the session before left is here again."""
    if os.path.exists(TAKEN_UP):
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(TAKEN_UP) as archive:
            archive.extractall(".", **safely)
        os.remove(TAKEN_UP)


def last_work(now: float) -> float:
    """When somebody last worked, in seconds since 1970; 0.0 where nothing shows any work."""
    times = list(_files("."))
    for one in (*_asked("kernels"), *_asked("terminals")):
        if one.get("execution_state") == "busy":
            return now
        try:
            said = str(one["last_activity"]).replace("Z", "+00:00")
            times.append(datetime.fromisoformat(said).timestamp())
        except (KeyError, ValueError):
            return now  # it says nothing that can be read: better too long than too short
    return max((at for at in times if at <= now), default=0.0)


def _asked(what: str) -> list[dict[str, Any]]:
    """A list of the server's; empty while it does not say."""
    try:
        with urlopen(f"{SERVER}/api/{what}", timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return []


def _files(top: str) -> Iterator[float]:
    """When each file below *top* was last written."""
    looked = 0
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_mtime
            except OSError:
                continue  # it is gone
        looked += len(names)
        if looked > MOST_FILES:
            return


def main(command: Sequence[str], idle_s: int) -> int:
    """The exit code of *command*; 0 where it was ended."""
    take_up()
    program, ended = subprocess.Popen(command), False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        program.terminate()

    signal.signal(signal.SIGTERM, end)
    since = time.time()
    while True:
        try:
            code = program.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            now = time.time()
            if not ended and now - max(since, last_work(now)) >= idle_s:
                sys.stdout.write(f"nobody worked here for {idle_s} s: the session ends\n")
                sys.stdout.flush()
                end()
        else:
            return 0 if ended else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], int(os.environ["IDLE_S"])))
