"""Every error this system can utter.

* TallyError          base of both branches; never raised itself
  * Refusal           the rules say no: the caller's to fix             (4xx, safe to show)
    x Malformed         bytes or text that do not parse
    x NotFound          no such thing, or not yours to see
    x Forbidden         known, but not allowed
    x Unauthenticated   who is asking?
    x Conflict          the thing changed, or was already done otherwise
    x IllegalTransition an event met a state that has no answer for it
    x …                 each module adds its own beside the rule it guards
  * Fault             the world failed: ours to retry                   (503, logged)
    x …                 one per edge: chain, provider, docker, nvml, store
    * Halt            our own books cannot be kept: the process stops (journal, disk)

``code`` is stable and part of the contract with users; ``remedy`` says what to do about it.
"""

from __future__ import annotations

from typing import ClassVar


class TallyError(Exception):
    """Base of both branches.

    *message* is the cause in one line; *fields* are typed facts for programs.
    """

    code: ClassVar[str] = "TALLY_ERROR"
    remedy: ClassVar[str] = ""

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return self.message

    def line(self) -> str:
        """One line for a person: code, cause, remedy."""
        return f"{self.code}: {self.message}" + (f" — {self.remedy}" if self.remedy else "")


class Refusal(TallyError):
    """The rules say no."""

    code = "REFUSED"


class Fault(TallyError):
    """The outside world failed; retrying may help."""

    code = "FAULT"
    remedy = "try again in a moment; if it lasts, look at the log of the part that is named"


class Halt(Fault):
    """Our own books cannot be kept. Whoever retries faults lets this one through: a process that
    goes on would act on what nobody wrote down.
    """

    code = "HALT"


class Malformed(Refusal):
    """Bytes or text that do not parse."""

    code = "MALFORMED"
    remedy = "send what the documentation of this message describes"


class NotFound(Refusal):
    """No such thing, or not yours to see."""

    code = "NOT_FOUND"
    remedy = "check the id; lists show what is yours"


class Forbidden(Refusal):
    """Known, but not allowed."""

    code = "FORBIDDEN"
    remedy = "use a key whose verbs include this, or ask its owner"


class Unauthenticated(Refusal):
    """No credential, or one that does not hold."""

    code = "UNAUTHENTICATED"
    remedy = "sign in again, or send a valid API key as a bearer token"


class Conflict(Refusal):
    """The thing changed meanwhile, or was already done otherwise."""

    code = "CONFLICT"
    remedy = "look at it as it is now, then repeat what you still want"


class IllegalTransition(Refusal):
    """An event met a state that has no answer for it."""

    code = "ILLEGAL_TRANSITION"
    remedy = "read the current state first; docs/machines.md shows what each state accepts"

    def __init__(self, subject: str, state: str, event: str) -> None:
        super().__init__(f"{subject} in {state} cannot take {event}", state=state, event=event)
