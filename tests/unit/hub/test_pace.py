"""Strangers are read at a pace, per address, and nobody else waits for it."""

from __future__ import annotations

from marketplace.hub.pace import AT_ONCE, EACH, KEPT, PER_SECOND, Pace


def test_a_stranger_is_read_at_a_pace() -> None:
    pace, now, size = Pace(), 100.0, 16_384
    free = AT_ONCE // (size + EACH)
    assert not any(pace.spend("a", size, now) for _ in range(free))
    sent, begun = 0, now
    for _ in range(500):
        now += pace.spend("a", size, now)
        sent += size + EACH
    assert sent <= (now - begun) * PER_SECOND + 2 * (size + EACH)
    assert pace.spend("b", size, now) == 0


def test_small_frames_are_not_free() -> None:
    pace, now, frames = Pace(), 0.0, 10_000
    for _ in range(frames):
        now += pace.spend("a", 1, now)
    assert now >= (frames * EACH - AT_ONCE) / PER_SECOND


def test_what_was_saved_is_bounded_and_addresses_are_forgotten() -> None:
    pace = Pace()
    pace.spend("a", 1, 0.0)
    assert pace.spend("a", 2 * AT_ONCE, 1e9) > 1
    for n in range(KEPT + 10):
        pace.spend(f"x{n}", 1, 1e9)
    assert pace.spend("a", 1, 1e9) == 0


def test_answers_count_as_frames_do() -> None:
    pace, now = Pace(), 0.0
    pace.owe("a", 1_000 * EACH, now)  # one frame, a thousand answers
    assert pace.spend("a", 1, now) >= (1_000 * EACH - AT_ONCE) / PER_SECOND
    assert pace.spend("b", 1, now) == 0
