"""What a running adapter tells its owner: one JSON object over a socket in the state folder.

``tally adapter status`` asks ``status``; ``drain`` and ``undrain`` are said the same way.  The
socket is its owner's alone (mode 0600); nothing secret is ever in an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.abc
import anyio.to_thread

from adapter.core import routed
from adapter.core.hop import Hop
from adapter.core.state import Channel, Lease
from adapter.daemon.daemon import Daemon
from marketplace.domain.errors import Fault, NotFound, Refusal
from marketplace.domain.metering.kinds import CORE, GPU, show_rate
from marketplace.domain.metering.usage import usage
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.lease import LeaseState

BARS: Final = "▁▂▃▄▅▆▇█"
MOST: Final = 1 << 20


class AdapterSilent(Fault):
    """No adapter answers at that socket."""

    code = "ADAPTER_SILENT"
    remedy = "start it with `tally adapter run`, or name its --state folder"


class UnknownRequest(NotFound):
    """The adapter knows no such request."""

    code = "UNKNOWN_REQUEST"
    remedy = "ask for status, earnings, reload, drain or undrain"


class ReloadRefused(Refusal):
    """The adapter does not take the configuration; it goes on with what it has."""

    code = "RELOAD_REFUSED"
    remedy = "correct what is named, and reload again; the adapter goes on as before"


def sparkline(permille: list[int]) -> str:
    """Utilisation over the last minute, one character a second."""
    return "".join(BARS[min(7, value * 8 // 1001)] for value in permille)


def report(daemon: Daemon, balance: Callable[[], dict[str, Any]] | None = None) -> dict[str, Any]:
    """Leases, money, devices and why there is no work, as plain values."""
    state, own = daemon.state, daemon.own
    channels = list(state.channels.values())
    return {
        "provider": own.offer.provider,
        "offer": own.offer.id,
        "market": {
            "url": daemon.link.url,
            "connected": daemon.link.up,
            "backlog": daemon.link.backlog,
        },
        "draining": state.draining,
        "fees_short": state.unable or None,
        "leases": [_lease(daemon, lease) for lease in state.leases.values()],
        "devices": [
            {
                "uuid": gpu.uuid,
                "model": gpu.model,
                "health": gpu.health.value,
                "note": gpu.health_note,
                "simulated": gpu.simulated,
                "rate": show_rate(own.offer.rate(GPU.name, gpu.model), GPU.name),
                "lease": next((x.id for x in state.leases.values() if gpu.uuid in x.devices), None),
            }
            for gpu in own.offer.host.gpus
        ],
        "core_rate": show_rate(own.offer.rate(CORE.name), CORE.name),
        "earned": state.earned,
        "claimed": state.claimed,
        "unclaimed": sum(c.unclaimed for c in channels if c.stage is not ChannelStage.ENDED),
        "channels": [_channel(c) for c in channels if c.stage is not ChannelStage.ENDED],
        "why_no_work": why_no_work(daemon),
        "alarms": [
            {"at_ms": at, "code": code, "message": text} for at, code, text in daemon.alarms
        ],
        **(balance() if balance else {}),
    }


def why_no_work(daemon: Daemon) -> list[str]:
    """Reasons, in words, why nothing runs; empty while something does."""
    state, offer = daemon.state, daemon.own.offer
    if any(lease.state is not LeaseState.OFFERED for lease in state.leases.values()):
        return []
    rentable = [gpu for gpu in offer.host.gpus if gpu.rentable]
    wall_ms = daemon.now().wall_ms
    checks = (
        (not daemon.link.up, "the market cannot be reached, so nobody sees the offer"),
        (
            bool(state.unable),
            f"the fee key cannot pay for settling, so no new lease is taken: {state.unable}",
        ),
        (state.draining, "the adapter drains: `tally adapter drain --off` takes work again"),
        (
            any(w.start_ms <= wall_ms < w.end_ms for w in offer.windows),
            "a maintenance window is in force",
        ),
        (
            bool(offer.host.gpus) and not rentable,
            "no device is healthy: see the devices, and `tally adapter doctor`",
        ),
        (not offer.host.gpus and not offer.core_rate, "neither GPUs nor cores are offered"),
    )
    reasons = [why for holds, why in checks if holds]
    asked = bool(state.channels) or bool(state.past.keys)
    idle = "no job asks for it now" if asked else "nobody asked yet"
    return reasons or [f"{idle}: `tally offers search --explain` shows how it compares"]


def _lease(daemon: Daemon, lease: Lease) -> dict[str, Any]:
    totals = usage(lease.meters)
    channel = daemon.channel(lease.channel)
    return {
        "id": lease.id,
        "job": lease.terms.job,
        "state": lease.state.name,
        "pause": lease.pause.value if lease.pause else None,
        "reason": lease.reason.value if lease.reason else None,
        "devices": list(lease.devices),
        "rate": show_rate(lease.terms.rate_micro, lease.terms.resource),
        "unit_ms": totals.unit_ms(lease.terms.resource),
        "lost_ms": {cause.value: ms for cause, ms in totals.lost_ms},
        "owed": lease.owed,
        "ceiling": lease.terms.ceiling,
        "paid": routed.signed(lease, channel) if channel else 0,
        "hop": None if lease.routed is None else lease.routed.hop.hex(),
        "utilisation": sparkline(list(daemon.gauges.spark.get(lease.id, ()))),
        "latest": dict(daemon.gauges.latest.get(lease.id, {})),
        "relay": None if lease.job.relay is None else _relay(daemon, lease),
    }


def _relay(daemon: Daemon, lease: Lease) -> dict[str, Any]:
    """How it stands as we see it, and as the market does: *market* null until it looked."""
    looked = daemon.gauges.looked.get(lease.id)
    faults = [meter.fault for meter in lease.meters if meter.fault is not None]
    return {
        "off_tip": faults[0].value if faults else None,
        "market": None
        if looked is None
        else {"at_ms": looked.at_ms, "standing": looked.standing, "why": looked.why},
    }


def _channel(channel: Channel) -> dict[str, Any]:
    return {
        "id": channel.session_vk.hex(),
        "stage": channel.stage.value,
        "owed": channel.owed,
        "paid": channel.paid,
        "claimed": channel.claimed,
        "capacity": channel.capacity,
        "settling": channel.settling,
        "unclaimed": channel.unclaimed,
        "starved": channel.starved,
        "hop": None if channel.hop is None else _hop(channel.hop),
    }


def _hop(hop: Hop) -> dict[str, Any]:
    """What a router's channel is beside: whose, and how much of it its leases may still ask for."""
    return {
        "owner": hop.owner.hex(),
        "leases": len(hop.leases),
        "reserved": sum(max(0, one.reserve - one.owed) for one in hop.leases.values()),
        "forked": hop.fork is not None,
    }


class StatusSocket:
    """Answers one line with one JSON line."""

    def __init__(
        self,
        daemon: Daemon,
        path: Path,
        extra: Callable[[], dict[str, Any]] | None = None,
        earnings: Callable[[], Awaitable[dict[str, Any]]] | None = None,
        reload: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._daemon = daemon
        self._path = path
        self._extra = extra
        self._earnings = earnings
        self._reload = reload

    async def run(self) -> None:
        """Until cancelled; a stale socket of a killed adapter is replaced."""
        self._path.unlink(missing_ok=True)
        listener = await anyio.create_unix_listener(self._path, mode=0o600)
        try:
            async with listener:
                await listener.serve(self._answer)
        finally:
            self._path.unlink(missing_ok=True)

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(5):
                    words = (await stream.receive(256)).decode(errors="replace").split()
                answer = await self.perform(words[0] if words else "")
                await stream.send(json.dumps(answer).encode() + b"\n")
            except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
                return

    async def perform(self, word: str) -> dict[str, Any]:
        """The answer to one request."""
        actions: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "drain": lambda: self._daemon.drain(True),
            "undrain": lambda: self._daemon.drain(False),
        }
        if word == "earnings" and self._earnings is not None:
            return await self._earnings()
        if word == "reload" and self._reload is not None:
            try:
                return await anyio.to_thread.run_sync(self._reload)
            except Refusal as refused:
                return {"error": refused.code, "message": refused.message}
        if word in actions:
            await actions[word]()
        elif word != "status":
            return {"error": UnknownRequest.code, "message": f"no request {word[:40]!r}"}
        return report(self._daemon, self._extra)


async def ask(path: Path, word: str = "status") -> dict[str, Any]:
    """The answer of the adapter whose socket is at *path*; :class:`AdapterSilent`."""
    try:
        with anyio.fail_after(10):
            async with await anyio.connect_unix(os.fspath(path)) as stream:
                await stream.send(word.encode() + b"\n")
                data = b""
                while not data.endswith(b"\n") and len(data) < MOST:
                    data += await stream.receive()
        answer = cast(dict[str, Any], json.loads(data))
    except (OSError, TimeoutError, anyio.EndOfStream, ValueError) as error:
        raise AdapterSilent(f"no adapter answers at {path}: {error}") from error
    if answer.get("error") == UnknownRequest.code:
        raise UnknownRequest(str(answer.get("message")))
    if "error" in answer:
        raise ReloadRefused(f"{answer['error']}: {answer.get('message')}")
    return answer
