"""Jobs of several members: a gang, which is placed and ends as one, and a cluster, which works as
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.work.cluster import ASSEMBLE_MS, HOLD_MS, MOST_MS, Cluster, Stall
from marketplace.domain.work.cluster_store import KEY, OF_STORE, Store
from marketplace.domain.work.frameworks import Framework, launched
from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.nodes import BadValue, Node, Notes, Scalar, Table
from marketplace.domain.work.jobfile.roles import AskedRole, JobSays, resolved, roles_asked
from marketplace.domain.work.jobfile.values import Section, choice, guarded, whole
from marketplace.domain.work.lease import RETRY_ON
from marketplace.domain.work.parts import MOST_MEMBERS, Gang, Policy
from marketplace.domain.work.roles import Role

NETWORKS: Final = ("mesh", "none")
REPLACED: Final = 3
"""How often each member of a cluster is replaced where its file does not say."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A file's ``cluster``: the gang that it is, and what makes one of it; neither without one."""

    gang: Gang | None = None
    cluster: Cluster | None = None
    framework: Framework = Framework.NONE
    asked: tuple[AskedRole, ...] = ()

    def command(self, said: tuple[str, ...], ports: Sequence[int] = ()) -> tuple[str, ...]:
        """What its members run where the file's command is *said* and its *ports* are these."""
        if self.cluster is None or self.gang is None or not said:
            return said
        return launched(self.framework, said, self.cluster.least, self.gang.members, ports)

    @property
    def commanded(self) -> bool:
        """Whether its roles say what is run, so that the job need not."""
        one = self.asked[:1] if self.framework is Framework.RAY else self.asked
        return bool(one) and all(role.command is not None for role in one)

    def roles(self, notes: Notes, job: JobSays, ports: Sequence[int]) -> tuple[Role, ...]:
        """Its roles in full, where the file says of all members what *job* has."""
        first = self.asked[0].command if self.asked else None
        ray = self.framework is Framework.RAY
        for role in self.asked[1:] if ray else ():
            if role.command is not None:
                why = "Ray runs the command of member 0 alone: leave it out, or say it for the job"
                notes.add(BadValue, role.node, f"{role.path}.command", why)

        def launch(said: tuple[str, ...]) -> tuple[str, ...]:
            # Of Ray's members one runs it, and what all start with is the same.
            return self.command(first if ray and first is not None else said, ports)

        return resolved(notes, self.asked, job, launch)


NO_CLUSTER: Final = Asked()


def gang_of(notes: Notes, node: Node, path: str) -> Gang | None:
    """``{members: 3, spread: true, same_region: true}``."""
    s = Section.read(notes, node, path, ("members", "spread", "same_region"))
    return None if s.table is None else _gang(s)  # noted already: it is no map


def cluster_of(notes: Notes, node: Node, path: str) -> Asked:
    """``{members: 4, min: 2, spread: true, same_region: true, stall: pause, assemble: 1m, hold: 2m,
    network: mesh, framework: torchrun, store: {name: run-1}}``, or ``roles`` in place of
    ``members``.
    """
    known = (
        "members", "roles", "min", "spread", "same_region", "stall", "assemble", "hold", "network",
        "framework", "store",
    )  # fmt: skip
    s = Section.read(notes, node, path, known)
    if s.table is None:
        return NO_CLUSTER
    before = len(notes.problems)
    asked = s.take("roles", roles_asked, ())
    hold = len(notes.problems) == before
    gang = _gang(s) if s.get("roles") is None else _gang_of(s, asked, hold)
    limit = "must be an hour at most"
    times = {
        key: s.take(key, values.duration, default)
        for key, default in (("assemble", ASSEMBLE_MS), ("hold", HOLD_MS))
    }
    for key, ms in times.items():
        if ms > MOST_MS:
            notes.add(BadValue, s.get(key) or node, s.at(key), limit)
    mesh = s.take("network", choice(*NETWORKS), NETWORKS[0]) == NETWORKS[0]
    framework = Framework(s.take("framework", choice(*Framework), Framework.NONE))
    if framework is not Framework.NONE and not mesh:
        why = "its members meet in a network of their own: leave out network: none"
        notes.add(BadValue, s.get("framework") or node, s.at("framework"), why)
    return Asked(
        gang,
        Cluster(
            least=s.take("min", whole(1, gang.members), gang.members),
            stall=Stall(s.take("stall", choice(*Stall), Stall.PAUSE)),
            assemble_ms=min(times["assemble"], MOST_MS),
            hold_ms=min(times["hold"], MOST_MS),
            mesh=mesh,
            store=s.take("store", _store, None),
        ),
        framework,
        asked,
    )


def _store(notes: Notes, node: Node, path: str) -> Store | None:
    """``{name: run-1}``, or ``{url: s3://bucket/prefix, endpoint: https://…}``."""
    before = len(notes.problems)
    s = Section.read(notes, node, path, ("name", "url", "endpoint"))
    said = {key: s.take(key, values.text, "") for key in ("name", "url", "endpoint")}
    if len(notes.problems) > before:
        return None
    return guarded(notes, node, path, lambda: Store(**said))


def store_rules(top: Section, store: Store | None, secrets: tuple[str, ...]) -> None:
    """A store of the consumer's own is opened with two secrets; of the market's with none that a
    file names.
    """
    if store is None:
        return
    said, wanted = set(secrets) & OF_STORE, set(store.secrets) - {KEY}
    node = top.get("secrets") or top.get("cluster")
    if said != wanted and node is not None:
        why = (
            f"a store of your own is opened with secrets: [{', '.join(sorted(wanted))}]"
            if wanted
            else f"a store of the market's needs no secret of yours: leave {sorted(said)[0]} out"
        )
        top.notes.add(BadValue, node, "secrets", why)


def replacing(policy: Policy) -> Policy:
    """The policy of a cluster's members: what is lost is replaced, unless the file says how."""
    if policy.retry_max:
        return policy
    return replace(
        policy, retry_on=tuple(one.value.lower() for one in RETRY_ON), retry_max=REPLACED
    )


def _gang(s: Section) -> Gang:
    hint = f"say how many: {s.path}: {{members: 3}}"
    return _placed(s, s.need("members", whole(2, MOST_MEMBERS), 2, hint))


def _gang_of(s: Section, asked: Sequence[AskedRole], hold: bool) -> Gang:
    """Of the members of all roles; *hold*: nothing is wrong with these so far."""
    said, roles, members = s.get("members"), s.get("roles"), sum(one.members for one in asked)
    if said is not None:
        why = "the roles' members add up to it: leave out one of the two"
        s.notes.add(BadValue, said, s.at("members"), why)
    if roles is not None and hold and not 2 <= members <= MOST_MEMBERS:
        why = f"the roles have {members} members in all: 2 to {MOST_MEMBERS} are expected"
        s.notes.add(BadValue, roles, s.at("roles"), why)
    return _placed(s, min(max(members, 2), MOST_MEMBERS))


def _placed(s: Section, members: int) -> Gang:
    return Gang(
        members,
        spread=s.take("spread", values.flag, False),
        same_region=s.take("same_region", values.flag, False),
    )


def gang_rules(top: Section, asked: Asked) -> None:
    """A gang starts as one and ends as one: none of it begins again by itself. Of a cluster each
    member does that is lost.
    """
    policy, cluster, gang = top.get("policy"), top.get("cluster"), top.get("gang")
    if isinstance(cluster, Table) and top.get("command") is None and not asked.commanded:
        for key, node in cluster.entries:
            if key.text == "framework" and not (isinstance(node, Scalar) and node.text == "none"):
                top.lacks("command", "the framework runs it: an image's own is not known here")
    if cluster is not None and gang is not None:
        top.notes.add(BadValue, gang, "gang", "a cluster is a gang: leave out one of the two")
    if (gang is None and cluster is None) or not isinstance(policy, Table):
        return
    for key, _ in policy.entries:
        if key.text == "retry" and cluster is None:
            top.notes.add(BadValue, key, "policy.retry", "a gang ends as one, and is not retried")
