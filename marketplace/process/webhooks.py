"""Webhooks go out: looked up and checked at each delivery, no redirects, a deadline, a
signature.
"""

from __future__ import annotations

import json
import socket
from typing import Any, Final

import anyio
import httpx
import structlog

from marketplace.domain.errors import Conflict, TallyError
from marketplace.market.accounts import webhooks
from marketplace.market.base.errors import HookRefused
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Delivery, Event, Hook, Setting
from marketplace.market.context import Market

log = structlog.get_logger("webhooks")
DEADLINE_S: Final = 10
AT_ONCE: Final = 8
CURSOR: Final = "hooks.after"
_FAILURES: Final = (
    TallyError,
    httpx.HTTPError,
    httpx.InvalidURL,
    OSError,
    TimeoutError,
    ValueError,  # a name that IDNA refuses
)
SETTLED_MS: Final = 1_000  # events of other processes may be committed a little out of order


class Deliverer:
    """One per process; only the matcher's process enqueues, every process delivers."""

    def __init__(self, market: Market) -> None:
        self.market = market

    async def round(self) -> None:
        """Enqueue what is new, deliver what is due, where this process can sign it."""
        if self.market.epoch:
            await self._enqueue()
        if not self.market.hook_key:
            return
        due = await webhooks.due(self.market)
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for delivery, hook in due:
                tasks.start_soon(self._deliver, delivery, hook, limit)

    async def _enqueue(self) -> None:
        store = self.market.store
        cursor = await store.get(Setting, CURSOR)
        if cursor is None:
            newest = await store.find(Event, order=("-id",), limit=1)
            start = Setting(CURSOR, newest[0].id if newest else "")
            await store.apply(Change(puts=[start]))
            return
        after = await webhooks.enqueue(
            self.market, cursor.value, before_ms=self.market.now - SETTLED_MS
        )
        if after != cursor.value:
            try:
                await store.apply(Change(sets=[Setting(CURSOR, after, cursor.version)]))
            except Conflict:
                log.info("enqueue", what="another process went on")

    async def _deliver(self, delivery: Delivery, hook: Hook, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            status, why = 0, ""
            try:
                status = await self._post(hook, delivery)
            except _FAILURES as error:  # whatever one URL or its host does, the others are told
                log.info("webhook", hook=hook.id, error=f"{type(error).__name__}: {error}"[:200])
                # Its owner is told no more than where to look: the text may name what is inside.
                why = error.message if isinstance(error, TallyError) else type(error).__name__
        try:
            if 200 <= status < 300:
                await webhooks.delivered(self.market, delivery, status)
            else:
                await webhooks.failed(self.market, delivery, hook, status, why)
        except TallyError as error:  # not noted: it comes again when its time has come
            log.warning("webhook", hook=hook.id, error=error.line())

    async def _post(self, hook: Hook, delivery: Delivery) -> int:
        """Connect to the very address that was checked, so that the name cannot change in
        between.
        """
        private = self.market.settings.allow_private_hooks
        host, port = webhooks.may_call(self.market, hook.url)
        with anyio.fail_after(DEADLINE_S):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(sockaddr[0]) for *_, sockaddr in found]
            if not addresses:
                raise HookRefused("the host has no address")
            if not private and not webhooks.is_loopback(host):
                webhooks.check_addresses(addresses)
            return await self._send(hook, delivery, host, addresses[0])

    async def _send(self, hook: Hook, delivery: Delivery, host: str, address: str) -> int:
        body = json.dumps(delivery.body, separators=(",", ":")).encode()
        url = httpx.URL(hook.url)
        headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/json",
            "Tally-Delivery": delivery.id,
            "Tally-Signature": webhooks.signature(
                webhooks.secret_of(self.market, hook), self.market.now, body
            ),
        }
        extensions: dict[str, Any] = {"sni_hostname": host}
        async with httpx.AsyncClient(
            timeout=DEADLINE_S, follow_redirects=False, trust_env=False
        ) as client:
            pinned = url.copy_with(host=address)
            request = client.build_request(
                "POST", pinned, content=body, headers=headers, extensions=extensions
            )
            response = await client.send(request, stream=True)
            await response.aclose()
            return response.status_code
