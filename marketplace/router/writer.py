"""The one writer of a router's books: decides, writes down in two places, then says.

What comes within a moment is decided together: one row and one statement a hop for the receipts and
payments of many leases. Who brings something waits until it is on disk. A failing disk is
everybody's :class:`~marketplace.disk.DiskFault`, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.to_thread
import structlog

from marketplace.domain.errors import Fault, Refusal, TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import router
from marketplace.domain.money.route.hop import HopForked, Payment
from marketplace.domain.money.route.messages import Message, Outcome, Send
from marketplace.market.base.ports import Clock
from marketplace.router import making, rows
from marketplace.router.journal import Journal
from marketplace.router.keys import RouterKeys
from marketplace.router.limits import Limits
from marketplace.router.post import Post
from marketplace.router.sights import capped
from marketplace.router.state import Seen, State

log = structlog.get_logger("router")


class NotWritten(Fault):
    """The router could not write down what it was told."""

    code = "ROUTER_NOT_WRITTEN"
    remedy = "say it again; nothing that rests on it was signed"


@dataclass
class Word:
    """Something that was said to the router. *read* makes the message of it, from the state and the
    payments that came with it (by hop); *final*: the lease that owes no more after it.
    """

    read: Callable[[State, Mapping[bytes, Payment]], Message]
    final: str = ""
    done: bool = False
    error: Exception | None = None


class Writer:
    """*state* is what is written down; *post* says what follows."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        keys: RouterKeys,
        post: Post,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self.state = state
        self._journal = journal
        self._keys = keys
        self._post = post
        self._clock = clock
        self._limits = limits
        self._turn = anyio.Lock()
        self._words: list[Word] = []
        self._next = 0.0

    def signers(self, state: State, but: bytes = b"") -> dict[bytes, Signer]:
        """The keys of those hops out on which something may be signed; *but*: that one too."""
        return {
            vk: self._keys.session(vk)
            for vk, hop in state.hops_out.items()
            if hop.seen is not Seen.ENDED and (not hop.unsure or vk == but)
        }

    async def change(self, decide: Callable[[State], Outcome[State]]) -> State:
        """What *decide* makes of the state, written down and said; its refusals change nothing."""
        async with self._turn:
            done = decide(self.state)
            await self._write(done.state, done.effects)
            return self.state

    async def hear(self, word: Word) -> None:
        """*word*, decided with what else came; its refusal."""
        self._words.append(word)
        async with self._turn:
            if not word.done:
                await anyio.sleep(max(0.0, self._next - anyio.current_time()))
                await self._decide()
        if word.error is not None:
            raise word.error

    async def _decide(self) -> None:
        words, self._words = self._words, []
        for word in words:  # until it is on disk, whatever goes wrong
            word.done, word.error = True, NotWritten("what came with it was not written down")
        try:
            await self._decide_all(words)
        except TallyError as error:
            for word in words:
                word.error = error
        self._next = anyio.current_time() + self._limits.gather_ms / 1000

    async def _decide_all(self, words: Sequence[Word]) -> None:
        old = self.state
        read: list[tuple[Word, Message]] = []
        came: dict[bytes, Payment] = {}
        errors: dict[int, TallyError] = {}
        for word in words:
            try:
                message = word.read(old, came)
            except Refusal as refusal:
                errors[id(word)] = refusal
                continue
            if isinstance(message, Payment):
                came[message.voucher.session_vk] = message
            read.append((word, message))
        messages = [message for _, message in read]
        done, refused = router.decide_all(old.book, messages, self.signers(old))
        errors |= {id(read[at][0]): refusal for at, refusal in refused.items()}
        state = replace(old, book=done.state)
        for word, message in read:
            hop = message.voucher.session_vk if isinstance(message, Payment) else b""
            if isinstance(message, Payment) and hop in state.book.forked - old.book.forked:
                state = _forked(state, message)
                errors[id(word)] = HopForked("two statements of one number", hop=hop.hex())
            elif word.final and id(word) not in errors:
                state = making.over(state, word.final, self._clock.now_ms())
        await self._write(capped(state, came, self._limits), done.effects)
        for word in words:
            word.error = errors.get(id(word))

    async def _write(self, state: State, effects: Sequence[Send]) -> None:
        """Cancelling waits: what is on disk is what this process knows."""
        patch = rows.patch(self.state, state)
        with anyio.CancelScope(shield=True):
            if patch:
                watch = _watched(self.state, state)
                await anyio.to_thread.run_sync(self._journal.write, patch, watch)
            self.state = state
        self._post.send(state, effects)


def _forked(state: State, other: Payment) -> State:
    """With the statement that contradicts the one in the books, as proof."""
    hop = state.hops_in[other.voucher.session_vk]
    log.error("hop_forked", hop=hop.session_vk.hex()[:16], account=hop.account)
    if hop.fork:
        return state
    return state.with_in(
        replace(hop, fork=f"{other.signed.body.hex()}:{other.signed.signature.hex()}")
    )


def _watched(old: State, new: State) -> list[dict[str, Any]]:
    """What a watchtower needs to claim: of each hop in that paid more, its greatest voucher."""
    found: list[dict[str, Any]] = []
    for vk, earning in new.book.hops_in.items():
        before = old.book.hops_in.get(vk)
        if earning.last is None or (before is not None and before.last == earning.last):
            continue
        hop, voucher = new.hops_in[vk], earning.last.voucher
        found.append(
            {
                "session_vk": vk.hex(), "origin": f"{hop.tx}#{hop.index}",
                "payout": hop.payout_address, "cumulative": voucher.cumulative,
                "signature": voucher.signature.hex(),
            }
        )  # fmt: skip
    return found
