"""Docker's stamps of time, as milliseconds."""

from __future__ import annotations

from adapter.runtime.docker.stamps import milliseconds, ran

ZERO = "0001-01-01T00:00:00Z"
BEGUN, OVER = "2026-11-28T02:11:43.084999999Z", "2026-11-28T02:11:43.082Z"
MS = 1_795_831_903_084


def test_a_stamp_is_read_to_the_millisecond_and_the_zero_time_is_none() -> None:
    assert milliseconds(BEGUN) == MS == milliseconds("2026-11-28T03:11:43.084+01:00")
    assert (
        milliseconds(ZERO) is None and milliseconds(None) is None and milliseconds("soon") is None
    )


def test_a_program_that_was_over_before_its_start_was_written_down_lived_no_time() -> None:
    assert ran({"StartedAt": BEGUN, "FinishedAt": OVER}, 0) == (MS, MS)
    assert ran({"StartedAt": OVER, "FinishedAt": BEGUN}, 0) == (MS - 2, MS)
    assert ran({"StartedAt": ZERO, "FinishedAt": ZERO}, 7) == (7, None)
