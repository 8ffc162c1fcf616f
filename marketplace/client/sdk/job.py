"""A job in one's hand: its story, logs, outputs, bill. Reads come from the market, money from the
books.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast
from urllib.parse import quote

import anyio

from marketplace.client.net.answers import (
    DoneAnswer,
    EventAnswer,
    JobAnswer,
    JobEndAnswer,
    LogAnswer,
    OutputAnswer,
    OutputsAnswer,
    SampleAnswer,
    StoryAnswer,
    TickAnswer,
)
from marketplace.client.net.http import Http
from marketplace.client.net.reading import AnswerUnreadable, read
from marketplace.client.sdk import direct
from marketplace.client.sdk.outputs import prove, written
from marketplace.client.sdk.ports import Entrance
from marketplace.domain.errors import Fault, Malformed, Refusal
from marketplace.domain.money.evidence import Evidence, evidence_from_json, parse, strange_leases
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.invoice.verify import asked, reconcile
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.direct_port import DirectPorts
from marketplace.domain.work.shells import ANY_SHELL

if TYPE_CHECKING:
    from marketplace.chain.node.blockfrost import ChainReader
    from marketplace.client.jobs.runner import Runner
    from marketplace.client.sdk.terminal import Terminal

Json = dict[str, Any]
_POLL_S: Final = 0.3


class JobUnseen(Refusal):
    """Nobody has asked the market about the job yet."""

    code = "JOB_UNSEEN"
    remedy = "call refresh() or wait() first"


class KeptChannel(TypedDict):
    """A channel that stays open for the next job: its session key, how long it is kept once it is
    idle (ms), and the lovelace that come home then.
    """

    channel: str
    keep_ms: int
    comes_home: int


class _LeaseTerms(TypedDict):
    terms: str


_STORY: Final[dict[str, type[StoryAnswer]]] = {
    "event": EventAnswer,
    "tick": TickAnswer,
    "telemetry": SampleAnswer,
    "end": JobEndAnswer,
}


class Job:
    """One job. ``await job.wait()`` until it ended; ``job.view`` is the market's latest picture."""

    def __init__(
        self,
        http: Http,
        name: str,
        runner: Runner | None,
        chain: Callable[[], Awaitable[ChainReader]],
        keys: Callable[[], frozenset[bytes]],
    ) -> None:
        self.id = name
        self._seen: JobAnswer | None = None
        self._http = http
        self._runner = runner
        self._chain = chain
        self._keys = keys
        self._over = anyio.Event()
        self._error: Refusal | None = None
        self._followed = False

    def __repr__(self) -> str:
        return f"Job({self.id!r}, state={self.state!r})"

    # ---- fed by whoever follows it ---------------------------------------------------------

    async def saw(self, view: JobAnswer) -> None:
        """A new picture of it."""
        self._seen, self._followed = view, True

    def seen(self, view: JobAnswer) -> None:
        """Its last picture: it has ended."""
        self._seen = view
        self._over.set()

    def failed(self, refusal: Refusal) -> None:
        """Following it is over; the reason is raised by :meth:`wait`."""
        self._error = refusal
        self._over.set()

    # ---- its story -------------------------------------------------------------------------

    @property
    def view(self) -> JobAnswer:
        """The market's latest picture of it; :class:`JobUnseen` before the first."""
        if self._seen is None:
            raise JobUnseen(f"{self.id}: the market was not asked about it yet")
        return self._seen

    @property
    def state(self) -> str:
        """As last seen."""
        return self._seen["state"] if self._seen is not None else ""

    @property
    def reason(self) -> str:
        """Why it ended; empty while it has not."""
        return self._seen["reason"] if self._seen is not None else ""

    @property
    def exit_code(self) -> int | None:
        """Of the workload; None while it runs or if it never exited by itself."""
        return self._seen["exit_code"] if self._seen is not None else None

    @property
    def completed(self) -> bool:
        """It ended as it should."""
        return self.reason == "COMPLETED"

    @property
    def spent(self) -> int:
        """Lovelace approved so far: by the own book, else as the market says."""
        if self._runner is not None:
            own = self._runner.channels.told(self.id)
            if own:
                return own
        return self._seen["spent"] if self._seen is not None else 0

    async def refresh(self) -> JobAnswer:
        """Ask the market now."""
        view = read(JobAnswer, await self._http.get(f"/v1/jobs/{self.id}"), "job")
        self._seen = view
        return view

    async def wait(self) -> JobAnswer:
        """Until it has ended; its last picture. Raises what stopped the payer from following it."""
        if self._runner is not None and (self._followed or self.state in ("", "STARTING")):
            await self._until_over()
        while self.state != "ENDED":
            await self.refresh()
            if self.state != "ENDED":
                await anyio.sleep(_POLL_S)
        return self.view

    async def _until_over(self) -> None:
        while not self._over.is_set():
            with anyio.move_on_after(_POLL_S):
                await self._over.wait()
            if not self._followed and not self._over.is_set():
                await self.refresh()
                if self.state == "ENDED":
                    return
        if self._error is not None:
            raise self._error

    async def running(self) -> JobAnswer:
        """Until its workload runs, or it has ended before."""
        while self.state not in ("RUNNING", "PAUSED", "ENDING", "ENDED"):
            await self.refresh()
            await anyio.sleep(_POLL_S / 3)
        return self.view

    async def stop(self) -> JobAnswer:
        """Ask for its end; what was delivered until then is owed."""
        view = read(JobAnswer, await self._http.post(f"/v1/jobs/{self.id}/stop", {}), "job")
        self._seen = view
        return view

    async def settled(self, within_s: float = 60.0) -> bool:
        """Whether its channels have ended on chain in time; False for one that is kept open,
        too.
        """
        if self._runner is None:
            return False
        with anyio.move_on_after(within_s):
            return bool(await self._runner.settled(self.id))
        return False

    @property
    def kept(self) -> list[KeptChannel]:
        """Its channels that stay open for the next job."""
        if self._runner is None:
            return []
        return [
            {
                "channel": held.session_vk.hex(),
                "keep_ms": held.keep_ms,
                "comes_home": held.comes_home,
            }
            for held in self._runner.channels.kept(self.id)
        ]

    # ---- what it says ----------------------------------------------------------------------

    async def logs(self, *, follow: bool = True, since_ms: int = 0) -> AsyncIterator[str]:
        """Lines of its output; they outlive the lease. *since_ms*: only what came in then or
        later (ms since 1970), else from the beginning.
        """
        path = f"/v1/jobs/{self.id}/logs"
        since = {"since_ms": since_ms} if since_ms else {}  # a market of before knows no such word
        if not follow:
            text = (await self._http.text(path, **since)).decode("utf-8", "replace")
            for line in text.splitlines():
                yield line
            return
        held, done = "", False
        heard: dict[
            str, int
        ] = {}  # offset of the last piece by lease: a retry's log follows the first's
        while not done:
            try:
                async for event, data in self._http.lines(path, follow="true", **since):
                    if event == "end":
                        done = True
                        break
                    *lines, held = (held + _fresh(data, heard)).split("\n")
                    for line in lines:
                        yield line
            except Fault:  # the market was restarted, or the line was cut: go on where it stopped
                await anyio.sleep(_POLL_S)
        if held:
            yield held

    async def events(self, *, follow: bool = True) -> AsyncIterator[StoryAnswer]:
        """Its story as it happens, or so far; kinds that this version does not know are left
        out.
        """
        until_over = None if follow else "false"
        async for event, data in self._http.lines(f"/v1/jobs/{self.id}/events", follow=until_over):
            if (kind := _STORY.get(event)) is not None:
                yield read(kind, _parsed(data, "the stream of events"), event)

    async def terms(self) -> Terms | None:
        """What its last lease is on; None before there is one. Malformed for what is none."""
        lease = self.view["lease"]
        if not lease:
            return None
        row = read(_LeaseTerms, await self._http.get(f"/v1/leases/{lease}"), "lease")
        try:
            return Terms.decode(bytes.fromhex(row["terms"]))
        except ValueError as error:
            raise Malformed("terms that are no hex") from error

    async def execute(self, command: list[str]) -> tuple[int, str]:
        """Run *command* inside the workload: its exit code and what it printed."""
        answer = await self._http.post(f"/v1/jobs/{self.id}/exec", {"command": command})
        done = read(DoneAnswer, answer, "command")
        return done["exit_code"], done["output"]

    def forward(
        self, port: int, local: int = 0, told: Callable[[str], None] | None = None
    ) -> AbstractAsyncContextManager[int]:
        """``async with job.forward(5432) as local:`` a port of its workload at 127.0.0.1, over TCP:
        the local port, *local* or a free one. *told* hears of connections that were refused or
        broke off, which are logged otherwise. OSError where *local* is taken.
        """
        from marketplace.client.sdk.forward import forwarding, logged

        return forwarding(self._http, self.id, port, local, told or logged)

    def terminal(
        self, command: Sequence[str] = (), rows: int = 24, columns: int = 80
    ) -> AbstractAsyncContextManager[Terminal]:
        """``async with job.terminal() as terminal:`` *command*, or a shell, at a terminal in its
        workload; it ends with the block.
        """
        from marketplace.client.sdk.terminal import terminal

        return terminal(self._http, self.id, command or ANY_SHELL, rows, columns)

    def port(self, port: int) -> Entrance:
        """A port of its workload: a ticket for a browser, links to share."""
        return Entrance.of_port(self._http, self.id, port)

    async def direct_ports(self) -> DirectPorts | None:
        """Where its provider opened ports of it to the world, as that signed it; None where it did
        not, or not yet. :class:`DirectPortsUnproven`.
        """
        if not self.view["lease"]:
            return None
        story = [one async for one in self.events(follow=False)]
        return direct.proven(story, self.view["lease"], await self.evidence(), self._keys())

    async def outputs(self, *, signed: bool = False) -> list[OutputAnswer]:
        """What it gave back: path, sha256, size. With *signed*, :class:`OutputUnproven` unless the
        providers of its leases signed all of it, on terms that this purse agreed to.
        """
        page = await self._http.get(f"/v1/jobs/{self.id}/outputs")
        found = read(OutputsAnswer, page, "outputs")["items"]
        if signed:
            prove(found, await self.evidence(), self._keys())
        return found

    async def download(self, folder: Path | str, *, signed: bool = False) -> list[Path]:
        """All outputs into *folder*, each checked against its hash; existing files are replaced.
        *signed*: as for :meth:`outputs`, before anything is written.
        """
        done: list[Path] = []
        for item in await self.outputs(signed=signed):
            parts = self._http.parts(f"/v1/jobs/{self.id}/outputs/{item['sha256']}")
            async with aclosing(parts):
                done.append(await written(parts, item, Path(folder)))
        return done

    # ---- its bill --------------------------------------------------------------------------

    async def network_fees(self) -> int | None:
        """Lovelace that the network took of the consumer for this job (`verifier.network_fees`);
        None while no block says so.
        """
        from marketplace.client.jobs import verifier  # reads the chain: nothing else here does

        return await verifier.network_fees(await self.evidence(), await self._chain())

    async def evidence(self) -> Evidence:
        """Terms, receipts and vouchers of every channel it ran on.

        A channel that served other jobs as well needs their terms too: its receipts are one chain.
        """
        given = parse(await self._http.text(f"/v1/jobs/{self.id}/invoice"))
        strange = strange_leases(given)  # checks its form as well
        asked(evidence_from_json(given), self.id)
        rows = cast("list[Json]", given["leases"])
        for name in strange:
            rows.append(
                cast(Json, parse(await self._http.text(f"/v1/leases/{quote(name, safe='')}")))
            )
        return evidence_from_json(given)

    async def invoice(self, *, verify: bool = False) -> Invoice:
        """The bill, recomputed here; with *verify* compared with the ledger as well."""
        evidence = await self.evidence()
        if verify:
            from marketplace.client.jobs import verifier  # reads the chain: nothing else here does

            return await verifier.verify(evidence, await self._chain())
        return reconcile(evidence)


def _fresh(data: str, heard: dict[str, int]) -> str:
    """The text of one event of the log stream, or nothing if it was heard before a reconnect."""
    row = read(LogAnswer, _parsed(data, "the log stream"), "log")
    lease, offset, text = row["lease"], row["offset"], row["text"]
    if offset <= heard.get(lease, -1):
        return ""
    heard[lease] = offset
    return text


def _parsed(data: str, what: str) -> object:
    try:
        return cast(object, json.loads(data))
    except ValueError as error:
        raise AnswerUnreadable(f"{what} holds something else than JSON") from error
