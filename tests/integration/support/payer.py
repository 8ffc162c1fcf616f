"""``tally payer run`` beside a test's other commands."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from tests.integration.support.client import until


class Shell(Protocol):
    """What has the environment of a test's commands."""

    env: dict[str, str]


@asynccontextmanager
async def paying(shell: Shell) -> AsyncGenerator[list[Mapping[str, Any]]]:
    """What a payer of the shell's home says, from when it is ready until it has left."""
    said: list[Mapping[str, Any]] = []
    command = [sys.executable, "-m", "marketplace.cli.main", "payer", "run", "--json"]
    async with await anyio.open_process(command, env=shell.env, stdin=-3) as daemon:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, daemon, said)
            try:
                await until(lambda: any(row["event"] == "ready" for row in said), 120)
                yield said
                daemon.send_signal(signal.SIGTERM)
                with anyio.fail_after(120):
                    assert await daemon.wait() == 0
            finally:
                if (
                    daemon.returncode is None
                ):  # the test failed: its failure is not to be waited out
                    daemon.kill()


async def _listen(daemon: Any, said: list[Mapping[str, Any]]) -> None:
    held = b""
    async for chunk in daemon.stdout:
        *lines, held = (held + chunk).split(b"\n")
        said += [json.loads(line) for line in lines if line.startswith(b"{")]
