"""Runs parts of the product as processes of their own: each with a log file, all ended together.

A part is *ready* when it prints one JSON object on stdout; everything else it writes goes to its
log. A part that dies is started again with growing pauses, unless it says by its exit code that
trying again is no use (2 usage, 3 refused).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from marketplace.cli.shared.refusals import REFUSED, USAGE
from marketplace.domain.errors import Fault

READY_WITHIN_S: Final = 120.0
STOP_WITHIN_S: Final = 15.0
PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
STANDS_AFTER_S: Final = 60.0
"""A part that ran for so long has recovered: its next death is its first."""


class PartFailed(Fault):
    """A part of the embedded market did not become ready."""

    code = "PART_FAILED"
    remedy = "its log says more"


@dataclass
class Part:
    """One process: *argv* and *env* to start it, and its log under *log*."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    process: Process | None = None
    ready: dict[str, Any] = field(default_factory=dict[str, Any])
    starts: int = 0

    async def start(self) -> dict[str, Any]:
        """Starts it and waits for its JSON line; :class:`PartFailed` with the log's last line."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = await anyio.open_process(
                list(self.argv),
                stdin=-3,  # DEVNULL
                stdout=-1,  # PIPE: the ready line
                stderr=log.fileno(),
                env={**os.environ, **self.env},
                start_new_session=True,  # a Ctrl-C is ours to pass on, in order
            )
        try:
            with anyio.fail_after(READY_WITHIN_S):
                self.ready = await self._ready_line()
        except (TimeoutError, EOFError) as error:
            await self.stop()
            raise PartFailed(
                f"{self.name} did not start: {self.last_words()} (log: {self.log})"
            ) from error
        return self.ready

    async def _ready_line(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        text = TextReceiveStream(self.process.stdout, errors="replace")
        held = ""
        with suppress(anyio.EndOfStream):
            while True:
                held += await text.receive()
                *lines, held = held.split("\n")
                for line in lines:
                    if line.startswith("{"):
                        with suppress(ValueError):
                            return cast(dict[str, Any], json.loads(line))
        raise EOFError(self.name)

    async def drain(self) -> int:
        """Copies what it still prints to its log until it ends; its exit code."""
        assert self.process is not None and self.process.stdout is not None
        async with await anyio.open_file(self.log, "ab") as log:
            async for chunk in self.process.stdout:
                await log.write(chunk)
                await log.flush()
        return await self.process.wait()

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs, or if it never ran."""
        return self.process.returncode if self.process is not None else None

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when it does not listen; never by name."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(STOP_WITHIN_S):
                await process.wait()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await process.aclose()

    def last_words(self) -> str:
        """The last line of its log."""
        lines = (
            self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        )
        return lines[-1][-300:] if lines else "it said nothing"


async def keep_running(part: Part) -> None:
    """Watches a started *part* and starts it again when it dies; returns only when cancelled."""
    attempt, begun = 0, anyio.current_time()
    while True:
        code = await part.drain()
        attempt = 0 if anyio.current_time() - begun > STANDS_AFTER_S else attempt
        while True:
            if code in (USAGE, REFUSED):
                raise PartFailed(
                    f"{part.name} ended with code {code}: {part.last_words()} (log: {part.log})"
                )
            await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt, begun = attempt + 1, anyio.current_time()
            try:
                await part.start()
                break
            except PartFailed:  # what it needs may be dead as well: the pauses grow
                code = part.returncode
