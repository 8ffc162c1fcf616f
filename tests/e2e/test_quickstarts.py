"""Everything written works as written: each ``sh`` block of README and quickstarts, in order, by
bash.

One embedded market serves all pages; it is started by the README's own `tally up`. Each page runs
as one script, as somebody who follows it in one terminal: what a block exports or starts is there
for the next. Nine blocks are left out here, each with its reason (``EXCEPT``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker
import pytest
from docker.errors import ImageNotFound

from adapter.runtime.docker.local_images import build_python
from tests.e2e.test_relay import build_relay, context, forget_relay, write_life
from tests.ports import free_port
from tests.requires import need_devnet, need_docker, need_node, need_volumes

ROOT: Final = Path(__file__).parents[2]
UP: Final = "tally up "
EXCEPT: Final = {
    "make demo": "`make demo` is tests/e2e/test_demo.py, and `make test` is what runs this test",
    "-m venv": "an install takes minutes: test_a_provider_installs_the_adapter_alone, in `make prove`",
    "make sdk": "packages of npm: tests/e2e/test_typescript.py builds the client and runs the example",
    "examples/clusters/": "needs a framework where its members run: tests/e2e/frameworks, in `make prove`",
    "--join": "a root's work beside a cluster that still runs: tests/e2e/test_cluster_guest.py",
    "ray job submit": "needs Ray here and there: tests/e2e/frameworks/test_ray_submit.py",
    "tally store ": "needs rclone, and a cluster that wrote to one: tests/e2e/test_cluster_store.py",
    UP: "serves until Ctrl-C: started by the fixture, on free ports",
}
SIGNS: Final = {
    "README.md": ["hello from a rented core 3", "COMPLETED"],
    "docs/developer.md": [
        "six by seven is 42", '{"epochs": 3', "agrees with the ledger to the lovelace", "reconciled: True",
        "Directory listing", "CANCELLED", '"job":{"version":1,"name":"hello"', '"matches":true',
        "did you mean 'image'?", '{"job":"job_', '"reason":"COMPLETED"',
    ],
    "docs/clusters.md": ["member 2 step 19", "COMPLETED", "RUN (version "],
    "docs/services.md": ["web-", " serves", "/.tally/enter?key=", "of revision", "web has ended"],
    "docs/webhooks.md": ["TEST"],
    "docs/money.md": ["channel stays open for 10m", "idle until", "the router", "came home", "no channel is open"],
    "docs/provider.md": ["SIMULATED NVIDIA L4", "enough for", "last payment", "finish"],
    "docs/operator.md": ["settle_hash", "fee.set", "rows restored"],
}  # fmt: skip
"""The pages, and what their commands must have printed."""
LONG: Final = frozenset(
    {
        "docs/clusters.md",
        "docs/developer.md",
    }
)  # about a minute each
RARE: Final = frozenset({"docs/money.md", "docs/operator.md", "docs/services.md"})
"""What they do is tried by tests of their own; they are followed in ``make nightly``."""
PATIENCE_S: Final = 400


def marks(page: str) -> tuple[pytest.MarkDecorator, ...]:
    """In which run it is followed; without one in ``make test``."""
    if page in RARE:
        return (pytest.mark.nightly,)
    return (pytest.mark.prove,) if page in LONG else ()


def blocks(page: str) -> list[tuple[int, str]]:
    """(line, text) of every ``sh`` block."""
    text = (ROOT / page).read_text()
    return [
        (text[: found.start()].count("\n") + 2, found[1])
        for found in re.finditer(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


def script(page: str) -> str:
    """The page's commands; before each block its line, so that a failure names its place."""
    lines = ["set -eo pipefail"]
    for line, text in blocks(page):
        if not any(mark in text for mark in EXCEPT):
            lines += [f"echo '>>> {page}:{line}' >&2", text]
    return "\n".join(lines)


@dataclass
class Place:
    """A folder as the reader of a checkout sees it, with a home of its own."""

    folder: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TALLY_")}
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return {**kept, "HOME": str(self.home), "XDG_CACHE_HOME": cache, "COLUMNS": "200"}

    def follow(self, text: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run *text* with bash; whatever it left behind is ended with it."""
        logs = [self.folder / f"{kind}-{time.monotonic_ns()}.log" for kind in ("out", "err")]
        with logs[0].open("w") as out, logs[1].open("w") as err:
            process = subprocess.Popen(
                ["bash", "-c", text], cwd=self.folder, env={**self.environment, **more},
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                end_group(process)
        said = [log.read_text() for log in logs]
        assert code != -1, f"not done after {PATIENCE_S} s\n{said[0][-3000:]}\n{said[1][-3000:]}"
        return subprocess.CompletedProcess(text, code, *said)


def python_image() -> str:
    """This machine's Python as an image."""
    client = docker.from_env()
    try:
        return build_python(client)
    finally:
        client.close()


def forget_images(begin: str) -> None:
    """Take from this machine's Docker the names that begin so."""
    client = docker.from_env()
    try:
        for image in client.images.list():
            for name in (*image.tags, *(image.attrs.get("RepoDigests") or ())):
                if name.startswith(begin):
                    with contextlib.suppress(ImageNotFound):  # gone with another name
                        client.images.remove(name, force=True)
    finally:
        client.close()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a while, SIGKILL: to what is left of a session that a test started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        for _ in range(150):
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """A folder that looks like the checkout, and `tally up` of the README served in its home."""
    with served(tmp_path_factory.mktemp("quickstarts"), "README.md") as made:
        yield made


@contextlib.contextmanager
def served(folder: Path, page: str, *more: str) -> Generator[Place]:
    """The same, by the `tally up` of *page*, and with *more* in place of ports that it names."""
    need_docker()
    need_devnet()
    made = Place(folder / "tally", folder / "home")
    made.home.mkdir()
    shutil.copytree(ROOT / "examples", made.folder / "examples")
    (made.folder / ".venv" / "bin").mkdir(parents=True)
    # `source .venv/bin/activate`, of whichever environment runs this test.
    activate = f'export PATH="{Path(sys.executable).parent}:$PATH"\n'
    (made.folder / ".venv" / "bin" / "activate").write_text(activate)
    [command] = [
        line.partition("#")[0].strip()
        for _, text in blocks(page)
        for line in text.splitlines()
        if line.startswith(UP)
    ]
    said, ports = folder / "up.log", " ".join(("--port 0 --devnet-port 0", *more))
    with said.open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"source .venv/bin/activate; exec {command} {ports}"],
            cwd=made.folder, env={**made.environment, "PYTHONUNBUFFERED": "1"}, stdout=log,
            stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "Tally is up" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        end_group(process)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in SIGNS])
def test_every_command_of_a_page_works(place: Place, page: str) -> None:
    done = place.follow(script(page), PORT=str(free_port()))
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stdout + done.stderr, done.stderr[-4000:]
    for sign in SIGNS[page]:
        assert sign in done.stdout, f"{sign!r} is not in\n{done.stdout}\n{done.stderr}"


@pytest.mark.nightly  # minutes: JupyterLab and Gradio come from PyPI; tests/e2e/sessions prove them
@pytest.mark.timeout(900)
def test_every_command_about_notebooks_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    page = "docs/notebooks.md"  # a folder with a short name: a socket's path has 107 bytes at most
    with served(tmp_path_factory.mktemp("sessions"), page) as place:
        done = place.follow(script(page))
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stdout + done.stderr, done.stderr[-4000:]
    for sign in (
        ".localhost:",
        "/.tally/enter?key=",
        "\n42\n",
        "CANCELLED",
        "/workspace/*",
    ):
        assert sign in done.stdout, f"{sign!r} is not in\n{done.stdout}\n{done.stderr}"
    # A line typed before the shell could read is shown above its prompt, and after that behind it.
    assert re.search(r"(?m)^(\$ )?kept$", done.stdout), done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_every_command_about_images_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    page, port = "docs/hub.md", free_port()
    try:
        with served(tmp_path_factory.mktemp("hub"), page, f"--registry {port}") as place:
            done = place.follow(script(page))
    finally:
        forget_images(f"127.0.0.1:{port}/")
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stdout + done.stderr, done.stderr[-4000:]
    for sign in (
        "small:v1",
        "run from the market's registry",
        "anybody",
        "images: none",
        '{"y": 42}',
    ):
        assert sign in done.stdout, f"{sign!r} is not in\n{done.stdout}\n{done.stderr}"


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_every_command_about_relays_works(place: Place, tmp_path: Path) -> None:
    """With another implementation of node-to-node in place of the image that the page names."""
    need_node()
    need_volumes(tmp_path)
    page = "docs/spo.md"
    write_life(tmp_path, (("tip", 900),))
    image = build_relay(context(python_image(), tmp_path / "life.json"), {"of": str(tmp_path)})
    try:
        done = place.follow(script(page), IMAGE=image)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        assert "Traceback" not in done.stdout + done.stderr, done.stderr[-4000:]
        for sign in (
            "volume: relay-1-chain", "direct: true", "its peers reach it at 127.0.0.1:", "at tip",
            "3001 at 127.0.0.1:", "each time that less than 20m is left",
        ):  # fmt: skip
            assert sign in done.stdout, f"{sign!r} is not in\n{done.stdout}\n{done.stderr}"
    finally:
        forget_relay(image)


def test_nothing_is_left_out_without_a_reason() -> None:
    left_out = [
        text for page in SIGNS for _, text in blocks(page) if any(m in text for m in EXCEPT)
    ]
    assert len(left_out) == 9 and len(EXCEPT) == 8
    assert all(any(mark in text for text in left_out) for mark in EXCEPT)
    assert all(blocks(page) for page in SIGNS)
    for page in SIGNS:
        fences = re.findall(r"^```(\w+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert not {"bash", "shell", "console"} & set(fences), f"{page}: write ```sh"


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_a_provider_installs_the_adapter_alone(tmp_path: Path) -> None:
    [install] = [text for _, text in blocks("docs/provider.md") if "-m venv" in text]
    made = Place(tmp_path / "tally", tmp_path / "home")
    made.home.mkdir()
    left = (".venv", ".git", "node_modules", "__pycache__", ".hypothesis", "tests")
    shutil.copytree(ROOT, made.folder, ignore=shutil.ignore_patterns(*left))
    lines = install.strip().splitlines()
    assert lines[-1].endswith("tally adapter doctor")
    base = f'export PATH="{Path(sys.base_prefix) / "bin"}:$PATH"'
    done = subprocess.run(
        ["bash", "-c", "\n".join([base, "set -e", *lines[:-1]])], cwd=made.folder,
        env=made.environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    doctor = made.follow(lines[-1])
    assert doctor.returncode in (0, 1), doctor.stderr  # 1: an error stands, and is named
    assert "PAYOUT_MISSING" in doctor.stdout and "Traceback" not in doctor.stderr
    bare = made.follow("~/.tally/venv/bin/tally market serve")
    assert bare.returncode == 2 and "EXTRA_MISSING" in bare.stderr
