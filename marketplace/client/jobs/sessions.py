"""Sessions: a program with a page, on a rented device, for as long as somebody works in it.

A session is a job like any other (``kind: service``, one port, all of ``/workspace`` as its
output), written by a command. What ends it when nobody works is the program's own affair, inside
the workload: the consumer's job, the consumer's rule, and no word of the provider's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from marketplace.client.jobs import in_session, jobfiles
from marketplace.domain.work.image_names import is_loopback
from marketplace.domain.work.jobfile import parse, settings
from marketplace.domain.work.jobfile.settings import Setting
from marketplace.domain.work.shells import ANY_SHELL
from marketplace.jobtext import tree

_IN_SESSION: Final = Path(__file__).with_name("in_session.py")
KEPT: Final = "/workspace/*"
TAKEN_UP: Final = f"/workspace/{in_session.TAKEN_UP}"
PYPI: Final = ["pypi.org:443", "files.pythonhosted.org:443"]
_LOCK: Final = "/workspace/.packages.lock"
_LOCKS: Final = Path(__file__).with_name("packages")


@dataclass(frozen=True)
class Program:
    """What a session runs. *image*: a public one that it can run in; *local*: the one that
    ``tally up`` makes of what is published for this machine's Python. *command*: by
    ``in_session``, which ends it; *watch*: what it goes by. *port*: of its page, 0 for none;
    *ready*: a path there that answers once it can be used. *package*: its module, which *lock* has
    from PyPI; *installs*: also in the workload, where the image lacks it.
    """

    name: str
    image: str
    local: str
    command: tuple[str, ...]
    watch: Literal["jupyter", "visits", "terminals"]
    port: int = 0
    ready: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    package: str = ""
    lock: Path | None = None
    installs: bool = False

    def image_at(self, market: str) -> str:
        """The one to use at *market*, where none is named."""
        return self.local if is_loopback(urlsplit(market).netloc) else self.image

    def job(
        self,
        image: str,
        idle_ms: int,
        changes: Sequence[Setting],
        archive: Path | None = None,
        files: Sequence[Path] = (),
    ) -> jobfiles.LoadedJob:
        """Its job, with *changes* laid over it; *archive*: the files of one before; *files* lie in
        its workspace beside those.
        """
        text: dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "kind": "service",
            "image": image,
            "command": ["python3", "-c", _IN_SESSION.read_text("utf-8"), *self.command],
            "resources": {"cpu": 1, "memory": "1GB"},
            "env": {"IDLE_S": str(idle_ms // 1000), "WATCH": self.watch, **_HOMES, **self.env},
            "ports": [{"port": self.port, "auth": "token"}] if self.port else [],
            "outputs": [KEPT],
            "price": {"budget": "5 ADA"},
            "policy": {"max_duration": "8h"},
        }
        brought = [(one, f"/workspace/{one.name}") for one in files]
        brought += [(archive, TAKEN_UP)] if archive is not None else []
        if self.installs and self.lock is not None and image != self.local:
            text["env"] |= {"PACKAGE": self.package, "LOCK": _LOCK}
            text["egress"] = PYPI
            brought.append((self.lock, _LOCK))
        text["files"] = [{"src": str(src.resolve()), "dst": dst} for src, dst in brought]
        root = settings.laid_over(tree(json.dumps(text).encode(), self.name), changes)
        return jobfiles.gather(parse(root, self.name), Path())


_HOMES: Final = {
    # What a person installs or sets is kept with the workspace, what programs note down is not.
    "HOME": "/workspace",
    "XDG_CACHE_HOME": "/tmp/cache",
    "IPYTHONDIR": "/tmp/ipython",
    "JUPYTER_CONFIG_DIR": "/tmp/jupyter/config",
    "JUPYTER_DATA_DIR": "/tmp/jupyter/data",
    "JUPYTER_RUNTIME_DIR": "/tmp/jupyter/runtime",
}
# Nobody but the owner and those with a link comes this far, so it asks for no token of its own.
_JUPYTER: Final = (
    "python3", "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=0.0.0.0",
    "--ServerApp.port=8888", "--ServerApp.port_retries=0", "--ServerApp.root_dir=/workspace",
    "--ServerApp.allow_remote_access=True", "--IdentityProvider.token=",
)  # fmt: skip

NOTEBOOK: Final = Program(
    "notebook",
    image="quay.io/jupyter/minimal-notebook:latest",
    local="tally/jupyter:local",
    command=_JUPYTER,
    watch="jupyter",
    port=8888,
    ready="api/status",
    package="jupyterlab",
    lock=_LOCKS / "jupyter.lock",
)
_PYTHON: Final = "docker.io/library/python:3.11-slim"
SHELL: Final = Program(
    "shell",
    image=_PYTHON,
    local="tally/python:local",
    command=("sleep", "infinity"),
    watch="terminals",
)
"""Its terminals are opened beside it: ``tally job shell``."""
SEAT: Final = (*ANY_SHELL[:-1], f"while [ -e {TAKEN_UP} ]; do sleep 0.1; done; {ANY_SHELL[-1]}")
"""The first of them: once the files of the session before are there."""


def app_of(file: str, port: int = 7860) -> Program:
    """A program of one's own with a page, in Python: Gradio's, or any other that listens where
    ``PORT`` says. *file*: its name in the workspace.
    """
    env = {
        "PORT": str(port),
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",  # nobody hears of it but those who are let in
        "GRADIO_SSR_MODE": "False",
        "GRADIO_TEMP_DIR": "/tmp/gradio",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONUNBUFFERED": "1",
    }
    return Program(
        "app", image=_PYTHON, local="tally/gradio:local", command=("python3", file),
        watch="visits", port=port, env=env, package="gradio", lock=_LOCKS / "gradio.lock",
        installs=True,
    )  # fmt: skip


APP: Final = app_of("app.py")
