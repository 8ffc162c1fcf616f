"""Runs in the workload of a session, and needs nothing there but Python: takes up the files of a
session before, starts its program, and ends it once nobody has worked in it for ``IDLE_S`` seconds,
which it says a while before.

JupyterLab can end by itself, but a page that is merely open asks it something every few seconds,
and that would count. What counts here: a kernel or a terminal that does something, and a file that
changes; of any other program, that somebody comes, and that it computes.
"""

from __future__ import annotations

import contextlib
import importlib.util
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
WARN_S = 300.0
# Of a core: what computes takes more. What waits takes less: Gradio, which looks at its queue 20
# times a second, 0.07 of a slow one.
BUSY = 0.25
SAYS = "session: "  # begins what is said here
MOST_FILES = 50_000  # of which the times are looked at


def take_up() -> None:
    """What the session before left is here again; what came with this one stays as it is."""
    if os.path.exists(TAKEN_UP):
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(TAKEN_UP) as archive:
            old = [one for one in archive if one.isdir() or not os.path.lexists(one.name)]
            archive.extractall(".", old, **safely)
        os.remove(TAKEN_UP)


def install() -> None:
    """The packages of a lock that came along, where this image lacks them: versions and hashes as
    they were chosen, whoever serves them.
    """
    name = os.environ.get("PACKAGE", "")
    if name and importlib.util.find_spec(name) is None:
        say(f"{name} is not in this image: it is installed from PyPI")
        lock = os.environ["LOCK"]
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        hashed = ("--require-hashes", "--no-cache-dir", "--requirement", lock)
        subprocess.run((*pip, "install", *hashed), check=True)


def say(what: str) -> None:
    """A line for whoever began the session, among those of its program."""
    sys.stdout.write(f"{SAYS}{what}\n")
    sys.stdout.flush()


class Jupyter:
    """What a person does in JupyterLab: kernels, terminals, files."""

    def last_work(self, now: float) -> float:
        """When somebody last worked, in seconds since 1970; 0.0 where nothing shows any work."""
        return last_work(now)


class Visits:
    """Who comes to any other program's page: connections that were made to it, by the kernel's
    count, and what its processes compute. A page that is merely open holds the connections that it
    has, and makes none.
    """

    def __init__(self) -> None:
        self._seen: int | None = _visits()
        self._used, self._at, self._last = _used(), time.monotonic(), 0.0

    def last_work(self, now: float) -> float:
        """As of :class:`Jupyter`."""
        seen, used, at = _visits(), _used(), time.monotonic()
        busy = used - self._used > BUSY * (at - self._at)
        if seen is None or seen != self._seen or busy:
            self._last = now
        self._seen, self._used, self._at = seen, used, at
        return self._last


class Terminals:
    """Whoever sits at a terminal here, by when it last heard or showed something, as ``w`` counts;
    and what computes meanwhile.
    """

    def __init__(self) -> None:
        self._used, self._at, self._last = _used(), time.monotonic(), 0.0

    def last_work(self, now: float) -> float:
        """As of :class:`Jupyter`."""
        used, at = _used(), time.monotonic()
        if used - self._used > BUSY * (at - self._at):
            self._last = now
        self._used, self._at = used, at
        return max([self._last, *(one for one in _sat_at() if one <= now)])


def _sat_at() -> Iterator[float]:
    """When each terminal was last read or written (tty_io.c: to 8 s)."""
    with contextlib.suppress(OSError), os.scandir("/dev/pts") as found:
        for one in found:
            if one.name.isdecimal():
                with contextlib.suppress(OSError):
                    times = one.stat()
                    yield max(times.st_atime, times.st_mtime)


def _visits() -> int | None:
    """TCP connections that were accepted here (``PassiveOpens``, RFC 1213); None where that cannot
    be read, which counts as work.
    """
    try:
        with open("/proc/net/snmp") as file:
            names, numbers = [line.split() for line in file if line.startswith("Tcp:")]
        return int(numbers[names.index("PassiveOpens")])
    except (OSError, ValueError):
        return None


def _used() -> float:
    """Seconds of processor time of all processes here but this one, less those that are gone."""
    ticks = 0
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue  # it is gone
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


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


def main(command: Sequence[str], idle_s: int, watch: Jupyter | Visits | Terminals) -> int:
    """The exit code of *command*; 0 where it was ended."""
    take_up()
    install()
    program, ended, warned = subprocess.Popen(command), False, False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        program.terminate()

    signal.signal(signal.SIGTERM, end)
    since, left_s = time.time(), min(WARN_S, idle_s / 5)
    while True:
        try:
            code = program.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            now = time.time()
            idle = now - max(since, watch.last_work(now))
            if ended:
                continue
            if idle >= idle_s:
                say(f"nobody worked here for {idle_s} s: the session ends")
                end()
            elif idle >= idle_s - left_s:
                if not warned:
                    say(f"nobody has worked here for {int(idle)} s: it ends in {int(left_s)} s")
                warned = True
            else:
                warned = False
        else:
            return 0 if ended else code


if __name__ == "__main__":
    watched = {"jupyter": Jupyter, "visits": Visits, "terminals": Terminals}[os.environ["WATCH"]]
    sys.exit(main(sys.argv[1:], int(os.environ["IDLE_S"]), watched()))
