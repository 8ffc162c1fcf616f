"""Visitors of a service who never stop: each asks, waits for the answer, and asks again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import httpx

PAUSE_S = 0.02


@dataclass
class Visitors:
    """*count* of them ask at *url*, every tenth time with a POST. *answers*: by method and status,
    0 where there was none; *said*: how often each text was.
    """

    url: str
    count: int = 6
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    over: bool = False

    async def run(self) -> None:
        """Until *over*."""
        at = urlsplit(self.url)
        base, host = f"{at.scheme}://127.0.0.1:{at.port}", {"Host": at.netloc}
        async with httpx.AsyncClient(base_url=base, headers=host, timeout=120) as client:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.count):
                    tasks.start_soon(self._visit, client)

    async def _visit(self, client: httpx.AsyncClient) -> None:
        turn = 0
        while not self.over:
            turn += 1
            method = "POST" if turn % 10 == 0 else "GET"
            try:
                answer = await client.request(
                    method, "/", content=b"x" if method == "POST" else b""
                )
                self.answers[method, answer.status_code] += 1
                if answer.status_code == httpx.codes.OK:
                    self.said[answer.text] += 1
                else:
                    self.broken.append(f"{method} {answer.status_code} {answer.text[:300]}")
            except httpx.HTTPError as error:
                self.answers[method, 0] += 1
                self.broken.append(f"{method} {type(error).__name__}: {error}")
            await anyio.sleep(PAUSE_S)

    def failed(self, method: str) -> int:
        """How many of *method* got no good answer."""
        return sum(n for (m, status), n in self.answers.items() if m == method and status != 200)
