"""What becomes of a relay that is kept, by what is seen of it, and what is to be done.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from marketplace.client.relays.stage import RELAY, Stage, StageEvent

DAY_MS: Final = 86_400_000
FIRST_WAIT_MS: Final = 10_000
MOST_WAIT_MS: Final = 15 * 60_000
MOST_LEFT: Final = 16
TRIES: Final = 3
"""Of a snapshot: a volume takes it whole or not at all, and takes none a second time."""


@dataclass(frozen=True)
class Rules:
    """*away_ms*: how long its provider may be away before it counts as lost; *most*: so many
    replacements in any 24 hours.
    """

    away_ms: int
    most: int


@dataclass(frozen=True)
class Kept:
    """One relay, as it is written down. *volume*, *relay*: their jobs, empty without; *provider*:
    whose host has them; *fill*: the volume is to begin with a snapshot, which was tried *tries*
    times; *place*: ``HOST:PORT`` where its peers reach it, *told*: the one that the hook took;
    *left*: providers that were lost, the latest last; *replaced_ms*: when it was begun elsewhere;
    *falls* in a row; *again_ms*: nothing is tried before.
    """

    stage: Stage = Stage.VOLUME_WANTED
    volume: str = ""
    relay: str = ""
    provider: str = ""
    fill: bool = True
    tries: int = 0
    place: str = ""
    told: str = ""
    left: tuple[str, ...] = ()
    replaced_ms: tuple[int, ...] = ()
    falls: int = 0
    again_ms: int = 0


@dataclass(frozen=True)
class Look:
    """What the market says of a job, and whether anybody sees that it *serves*."""

    state: str
    provider: str = ""
    serves: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state == "ENDED"


@dataclass(frozen=True)
class Seen:
    """Of its jobs, None for one that is not there; *away_ms*: for how long its provider was away,
    0 while it is there; *place*: where its peers reach it, as its provider signed it.
    """

    volume: Look | None = None
    relay: Look | None = None
    away_ms: int = 0
    place: str = ""


@dataclass(frozen=True)
class Rent:
    """A volume, at none of *avoid*."""

    avoid: tuple[str, ...]


@dataclass(frozen=True)
class Fill:
    """Put what it begins with onto *volume*."""

    volume: str


@dataclass(frozen=True)
class Start:
    """The relay, on *volume*."""

    volume: str


@dataclass(frozen=True)
class Leave:
    """Stop *jobs*, should anybody still run them."""

    jobs: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """It was replaced too often in 24 hours: nobody spends more on it now."""


Act = Rent | Fill | Start | Leave | Held


def decide(kept: Kept, seen: Seen, now_ms: int, rules: Rules) -> tuple[Kept, Act | None]:
    """How it stands after this look, and what is to be done, if anything."""
    kept = _noted(kept, seen)
    if kept.stage is not Stage.VOLUME_WANTED and _is_lost(kept, seen, rules):
        return _lost(kept, seen, now_ms, rules)
    match kept.stage:
        case Stage.VOLUME_STARTING if seen.volume is not None and seen.volume.is_over:
            return fell(replace(kept, volume=""), now_ms), None
        case Stage.VOLUME_STARTING if seen.volume is not None and seen.volume.state == "RUNNING":
            kept = _step(kept, StageEvent.RAN)
        case Stage.RELAY_STARTING | Stage.SERVING if seen.relay is not None and seen.relay.is_over:
            kept = fell(replace(kept, relay=""), now_ms)
        case Stage.RELAY_STARTING if seen.relay is not None and seen.relay.serves:
            kept = replace(_step(kept, StageEvent.SERVED), falls=0)
        case _:
            pass
    return kept, _act(kept, now_ms, rules)


def _act(kept: Kept, now_ms: int, rules: Rules) -> Act | None:
    if now_ms < kept.again_ms:
        return None
    match kept.stage:
        case Stage.VOLUME_WANTED:
            recent = [at for at in kept.replaced_ms if now_ms - at < DAY_MS]
            return Held() if len(recent) > rules.most else Rent(kept.left)
        case Stage.FILLING:
            return Fill(kept.volume)
        case Stage.RELAY_WANTED:
            return Start(kept.volume)
        case _:
            return None


def _noted(kept: Kept, seen: Seen) -> Kept:
    provider = seen.volume.provider if seen.volume is not None else ""
    return replace(kept, provider=provider or kept.provider, place=seen.place or kept.place)


def _is_lost(kept: Kept, seen: Seen, rules: Rules) -> bool:
    """Its content is gone with its volume, or nobody knows when its provider comes back."""
    ended = seen.volume is not None and seen.volume.is_over
    return (ended and kept.stage is not Stage.VOLUME_STARTING) or seen.away_ms > rules.away_ms


def _lost(kept: Kept, seen: Seen, now_ms: int, rules: Rules) -> tuple[Kept, Act]:
    gone = seen.away_ms > rules.away_ms and kept.provider and kept.provider not in kept.left
    left = (*kept.left, kept.provider)[-MOST_LEFT:] if gone else kept.left
    jobs = tuple(one for one in (kept.relay, kept.volume) if one)
    anew = Kept(
        _step(kept, StageEvent.LOST).stage,
        place=kept.place,
        told=kept.told,
        left=left,
        replaced_ms=(*kept.replaced_ms, now_ms)[-64:],
    )
    return anew, Leave(jobs)


def rented(kept: Kept, volume: str, *, fill: bool) -> Kept:
    """*volume* is agreed to."""
    return replace(_step(kept, StageEvent.RENTED), volume=volume, fill=fill, tries=0, again_ms=0)


def filled(kept: Kept) -> Kept:
    """What its volume begins with is there."""
    return replace(_step(kept, StageEvent.FILLED), falls=0, again_ms=0)


def not_filled(kept: Kept, now_ms: int) -> Kept:
    """The volume did not take the snapshot: it is tried again, and then it begins from what is
    there, which is all of it or nothing.
    """
    if kept.tries + 1 >= TRIES:
        return filled(kept)
    return replace(kept, tries=kept.tries + 1, again_ms=now_ms + FIRST_WAIT_MS)


def posted(kept: Kept, relay: str) -> Kept:
    """*relay* is agreed to."""
    return replace(_step(kept, StageEvent.POSTED), relay=relay, again_ms=0)


def fell(kept: Kept, now_ms: int) -> Kept:
    """It ended, or nobody took it: it waits longer each time in a row."""
    stage = kept.stage
    if RELAY.accepts(stage, StageEvent.FELL):
        stage = RELAY.step(stage, StageEvent.FELL)
    wait_ms = min(MOST_WAIT_MS, FIRST_WAIT_MS << min(kept.falls, 16))
    return replace(kept, stage=stage, falls=kept.falls + 1, again_ms=now_ms + wait_ms)


def _step(kept: Kept, event: StageEvent) -> Kept:
    return replace(kept, stage=RELAY.step(kept.stage, event))
