"""What a job's page says in words: why it ended, and what happened to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

WHY_IT_ENDED: Final[Mapping[str, str]] = {
    "COMPLETED": "It ran to its end.",
    "FAILED": "Its command failed.",
    "CANCELLED": "You ended it.",
    "DECLINED": "The quote was declined. Nothing was paid.",
    "QUOTE_EXPIRED": "Nobody agreed to the quote in time. Nothing was paid.",
    "CHANNEL_REFUSED": "The provider did not accept the channel.",
    "START_FAILED": "It could not be started.",
    "UNPAID": "It was not paid for: nobody answered its receipts.",
    "CEILING": "It reached the most that it may cost.",
    "MAX_DURATION": "It reached the longest time that it may run.",
    "IDLE": "Its device stood idle for as long as the job allows.",
    "DISK_LIMIT": "It wrote more than the disk that it asked for.",
    "OUT_OF_MEMORY": "It needed more memory than it asked for.",
    "PROVIDER_FAULT": "Its provider broke the terms, and was paid nothing more.",
    "PROVIDER_LOST": "Its provider was lost.",
    "CHANNEL_CLOSING": "Its channel was being closed.",
    "PREEMPTED": "It made way for a job of higher priority.",
    "MEMBER_ENDED": "Another member of its gang ended, so all of them did.",
    "SUSPENDED": "The market's operator suspended it.",
    "OFF_TIP": "It was not at the tip of its chain for longer than its provider bears.",
    "GROUP_STALLED": "Its cluster was not whole for longer than its terms allow.",
}
_DULL: Final[tuple[object, ...]] = ("", None, dict[str, object](), list[object]())
_BY_DESIGN: Final = ("COMPLETED", "CANCELLED")
_SAYS_ALL: Final = ("QUOTE_EXPIRED",)


def why_ended(reason: str, message: str, exit_code: int | None) -> str:
    """One or two sentences; *message* only where it says more than *reason*."""
    said = WHY_IT_ENDED.get(reason, reason.replace("_", " ").lower())
    if exit_code and reason not in _BY_DESIGN:
        said += f" Its exit code is {exit_code}."
    if message and reason not in _SAYS_ALL and message.upper() not in (reason, *WHY_IT_ENDED):
        said += f" {message}"
    return said.strip()


def story(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each event once, with what its detail adds: ``{at_ms, kind, said: [(name, value)]}``. One
    that repeats the one before is left out.
    """
    told: list[dict[str, Any]] = []
    for event in events:
        one = {"kind": event["kind"], "said": _said(event["detail"])}
        if not told or {k: told[-1][k] for k in one} != one:
            told.append({"at_ms": event["at_ms"], **one})
    return told


def _said(detail: Mapping[str, Any]) -> list[tuple[str, Any]]:
    kept = {k: v for k, v in detail.items() if v not in _DULL}
    reason = str(kept.get("reason", ""))
    if str(kept.get("message", "")).upper() in (reason, "STOPPED"):
        kept.pop("message", None)
    if reason in WHY_IT_ENDED:
        words = WHY_IT_ENDED[reason]
        rest = [(k, v) for k, v in kept.items() if k not in ("reason", "exit_code")]
        code = kept.get("exit_code")
        shown = [("exit code", code)] if code and reason not in _BY_DESIGN else []
        return [("", words), *shown, *rest]
    return list(kept.items())
