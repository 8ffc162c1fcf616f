"""Volumes, and jobs that mount them, by job files and commands."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio

from marketplace.cli.embedded.product import Embedded
from tests.e2e.support.embedded import Command, command, tally, until_true

KEEP = "10s"


class DearDisk(Embedded):
    """Its disk costs enough that a minute of a small volume is money."""

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        path.write_text(path.read_text().replace('disk = "0.02 lovelace"', 'disk = "100 lovelace"'))
        return path


def job_file(folder: Path, name: str, **more: Any) -> str:
    """A job of a shell's line, or a volume."""
    path = folder / f"{name}.json"
    runs = {"resources": {"cpu": 0.5, "memory": "128MB"}, "policy": {"max_duration": "10m"}}
    path.write_text(
        json.dumps({"version": 1, "name": name, "price": {"budget": "3 ADA"}, **runs, **more})
    )
    return str(path)


@dataclass
class Renter:
    """A consumer with volumes; their commands run until *commands* is left."""

    folder: Path
    place: Embedded
    commands: AsyncExitStack

    async def ran(self, name: str, line: str, **more: Any) -> Command:
        """A job of *line*, to its end."""
        return await tally(*self.line(name, line, **more), env=self.place.environment)

    def line(self, name: str, line: str, **more: Any) -> tuple[str, ...]:
        """The command that runs it."""
        shell = {"image": self.place.image, "command": ["sh", "-c", line]}
        file = job_file(self.folder, name, **{**shell, **more})
        return ("job", "run", file, "--yes", "--json", "--keep", KEEP)

    async def told(self, name: str, line: str, **more: Any) -> str:
        """What a job of *line* said, which completes."""
        done = await self.ran(name, line, **more)
        assert done.last["reason"] == "COMPLETED", str(done)
        said = await tally("job", "logs", done.last["job"], env=self.place.environment)
        return "\n".join(said.out)

    async def rents(self, name: str, size: str = "64MB", **more: Any) -> tuple[Command, Any]:
        """The command that keeps a volume, and the volume's job, which runs."""
        disk = {"resources": {"disk": size}, "policy": {"max_duration": "7d"}}
        file = job_file(self.folder, name, kind="volume", **disk, **more)
        keeps = await self.commands.enter_async_context(
            command(
                "job", "run", file, "--yes", "--json", "--keep", KEEP, env=self.place.environment
            )
        )

        async def there() -> dict[str, Any] | None:
            await anyio.sleep(1)  # each look signs in, and the market counts requests
            return next((one for one in await self.rented() if one["name"] == name), None)

        try:
            return keeps, await until_true(there, f"the volume {name}")
        except AssertionError as error:
            raise AssertionError(f"no volume {name}: {keeps}") from error

    async def rented(self) -> list[dict[str, Any]]:
        """The volumes that run."""
        listed = await tally("volume", "list", "--json", env=self.place.environment)
        return cast("list[dict[str, Any]]", listed.last)

    async def ends(self, keeps: Command, volume: dict[str, Any]) -> None:
        """That volume."""
        stopped = await tally("job", "stop", volume["id"], env=self.place.environment)
        assert stopped.process.returncode == 0, str(stopped)
        await keeps.ended()
