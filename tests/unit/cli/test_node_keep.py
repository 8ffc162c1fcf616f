"""``tally node keep``: which files it takes, and what it says before it spends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from typer.testing import CliRunner

from marketplace.cli.commands import node, node_keep
from marketplace.cli.shared.refusals import UsageError
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.relays.core import Rules
from marketplace.client.relays.keeper import Wanted
from tests.unit.cli.test_node_files import MONEY

RULES = Rules(away_ms=900_000, most=3)


def relays(folder: Path, *more: str) -> Path:
    done = CliRunner().invoke(node.app, ["relay", str(folder), *MONEY, *more])
    assert done.exit_code == 0, done.output
    return folder


def wanted(folder: Path, name: str) -> Wanted:
    """As the command has it, at a market that pins what is pinned."""

    async def pinned(job: LoadedJob) -> LoadedJob:
        assert not job.spec.volumes, "its volume may not be there yet"
        return job

    market = cast(Any, SimpleNamespace(pinned=pinned))
    wish = node_keep.Wish(folder, None, "", RULES, 10.0, True)
    files = node_keep.pairs(folder)[name]
    return anyio.run(node_keep.wanted_of, market, wish, *files)


def test_each_relay_with_its_volume_is_kept(tmp_path: Path) -> None:
    folder = relays(tmp_path / "relays", "--count", "2", "--regions", "DE,US")
    assert sorted(node_keep.pairs(folder)) == ["relay-1", "relay-2"]
    one = wanted(folder, "relay-2")
    assert one.chain.spec.name == "relay-2-chain" and one.relay.spec.relay is not None
    assert [mount.volume for mount in one.relay.spec.volumes] == ["relay-2-chain"]
    said = node_keep.cost({"relay-1": one, "relay-2": one}, RULES)
    assert (
        "120.000000 ADA" in said and "3 times in 24 hours" in said and "15m" in said
    )  # 2 x (40 + 20)


def test_a_folder_without_any_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(node_keep.NoRelays) as refused:
        node_keep.pairs(tmp_path)
    assert refused.value.code == "NO_RELAYS" and "tally node relay" in refused.value.remedy
    (tmp_path / "relay-1-chain.yaml").write_text("a volume alone")
    with pytest.raises(node_keep.NoRelays):
        node_keep.pairs(tmp_path)


@pytest.mark.parametrize(
    ("file", "was", "now"),
    [
        ("relay-1.yaml", "relay-1-chain, path", "another, path"),
        ("relay-1.yaml", "relay: {network: mainnet, port: 3001, lag: 5m}\n", ""),
        ("relay-1-chain.yaml", "name: relay-1-chain", "name: other"),
    ],
)
def test_files_that_are_no_relay_on_that_volume_are_refused(
    tmp_path: Path, file: str, was: str, now: str
) -> None:
    """What was begun elsewhere would have no chain, or be billed for any time."""
    folder = relays(tmp_path / "relays")
    text = (folder / file).read_text()
    assert was in text
    (folder / file).write_text(text.replace(was, now))
    with pytest.raises(UsageError, match="no relay"):
        wanted(folder, "relay-1")
