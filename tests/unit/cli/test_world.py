"""Which embedded market ``tally up`` means in a shell where another one's ``env`` was sourced."""

from __future__ import annotations

from pathlib import Path

from marketplace.cli.embedded.up import world_of


def test_the_consumers_home_of_a_market_is_that_market(tmp_path: Path) -> None:
    consumer = tmp_path / "up" / "consumer"
    consumer.mkdir(parents=True)
    assert world_of(consumer) == consumer, (
        "nothing runs there: a folder that happens to be named so"
    )
    (tmp_path / "up" / "passphrase").write_text("x")
    assert world_of(consumer) == tmp_path
    assert world_of(tmp_path) == tmp_path
