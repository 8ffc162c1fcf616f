"""The same request twice is done once: what an ``Idempotency-Key`` stands for, and what it is
answered.

The memory of an answer is written in the very transaction that does what was asked, under a primary
key of account and idempotency key. So two requests at once, here or in two processes, cannot both
be done: the second one's transaction is refused as a whole, and it is given the first one's answer.
A process that dies in between has done both or neither. What was refused is not remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import Parts
from marketplace.domain.errors import Conflict, IllegalTransition, Malformed
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import KeyReused, QuoteGone
from marketplace.market.base.records import Record, Remembered

OnceKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=100,
        description="The same key with the same body is answered once",
    ),
]
Answer = Mapping[str, object]
Remember = Callable[[Answer], list[Record]]
"""(what may be repeated) -> what goes into the transaction that does it."""


async def question_of(request: Request) -> str:
    """A hash of method, path, query and body: what an idempotency key stands for."""
    body = await request.body()
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    head = f"{request.method} {asked}\n".encode()
    return hashlib.sha256(head + body).hexdigest()


async def answered(parts: Parts, who: Caller, key: str, question: str) -> Remembered | None:
    """The earlier answer to *key*; KeyReused if it was another question."""
    if not key:
        return None
    if "\x00" in key:
        raise Malformed("an Idempotency-Key is plain text")
    known = await parts.market.store.get(Remembered, who.account, key)
    if known is not None and known.question != question:
        raise KeyReused("this Idempotency-Key was used for another request")
    return known


async def once(
    request: Request,
    parts: Parts,
    who: Caller,
    key: str,
    make: Callable[[Remember], Awaitable[Answer]],
    status: int = 201,
) -> JSONResponse:
    """Do it, or repeat the earlier answer. *make* puts what it remembers into its own
    transaction.
    """
    question = await question_of(request)
    known = await answered(parts, who, key, question)
    if known is None:

        def remember(answer: Answer) -> list[Record]:
            if not key:
                return []
            now = parts.market.now
            return [Remembered(who.account, key, question, status, dict(answer), now)]

        try:
            return JSONResponse(await make(remember), status)
        except (Conflict, IllegalTransition, QuoteGone):
            known = await answered(parts, who, key, question)
            if known is None:
                raise
    return JSONResponse(known.answer, known.status, {"Idempotent-Replay": "true"})
