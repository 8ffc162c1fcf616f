"""``tally node relay``: job files for relays, each with a volume for its chain, and apart from one
another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.cli.commands.init import FileThere
from marketplace.cli.shared.refusals import UsageError
from marketplace.domain.ouroboros.reading import NETWORKS
from marketplace.domain.work.jobfile import parse
from marketplace.jobtext import tree

SIZES: Final = {"mainnet": ("24GB", "300GB")}
"""Memory and disk, as Cardano's page of installing cardano-node has them (docs/spo.md)."""
SMALL: Final = ("4GB", "20GB")
FOLDER: Final = "/data"
# `run`, as the entrypoint of the published image has it: what it would write beside its root goes
# to the volume or to /tmp, for a job's root is read-only.
NODE: Final = (
    "run", "--config", "/opt/cardano/config/{network}/config.json",
    "--topology", "{topology}", "--database-path", f"{FOLDER}/db",
    "--socket-path", "/tmp/node.socket", "--host-addr", "0.0.0.0", "--port", "{port}",
)  # fmt: skip
FIGURES: Final = 12_798
"""Where a node tells Prometheus its figures by its published configuration."""
OWN_TOPOLOGY: Final = "/workspace/topology.json"


@dataclass(frozen=True)
class Relays:
    """*count* relays of *network*, one in each of *regions* as far as there are any. *memory* and
    *disk* empty: the network's own; *command* empty: cardano-node's; *topology*: a file of the
    operator's own, instead of the image's; *direct*: its peers reach it at an address of its
    provider's.
    """

    name: str
    network: str
    image: str
    count: int
    regions: tuple[str, ...]
    budget: str
    volume_budget: str
    longest: str
    cores: str
    memory: str
    disk: str
    lag: str
    port: int
    topology: Path | None
    command: tuple[str, ...]
    same_region: bool
    direct: bool = True

    def files(self) -> dict[str, str]:
        """The text of each file, by its name. UsageError, and what a job file is refused for."""
        if self.network not in NETWORKS:
            raise UsageError(f"--network is one of {', '.join(NETWORKS)}")
        if len(set(self.regions)) < self.count > 1 and not self.same_region:
            raise UsageError(
                f"{self.count} relays want {self.count} regions (--regions DE,US), so that no host"
                " or region takes two of them along; or --same-region"
            )
        made: dict[str, str] = {}
        for at in range(self.count):
            name = f"{self.name}-{at + 1}"
            region = self.regions[at % len(self.regions)] if self.regions else ""
            made[f"{name}-chain.yaml"] = self._volume(name, region)
            made[f"{name}.yaml"] = self._relay(name, region)
        for name, text in made.items():
            parse(tree(text.encode(), name), name)  # what does not fit is said before it is written
        return made

    def _volume(self, name: str, region: str) -> str:
        disk = self.disk or SIZES.get(self.network, SMALL)[1]
        return f"""\
# Where {name} keeps its chain. First:  tally job run {name}-chain.yaml --detach
version: 1
name: {name}-chain
kind: volume
resources: {{disk: {disk}}}
{_placement(region)}price: {{budget: {self.volume_budget}}}
policy: {{max_duration: {self.longest}}}
"""

    def _relay(self, name: str, region: str) -> str:
        memory = self.memory or SIZES.get(self.network, SMALL)[0]
        return f"""\
# A relay of {self.network}, billed for the time at the tip alone (docs/spo.md). After its volume:
#   tally job run {name}.yaml --detach     while `tally payer run` pays
#   tally node status JOB                  how it stands
#   tally job renew JOB --for 7d --when-left 2d      lets it stay; and its volume, likewise
version: 1
name: {name}
kind: service
image: {json.dumps(self.image)}
command:
{_list(self.command or self._node())}
resources: {{cpu: {self.cores}, memory: {memory}}}
volumes: [{{volume: {name}-chain, path: {FOLDER}}}]
{self._files()}ports: {self._ports()}
egress: open
relay: {{network: {self.network}, port: {self.port}, lag: {self.lag}}}
{_placement(region)}price: {{budget: {self.budget}}}
policy: {{max_duration: {self.longest}}}
"""

    def _ports(self) -> str:
        """Its own at an address that its peers reach, and its figures for Prometheus alone."""
        own = f"{{port: {self.port}, direct: true}}" if self.direct else str(self.port)
        return f"[{own}, {FIGURES}]"

    def _node(self) -> tuple[str, ...]:
        image = f"/opt/cardano/config/{self.network}/topology.json"
        topology = image if self.topology is None else OWN_TOPOLOGY
        said = {"network": self.network, "topology": topology, "port": self.port}
        return tuple(word.format(**said) for word in NODE)

    def _files(self) -> str:
        if self.topology is None:
            return ""
        source = json.dumps(str(self.topology.resolve()))
        return f"files: [{{src: {source}, dst: {OWN_TOPOLOGY}}}]\n"


def write(relays: Relays, folder: Path) -> list[Path]:
    """All files of *relays* in *folder*, or none; FileThere rather than over anything."""
    made = {folder / name: text for name, text in relays.files().items()}
    for path in made:
        if path.exists() or path.is_symlink():
            raise FileThere(f"{path} is there already")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return list(made)


def _placement(region: str) -> str:
    return f"placement: {{regions: [{region}]}}\n" if region else ""


def _list(words: tuple[str, ...]) -> str:
    return "\n".join(f"  - {json.dumps(word)}" for word in words)
