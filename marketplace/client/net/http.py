"""The market's HTTP face, as a client sees it: JSON in and out, problems as our own errors.

A problem (RFC 9457) becomes a :class:`MarketRefused` or, for 5xx, a :class:`MarketFault` of its own
subclass, so that ``error.code`` is the market's stable code. Reads are repeated on transport
errors; writes carry an Idempotency-Key and are therefore repeated too.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, cast

import anyio
import httpx

from marketplace.domain.errors import Fault, Malformed, Refusal, TallyError

_TRIES: Final = 4
_DEADLINE_S: Final = 30.0
_CONNECT_S: Final = 5.0
FIRST_CONNECT_S: Final = 1.5
_FIRST_TRIES: Final = 2
"""How long a market that never answered this process is tried: a wrong address is said within two
seconds, one that was there before is given time to come back."""
_STATUS_FAULT: Final = 500
_UNAUTHENTICATED: Final = 401
_SIGN_IN: Final = "/v1/auth/"


class MarketRefused(Refusal):
    """The market said no; ``code`` is the market's."""

    code = "MARKET_REFUSED"


class MarketFault(Fault):
    """The market failed, or cannot be reached."""

    code = "MARKET_UNREACHABLE"
    remedy = (
        "check that it runs and is the one you mean (--market or TALLY_MARKET; `tally up` runs one"
        " here); the call is safe to repeat"
    )


class NotAMarket(Refusal):
    """What is at the address is no market."""

    code = "NOT_A_MARKET"
    remedy = "name a market's address, such as https://market.example: --market or TALLY_MARKET"


def problem(status: int, body: bytes) -> TallyError:
    """The error that a problem document stands for."""
    try:
        value = json.loads(body)
        row = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    except ValueError:
        row = {}
    if status in (404, 405) and not row.get("code"):
        return NotAMarket(f"what answers there is no market (status {status})", status=status)
    kind: type[TallyError] = MarketFault if status >= _STATUS_FAULT else MarketRefused
    code, remedy = str(row.get("code") or kind.code), str(row.get("remedy") or "")
    message = str(row.get("detail") or row.get("title") or f"the market answered {status}")
    made = cast("type[TallyError]", type(kind.__name__, (kind,), {"code": code, "remedy": remedy}))
    fields = row.get("fields")
    extra = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    return made(message, **{**{str(k): v for k, v in extra.items()}, "status": status})


class Http:
    """One market's address and this client's credential."""

    def __init__(
        self, base: str, token: str = "", transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.base = base.rstrip("/")
        if not self.base.startswith(("http://", "https://")):
            raise NotAMarket(
                f"{base[:200]!r} is not an address: it begins with http:// or https://"
            )
        self.token = token
        self.renew: Callable[[], Awaitable[object]] | None = None
        self._answered = False
        self._client = httpx.AsyncClient(
            base_url=self.base,
            timeout=httpx.Timeout(_DEADLINE_S, connect=_CONNECT_S),
            transport=transport,
            # Reading the list of authorities takes longer than most reads: not where no TLS is
            # spoken.
            verify=self.base.startswith("https://"),
            limits=httpx.Limits(max_connections=32),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get(self, path: str, **query: object) -> Any:
        """JSON of a read."""
        params = {k: str(v) for k, v in query.items() if v is not None}
        return _json(await self._request("GET", path, params=params))

    async def all(self, path: str, limit: int | None = None, **query: object) -> list[Any]:
        """The items of a list, page by page; at most *limit* of them."""
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = cast("dict[str, Any]", await self.get(path, cursor=cursor, **query))
            found += cast("list[Any]", page.get("items", []))
            cursor = page.get("next")
            if not cursor or (limit is not None and len(found) >= limit):
                return found[:limit]

    async def text(self, path: str, **query: object) -> bytes:
        """The bytes of a read."""
        params = {k: str(v) for k, v in query.items() if v is not None}
        return (await self._request("GET", path, params=params)).content

    async def parts(self, path: str) -> AsyncGenerator[bytes]:
        """The bytes of a read, as they come."""
        response = await self._request("GET", path, stream=True)
        try:
            async for part in response.aiter_bytes():
                yield part
        except httpx.HTTPError as error:
            raise MarketFault(f"{self.base}: {_why(error)}") from error
        finally:
            await response.aclose()

    async def post(self, path: str, body: Mapping[str, Any], key: str = "") -> Any:
        """JSON of a write; *key* names it, so that a repetition does nothing twice."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return _json(await self._request("POST", path, json=dict(body), headers=headers))

    async def put(self, path: str, data: bytes) -> Any:
        """JSON of an upload."""
        headers = {"Content-Type": "application/octet-stream"}
        return _json(await self._request("PUT", path, content=data, headers=headers))

    async def put_json(self, path: str, body: Mapping[str, Any]) -> Any:
        """JSON of a write that is done once however often it is sent."""
        return _json(await self._request("PUT", path, json=dict(body)))

    async def delete(self, path: str) -> Any:
        """JSON of a removal."""
        return _json(await self._request("DELETE", path))

    async def lines(self, path: str, **query: object) -> AsyncIterator[tuple[str, str]]:
        """(event, data) of a stream of server-sent events, until it ends."""
        params = {k: str(v) for k, v in query.items() if v is not None}
        timeout = httpx.Timeout(_DEADLINE_S, read=60.0)  # the market sends a comment now and then
        headers = {**self._headers(), "Accept": "text/event-stream"}
        try:
            async with self._client.stream(
                "GET", path, params=params, headers=headers, timeout=timeout
            ) as response:
                if response.status_code >= 400:
                    raise problem(response.status_code, await response.aread())
                event, data = "message", list[str]()
                async for line in response.aiter_lines():
                    if not line:
                        if data:
                            yield event, "\n".join(data)
                        event, data = "message", []
                        continue
                    name, _, value = line.partition(":")
                    if name == "event":
                        event = value.removeprefix(" ")
                    elif name == "data":
                        data.append(value.removeprefix(" "))
        except httpx.HTTPError as error:
            raise MarketFault(f"{self.base}: {_why(error)}") from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _patience(self) -> httpx.Timeout:
        connect = _CONNECT_S if self._answered else FIRST_CONNECT_S
        return httpx.Timeout(_DEADLINE_S, connect=connect)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A session that is over is signed in anew, once: jobs outlive sessions."""
        used = self.token
        try:
            return await self._tried(method, path, **options)
        except MarketRefused as refused:
            over = refused.fields.get("status") == _UNAUTHENTICATED and not path.startswith(
                _SIGN_IN
            )
            if self.renew is None or not used or not over:
                raise
            if self.token == used:
                await self.renew()
        return await self._tried(method, path, **options)

    async def _tried(
        self, method: str, path: str, *, stream: bool = False, **options: Any
    ) -> httpx.Response:
        headers = {**self._headers(), **options.pop("headers", {})}
        last = ""
        for turn in range(_TRIES):
            if turn:
                await anyio.sleep(0.2 * 2**turn * (0.5 + random.random()))
            try:
                asked = self._client.build_request(
                    method, path, headers=headers, timeout=self._patience(), **options
                )
                response = await self._client.send(asked, stream=stream)
                if response.status_code >= 400:
                    await response.aread()
            except httpx.HTTPError as error:
                last = _why(error)
                silent = isinstance(error, httpx.TimeoutException)
                if not self._answered and (silent or turn + 1 == _FIRST_TRIES):
                    break
                continue
            self._answered = True
            if response.status_code < 400:
                return response
            error = problem(response.status_code, response.content)
            if response.status_code not in (429, 502, 503, 504) or turn == _TRIES - 1:
                raise error
            last = error.message
            await anyio.sleep(_asked_to_wait(response))
        raise MarketFault(f"{self.base}: {last}")


def _json(response: httpx.Response) -> Any:
    if not response.content:
        return {}
    try:
        return response.json()
    except ValueError as error:
        raise Malformed(f"the market's answer to {response.url.path} is not JSON") from error


def _asked_to_wait(response: httpx.Response) -> float:
    """Seconds of a Retry-After, within reason."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), 10.0) if text.isdecimal() else 0.0


def _why(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
