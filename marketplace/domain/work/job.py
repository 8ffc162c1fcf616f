"""A job: what a consumer wants run, within what limits, and the hash by which terms name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, get_args

from marketplace.domain import canonical
from marketplace.domain.canonical import (
    want_fields,
    want_items,
    want_map,
    want_text,
    want_text_map,
    want_texts,
)
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work import job_v1, mesh_net, pool_keys
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_store import KEY, OF_STORE, Store
from marketplace.domain.work.parts import (
    FileIn,
    Gang,
    Placement,
    Policy,
    Port,
    Price,
    Resources,
)
from marketplace.domain.work.relay import RelayNeed
from marketplace.domain.work.roles import (
    TOLD_MEMBER,
    TOLD_MEMBERS,
    TOLD_ROLE,
    Part,
    Role,
    named,
    own_env,
    want_roles,
)
from marketplace.domain.work.volume import LEAST_MIB, MOST_MOUNTS, Mount, want_apart
from marketplace.domain.work.workload import MOST_TARGETS, NO_EGRESS, Egress, EgressMode

VERSION: Final = 2
"""Of what is written today: every field by its name. Version 1 had places (:mod:`.job_v1`)."""
TOLD_SERVICE: Final = "TALLY_SERVICE"
TOLD_REVISION: Final = "TALLY_REVISION"
TOLD_MESH_ADDRESS: Final = "TALLY_MESH_ADDRESS"
"""Where a member is in its cluster's mesh: said by its adapter, not by its job."""
_TOLD: Final = frozenset({TOLD_MEMBER, TOLD_MEMBERS, TOLD_ROLE, TOLD_SERVICE, TOLD_REVISION})
"""To each member of a gang and each replica of a service, beside the job's own."""
JobKind = Literal["job", "service", "volume"]
KINDS: Final[tuple[JobKind, ...]] = get_args(JobKind)


class JobVersionUnknown(Refusal):
    """A job in a form that came after this program."""

    code = "JOB_VERSION_UNKNOWN"
    remedy = "update this side, or post the job with a client of its version"


@dataclass(frozen=True)
class JobSpec:
    """A job as its file says, all ranges and units resolved; *resources* in order of preference.

    *image* is "" where the isolation is a process's; *volumes* are those that it mounts; *version*:
    of the form in which it is posted, hashed and sent, kept as it came.
    """

    name: str
    image: str
    command: tuple[str, ...]
    resources: tuple[Resources, ...]
    kind: JobKind = "job"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    files: tuple[FileIn, ...] = ()
    ports: tuple[Port, ...] = ()
    outputs: tuple[str, ...] = ()
    placement: Placement = Placement()
    price: Price = Price()
    policy: Policy = Policy()
    gang: Gang | None = None
    egress: Egress = NO_EGRESS
    relay: RelayNeed | None = None
    volumes: tuple[Mount, ...] = ()
    cluster: Cluster | None = None
    roles: tuple[Role, ...] = ()
    version: int = VERSION

    @property
    def direct_ports(self) -> tuple[int, ...]:
        """Of its ports those that its provider opens at an address of its own."""
        return tuple(one.port for one in self.ports if one.direct)

    @property
    def is_volume(self) -> bool:
        """Whether it rents disk alone, and runs nothing."""
        return self.kind == "volume"

    def check_isolation(self) -> None:
        """:class:`IsolationRefused` where image and isolation contradict each other."""
        if not self.is_volume:
            self.placement.isolation.check(self.image, self.command)

    def check_volume(self) -> None:
        """:class:`Malformed` where a volume asks for what only a workload can use."""
        if not self.is_volume:
            return
        used = {
            "image": self.image, "command": self.command, "env": self.env, "secrets": self.secrets,
            "files": self.files, "ports": self.ports, "outputs": self.outputs, "gang": self.gang,
            "relay": self.relay, "volumes": self.volumes, "cluster": self.cluster,
            "roles": self.roles,
            "egress": self.egress.mode is not EgressMode.NONE,
        }  # fmt: skip
        for name, said in used.items():
            if said:
                raise Malformed(f"a volume runs nothing: leave {name} out")
        sizes = [(one.cpu.least, one.memory.least, one.gpu) for one in self.resources]
        if sizes != [(0, 0, None)] or self.resources[0].disk.least < LEAST_MIB:
            raise Malformed(f"a volume has disk alone, {LEAST_MIB} MB or more")

    def check_cluster(self) -> None:
        """:class:`Malformed` where a member of a cluster does not say which one it is."""
        if self.cluster is None or TOLD_MEMBER not in self.env:
            return
        said = self.env[TOLD_MEMBER]
        most = self.gang.members if self.gang is not None else 0
        if said not in map(str, range(most)):
            raise Malformed(f"{TOLD_MEMBER} is {said[:20]!r}, and the cluster has {most} members")

    def check_roles(self) -> None:
        """:class:`Malformed` where a member is not what its role says, or where the parts of a job
        that is posted are more than its budget: whoever has the job of one member knows by it what
        all of them are.
        """
        if not self.roles:
            return
        if self.cluster is None or self.version != VERSION:
            raise Malformed("roles are those of a cluster's members")
        if TOLD_MEMBER not in self.env:
            if any(one.part is None for one in self.roles):
                raise Malformed("a cluster is posted with its roles in full")
            if sum(one.members * one.part.budget for one in self.roles if one.part) > (
                self.price.budget
            ):
                raise Malformed("the roles' budgets are more than the job's")
            return
        role, env = named(self.roles)[self.member], self.env
        own = Part(self.resources, self.command, own_env(env), self.price.budget)
        told = (env.get(TOLD_ROLE), env.get(TOLD_MEMBERS))
        if role != Role(role.name, role.members, own.hash) or told != (
            role.name, str(len(named(self.roles))),
        ):  # fmt: skip
            raise Malformed(f"member {self.member} is not what its role {role.name} says")

    @property
    def store(self) -> Store | None:
        """The folder that its cluster's members share."""
        return None if self.cluster is None else self.cluster.store

    @property
    def sealed(self) -> tuple[str, ...]:
        """The secrets that its provider has to be sealed: those that it names, and the key of a
        store that the market keeps.
        """
        own = self.store is not None and bool(self.store.name)
        return (*self.secrets, KEY) if own else self.secrets

    def check_store(self) -> None:
        """:class:`Malformed` where the secrets are not those of its store."""
        store = self.store
        if store is None:
            return
        said, wanted = set(self.secrets) & OF_STORE, set(store.secrets) - {KEY}
        if said != wanted:
            words = ", ".join(sorted(wanted)) or f"none of {', '.join(sorted(OF_STORE))}"
            raise Malformed(f"with this store, the job's secrets name {words}")

    def check_pool_keys(self) -> None:
        """:class:`PoolKeyRefused` where a variable or an argument holds a block producer's key."""
        parts = [one.part for one in self.roles if one.part is not None]
        for env, command in ((self.env, self.command), *((p.env, p.command) for p in parts)):
            for name, value in env.items():
                pool_keys.refuse_in(value, f"env {name}")
            for at, word in enumerate(command, 1):
                pool_keys.refuse_in(word, f"argument {at} of the command")

    def members(self) -> tuple[JobSpec, ...]:
        """What each member of the gang runs, told apart by ``TALLY_MEMBER`` (from 0): the same job
        with an equal part of the budget, or what its role says, and then ``TALLY_ROLE``. A job
        without a gang is its only member.
        """
        if self.gang is None:
            return (self,)
        count = self.gang.members
        if self.roles:
            each = [self._of_role(one) for one in named(self.roles)]
        else:
            each = [replace(self, price=replace(self.price, budget=self.price.budget // count))]
            each *= count
        return tuple(
            replace(
                one, env={**one.env, TOLD_MEMBER: str(at), TOLD_MEMBERS: str(count)}  # _TOLD
            )
            for at, one in enumerate(each)
        )  # fmt: skip

    def _of_role(self, role: Role) -> JobSpec:
        part = role.part
        if part is None:
            raise Malformed("a member's job says of its roles which there are, and no more")
        return replace(
            self,
            resources=part.resources,
            command=part.command,
            env={**part.env, TOLD_ROLE: role.name},
            price=replace(self.price, budget=part.budget),
            roles=tuple(one.shown for one in self.roles),
        )

    @property
    def member(self) -> int:
        """Which member of its cluster it is, from 0; of a job of which there is one, 0."""
        return int(self.env.get(TOLD_MEMBER, "0"))

    @property
    def role(self) -> str:
        """Its role in its cluster; empty where members are equal."""
        return self.env.get(TOLD_ROLE, "") if self.roles else ""

    @cached_property
    def group(self) -> bytes:
        """What the members of a gang have in common, 32 bytes: all but which of them each is. What
        differs by role is there by the roles' hashes.
        """
        env = {name: value for name, value in self.env.items() if name != TOLD_MEMBER}
        common: dict[str, Any] = {**self._wire, "env": env}
        if self.roles:
            common |= {
                "env": {}, "command": [], "resources": [],
                "price": replace(self.price, budget=0).to_wire(),
                "roles": [one.shown.to_wire() for one in self.roles],
            }  # fmt: skip
        return canonical.blake2b_256(canonical.encode(common))

    @property
    def mesh_address(self) -> str:
        """Where it is in its cluster's mesh; empty where it has none."""
        if self.cluster is None or not self.cluster.mesh:
            return ""
        return mesh_net.address(self.group, self.member)

    @property
    def seat(self) -> mesh_net.Seat | None:
        """Where it is in its cluster's mesh, and where the others are; None where it has none."""
        if self.cluster is None or not self.cluster.mesh or self.gang is None:
            return None
        group = self.group
        addresses = tuple(mesh_net.address(group, at) for at in range(self.gang.members))
        return mesh_net.Seat(self.member, addresses, tuple(one.name for one in named(self.roles)))

    @cached_property
    def hash(self) -> bytes:
        """blake2b_256 of the canonical job: ``Terms.work``."""
        return canonical.blake2b_256(canonical.encode(self._wire))

    def to_wire(self) -> dict[str, Any]:
        """Plain values, for a message, a store or JSON; what is inside is not to be changed."""
        return dict(self._wire)

    @cached_property
    def _wire(self) -> dict[str, Any]:
        """Made once: a posted job is hashed, stored and sent. What few jobs have is only there
        where it is, so that what comes later leaves the hash of other jobs as it was.
        """
        rare: dict[str, Any] = {} if self.gang is None else {"gang": self.gang.to_wire()}
        rare |= {} if self.relay is None else {"relay": self.relay.to_wire()}
        rare |= {} if self.cluster is None else {"cluster": self.cluster.to_wire()}
        rare |= {"roles": [one.to_wire() for one in self.roles]} if self.roles else {}
        rare |= {"volumes": [one.to_wire() for one in self.volumes]} if self.volumes else {}
        wire = {
            "version": VERSION,
            **rare,
            **_egress_to_wire(self.egress),
            "name": self.name,
            "kind": self.kind,
            "image": self.image,
            "command": list(self.command),
            "resources": [one.to_wire() for one in self.resources],
            "env": dict(self.env),
            "secrets": list(self.secrets),
            "files": [one.to_wire() for one in self.files],
            "ports": [one.to_wire() for one in self.ports],
            "outputs": list(self.outputs),
            "placement": self.placement.to_wire(),
            "price": self.price.to_wire(),
            "policy": self.policy.to_wire(),
        }
        return wire if self.version == VERSION else job_v1.write(wire)

    @staticmethod
    def from_wire(value: object) -> JobSpec:
        """The reverse, of each version that ever was; :class:`Malformed` for anything else, an
        unknown field too: whoever skipped one would run something else than was asked for.

        Its counts are those of a job file: whatever a market takes fits the frame that an adapter
        takes (``cbor.FRAME``).
        """
        version = want_map(value, "job").get("version", 1)
        if type(version) is not int or version not in (1, VERSION):
            raise JobVersionUnknown(f"version {version!r} of a job is not known here")
        w = want_fields(
            job_v1.read(value) if version == 1 else value,
            "job",
            _FIELDS,
            {"gang", "egress", "relay", "volumes", "cluster", "roles"},
        )
        kind = want_text(w["kind"], "kind", 10)
        if kind not in KINDS:
            raise Malformed(f"kind {kind!r} is none of {', '.join(KINDS)}")
        relay = RelayNeed.from_wire(w["relay"]) if "relay" in w else None
        gang = Gang.from_wire(w["gang"]) if "gang" in w else None
        ports = tuple(map(Port.from_wire, want_items(w["ports"], "ports", 16)))
        if relay is not None and all(one.port != relay.port for one in ports):
            raise Malformed(f"the relay's port {relay.port} is not among the job's ports")
        read = JobSpec(
            version=version,
            name=want_text(w["name"], "name", 80),
            kind=kind,
            image=want_text(w["image"], "image", 300),
            command=want_texts(w["command"], "command", 1024),
            resources=tuple(map(Resources.from_wire, want_items(w["resources"], "resources", 17))),
            env=want_text_map(w["env"], "env", 256, beside=_TOLD),
            secrets=want_texts(w["secrets"], "secrets", 64),
            files=tuple(map(FileIn.from_wire, want_items(w["files"], "files", 256))),
            ports=ports,
            relay=relay,
            volumes=_mounts(w["volumes"]) if "volumes" in w else (),
            outputs=want_texts(w["outputs"], "outputs", 64),
            placement=Placement.from_wire(w["placement"]),
            price=Price.from_wire(w["price"]),
            gang=gang,
            cluster=_cluster(w["cluster"], gang) if "cluster" in w else None,
            roles=want_roles(w["roles"], gang.members if gang else 0) if "roles" in w else (),
            egress=_egress(w["egress"]) if "egress" in w else NO_EGRESS,
            policy=Policy.from_wire(w["policy"]),
        )
        read.check_volume()
        read.check_cluster()
        read.check_roles()
        read.check_store()
        return read


_FIELDS: Final = frozenset(
    {
        "version", "name", "kind", "image", "command", "resources", "env", "secrets", "files",
        "ports", "outputs", "placement", "price", "policy",
    }
)  # fmt: skip


def _cluster(value: object, gang: Gang | None) -> Cluster:
    if gang is None:
        raise Malformed("a cluster is a gang: say gang as well")
    return Cluster.from_wire(value, gang.members)


def _mounts(value: object) -> tuple[Mount, ...]:
    found = want_apart([Mount.from_wire(x) for x in want_items(value, "volumes", MOST_MOUNTS)])
    if not found:  # two forms of one job would have two hashes
        raise Malformed("no volumes: leave `volumes` out")
    return found


def _egress_to_wire(egress: Egress) -> dict[str, object]:
    """``open``, or the list; a job that asks for nothing has no such key."""
    if egress.mode is EgressMode.NONE:
        return {}
    return {"egress": list(egress.allow) or str(egress.mode)}


def _egress(value: object) -> Egress:
    if value == str(EgressMode.OPEN):
        return Egress(EgressMode.OPEN)
    if isinstance(value, str):
        raise Malformed("egress is open, or a list of host:port; without it there is none")
    return Egress(EgressMode.LIST, want_texts(value, "egress", MOST_TARGETS))
