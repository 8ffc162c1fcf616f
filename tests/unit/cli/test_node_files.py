"""``tally node relay``: its files are jobs as they are, apart from one another, and hold no key."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marketplace.cli.commands import node
from marketplace.client.jobs import jobfiles
from marketplace.domain.work.job import JobSpec

IMAGE = "ghcr.io/intersectmbo/cardano-node@sha256:" + "ab" * 32
MONEY = ("--image", IMAGE, "--budget", "40 ADA", "--volume-budget", "20 ADA")


def written(folder: Path, *more: str) -> dict[str, JobSpec]:
    """The jobs of the files, by their names."""
    done = CliRunner().invoke(node.app, ["relay", str(folder), *MONEY, *more])
    assert done.exit_code == 0, done.output
    return {path.stem: jobfiles.load(path).spec for path in sorted(folder.iterdir())}


def test_two_relays_are_apart_and_each_has_its_volume(tmp_path: Path) -> None:
    jobs = written(tmp_path / "new", "--count", "2", "--regions", "DE,US")
    assert sorted(jobs) == ["relay-1", "relay-1-chain", "relay-2", "relay-2-chain"]
    for at, region in ((1, "DE"), (2, "US")):
        relay, chain = jobs[f"relay-{at}"], jobs[f"relay-{at}-chain"]
        assert relay.placement.regions == chain.placement.regions == (region,)
        assert chain.kind == "volume" and chain.resources[0].disk.least == 300 * 1024
        assert [one.volume for one in relay.volumes] == [f"relay-{at}-chain"]
        assert relay.relay is not None and relay.relay.network == "mainnet"
        assert relay.ports[0].port == relay.relay.port == 3001
        assert relay.resources[0].memory.least == 24 * 1024
        assert relay.price.budget == 40_000_000 and chain.price.budget == 20_000_000
        assert relay.direct_ports == (3001,), "its peers find it"
        assert [one.port for one in relay.ports] == [3001, 12_798]  # its figures are for its owner
        assert "/opt/cardano/config/mainnet/config.json" in relay.command
        assert relay.command[0] == "run" and "/data/db" in relay.command


def test_a_test_networks_relay_is_small_and_has_ones_own_topology(tmp_path: Path) -> None:
    own = tmp_path / "my topology.json"
    own.write_text("{}")
    jobs = written(tmp_path / "new", "--network", "preprod", "--topology", str(own), "--for", "7d")
    relay = jobs["relay-1"]
    assert relay.resources[0].memory.least == 4096
    assert jobs["relay-1-chain"].resources[0].disk.least == 20 * 1024
    assert [one.dst for one in relay.files] == ["/workspace/topology.json"]
    assert relay.command[relay.command.index("--topology") + 1] == "/workspace/topology.json"
    assert relay.policy.max_duration_ms == 7 * 86_400_000 and relay.placement.regions == ()


def test_one_that_nobody_needs_to_find_is_reached_through_the_market(tmp_path: Path) -> None:
    assert written(tmp_path / "new", "--no-direct")["relay-1"].direct_ports == ()


def test_another_program_takes_the_nodes_place(tmp_path: Path) -> None:
    jobs = written(tmp_path / "new", "--network", "preview", "--", "ogmios", "--say", 'a "b" $c: d')
    assert jobs["relay-1"].command == ("ogmios", "--say", 'a "b" $c: d')


@pytest.mark.parametrize("regions", [(), ("--regions", "DE"), ("--regions", "DE,DE")])
def test_two_in_one_region_are_for_who_says_so(tmp_path: Path, regions: tuple[str, ...]) -> None:
    asked = ["relay", str(tmp_path / "new"), *MONEY, "--count", "2", *regions]
    refused = CliRunner().invoke(node.app, asked)
    assert refused.exit_code == 2 and "--same-region" in refused.stderr
    assert not (tmp_path / "new").exists()
    assert CliRunner().invoke(node.app, [*asked, "--same-region"]).exit_code == 0


def test_what_is_there_stays_and_nothing_is_half_written(tmp_path: Path) -> None:
    mine = tmp_path / "relay-1.yaml"
    mine.write_text("mine")
    refused = CliRunner().invoke(node.app, ["relay", str(tmp_path), *MONEY])
    assert refused.exit_code == 3 and "FILE_THERE" in refused.stderr
    assert mine.read_text() == "mine" and list(tmp_path.iterdir()) == [mine]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--for", "soon"), ("--disk", "many"), ("--lag", "9h"), ("--regions", "a: b"), ("--name", "")],
)
def test_what_no_job_file_takes_is_said_before_it_is_written(
    tmp_path: Path, option: str, value: str
) -> None:
    refused = CliRunner().invoke(node.app, ["relay", str(tmp_path), *MONEY, option, value])
    assert refused.exit_code == 3 and "JOB_" in refused.stderr, refused.output
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_network_is_said(tmp_path: Path) -> None:
    refused = CliRunner().invoke(node.app, ["relay", str(tmp_path), *MONEY, "--network", "main"])
    assert refused.exit_code == 2 and "preprod" in refused.stderr
