"""``cluster.roles`` in a job file: members that differ, and still are one cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.client.jobs import jobfiles
from marketplace.domain.errors import Malformed
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import BadValue, JobFileRefused, MissingKey, UnknownKey, write
from marketplace.domain.work.jobfile.nodes import DuplicateKey, WrongType
from marketplace.domain.work.mesh_net import host_name
from marketplace.domain.work.parts import Gang, GpuNeed, Range, Resources
from marketplace.domain.work.pool_keys import PoolKeyRefused

FILE = """\
version: 1
image: python:3.11
command: [python, train.py]
resources: {cpu: 1, memory: 1GB}
env: {EPOCHS: "3", SIZE: small}
price: {budget: 40 ADA}
"""
TWO = """\
cluster:
  min: 2
  roles:
    head: {resources: {cpu: 4, memory: 8GB}, budget: 10 ADA}
    worker:
      members: 3
      resources: {gpu: {model: H100}}
      command: [python, worker.py]
      env: {SIZE: large}
"""


def _read(more: str, file: str = FILE) -> JobSpec:
    return jobfiles.loads(file + more).spec()


def _members(spec: JobSpec) -> list[JobSpec]:
    """As the market keeps them and each provider reads its own."""
    return [JobSpec.from_wire(json.loads(json.dumps(one.to_wire()))) for one in spec.members()]


def test_each_member_has_what_its_role_says_and_else_what_the_job_says() -> None:
    """By its number: those of the first role come first."""
    spec = _read(TWO)
    assert spec.gang == Gang(4) and spec.cluster is not None and spec.cluster.least == 2
    head, *workers = _members(spec)
    assert [one.role for one in (head, *workers)] == ["head", "worker", "worker", "worker"]
    assert head.env == {
        "EPOCHS": "3", "SIZE": "small",
        "TALLY_MEMBER": "0", "TALLY_MEMBERS": "4", "TALLY_ROLE": "head",
    }  # fmt: skip
    assert head.command == ("python", "train.py")
    assert head.resources[0].cpu == Range(4000, 4000) and head.resources[0].gpu is None
    for at, one in enumerate(workers, 1):
        assert one.member == at and one.env["EPOCHS"] == "3" and one.env["SIZE"] == "large"
        assert one.command == ("python", "worker.py")
        assert one.resources == (Resources(gpu=GpuNeed(("H100",))),)
    assert [one.price.budget for one in (head, *workers)] == [10_000_000] * 4
    assert all("python" not in str(one.to_wire()["roles"]) for one in (head, *workers))


def test_members_that_differ_are_one_group_with_an_address_each() -> None:
    """Which is another one as soon as any role is."""
    spec = _read(TWO)
    members = _members(spec)
    assert {one.group for one in members} == {spec.group}
    assert len({one.mesh_address for one in members}) == 4
    assert len({one.hash for one in members}) == 4
    for other in (
        TWO.replace("H100", "A100"),
        TWO.replace("large", "huge"),
        TWO.replace("worker.py", "other.py"),
        TWO.replace("budget: 10", "budget: 11"),
        TWO.replace("worker:", "helper:"),
        TWO.replace("members: 3", "members: 2"),
    ):
        assert other != TWO
        assert _read(other).members()[0].group != members[0].group


def test_a_budget_is_divided_by_role_and_never_exceeded() -> None:
    """A role's own is its members' together; the others share what that leaves."""
    for more, parts in (
        ("a: {}, b: {members: 3}", [10, 10, 10, 10]),
        ("a: {budget: 4 ADA}, b: {members: 2}", [4, 18, 18]),
        ("a: {budget: 4 ADA}, b: {members: 2, budget: 6 ADA}", [4, 3, 3]),
        ("a: {members: 2, budget: 16 ADA}, b: {}, c: {}", [8, 8, 12, 12]),
    ):
        spec = _read(f"cluster: {{roles: {{{more}}}}}\n")
        assert [one.price.budget for one in spec.members()] == [ada * 1_000_000 for ada in parts]
        assert sum(one.price.budget for one in spec.members()) <= spec.price.budget


def test_names_of_roles_are_names_of_hosts() -> None:
    """Beside a member's own."""
    seat = _members(_read(TWO))[1].seat
    assert seat is not None
    names = seat.names()
    assert [names[host_name(at)] for at in range(4)] == list(seat.addresses)
    assert names["head"] == names["head-0"] == seat.addresses[0]
    assert names["worker"] == names["worker-0"] == seat.addresses[1]
    assert names["worker-2"] == seat.addresses[3] and "worker-3" not in names
    assert f"{seat.addresses[0]} head\n" in seat.hosts()
    equal = _read("cluster: {members: 2}\n").members()[0].seat
    assert equal is not None and set(equal.names()) == {"member-0", "member-1"}


def test_without_roles_nothing_is_other_than_it_was() -> None:
    """Neither on the wire nor in what a member is told."""
    for spec in (_read("cluster: {members: 2}\n"), _read("")):
        for one in spec.members():
            assert "roles" not in one.to_wire() and "TALLY_ROLE" not in one.env
            assert one.role == ""


@pytest.mark.parametrize(
    "more",
    [
        TWO,
        "cluster: {roles: {a: {command: []}, b: {any_of: [{gpu: 1}, {cpu: 8}]}}}\n",
        "cluster: {roles: {a: {members: 2, budget: 3 ADA}}, spread: true}\n",
    ],
)
def test_what_is_written_is_read_as_the_same_roles(more: str) -> None:
    """All that a file can say."""
    spec = _read(more)
    assert jobfiles.loads(json.dumps(write(spec))).spec() == spec
    assert JobSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec
    assert JobSpec.from_wire(spec.to_wire()).hash == spec.hash


def test_under_a_framework_each_runs_its_command_and_under_ray_all_start_alike() -> None:
    """Ray's head runs it, which is member 0."""
    torch = _read(TWO.replace("  min: 2", "  framework: torchrun"))
    assert [one.command[-1] for one in torch.members()] == ["train.py"] + ["worker.py"] * 3
    assert len({one.command[:3] for one in torch.members()}) == 1
    ray = "cluster: {framework: ray, roles: {head: {command: [python, a.py]}, worker: {members: 2}}}\n"
    for file in (FILE, FILE.replace("command: [python, train.py]\n", "")):
        spec = _read(ray, file)
        assert {one.command[-2:] for one in spec.members()} == {("python", "a.py")}
        assert len({one.command for one in spec.members()}) == 1


def test_a_process_is_given_its_command_by_its_role_too() -> None:
    """Where every role has one, the job needs none."""
    process = "version: 1\nplacement: {isolation: process}\n"
    spec = _read("cluster: {roles: {a: {command: [a]}, b: {command: [b]}}}\n", process)
    for one in spec.members():
        one.check_isolation()
    with pytest.raises(MissingKey):
        _read("cluster: {roles: {a: {command: [a]}, b: {}}}\n", process)


@pytest.mark.parametrize(
    ("said", "kind", "path"),
    [
        ("{members: 2, roles: {a: {members: 2}}}", BadValue, "cluster.members"),
        ("{roles: {a: {members: 1}}}", BadValue, "cluster.roles"),
        ("{roles: {a: {members: 0}, b: {members: 2}}}", BadValue, "cluster.roles.a.members"),
        ("{roles: {a: {members: 40}, b: {members: 25}}}", BadValue, "cluster.roles"),
        ("{roles: {a: {members: 65}}}", BadValue, "cluster.roles.a.members"),
        ("{roles: {}}", BadValue, "cluster.roles"),
        ("{roles: [a, b]}", WrongType, "cluster.roles"),
        ("{roles: {a: 2}}", WrongType, "cluster.roles.a"),
        ("{roles: {a: {member: 2}, b: {}}}", UnknownKey, "cluster.roles.a.member"),
        ("{roles: {a: {image: x}, b: {}}}", UnknownKey, "cluster.roles.a.image"),
        ("{roles: {a: {}, a: {}}}", DuplicateKey, "cluster.roles.a"),
        ("{roles: {A: {}, b: {}}}", BadValue, "cluster.roles.A"),
        ("{roles: {9a: {}, b: {}}}", BadValue, "cluster.roles.9a"),
        ("{roles: {a_b: {}, b: {}}}", BadValue, "cluster.roles.a_b"),
        ("{roles: {a-: {}, b: {}}}", BadValue, "cluster.roles.a-"),
        (f"{{roles: {{{'a' * 33}: {{}}, b: {{}}}}}}", BadValue, f"cluster.roles.{'a' * 33}"),
        ("{roles: {member: {}, b: {}}}", BadValue, "cluster.roles.member"),
        ("{roles: {member-1: {}, b: {}}}", BadValue, "cluster.roles.member-1"),
        ("{roles: {worker-0: {}, worker: {}}}", BadValue, "cluster.roles.worker-0"),
        ("{roles: {localhost: {}, b: {}}}", BadValue, "cluster.roles.localhost"),
        ("{min: 4, roles: {a: {}, b: {members: 2}}}", BadValue, "cluster.min"),
        ("{roles: {a: {budget: 41 ADA}, b: {}}}", BadValue, "cluster.roles.a.budget"),
        ("{roles: {a: {budget: 40 ADA}, b: {}}}", BadValue, "cluster.roles.b.budget"),
        ("{roles: {a: {resources: {cpus: 2}}, b: {}}}", UnknownKey, "cluster.roles.a.resources.cpus"),
        ("{roles: {a: {env: {TALLY_ROLE: x}}, b: {}}}", BadValue, "cluster.roles.a.env"),
        ("{roles: {a: {env: {LD_PRELOAD: x}}, b: {}}}", BadValue, "cluster.roles.a.env.LD_PRELOAD"),
        (
            "{framework: ray, roles: {a: {}, b: {command: [x]}}}",
            BadValue,
            "cluster.roles.b.command",
        ),
        (f"{{roles: {{{', '.join(f'r{at}: {{}}' for at in range(9))}}}}}", BadValue, "cluster.roles"),
    ],
)  # fmt: skip
def test_each_mistake_of_roles_is_named(said: str, kind: type[JobFileRefused], path: str) -> None:
    """With the place where it stands, and a remedy."""
    with pytest.raises(kind) as refused:
        _read(f"cluster: {said}\n")
    assert refused.value.fields["path"] == path
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("roles: {a: {}, b: {}}\n", "roles"),
        ("gang: {members: 2, roles: {a: {}, b: {}}}\n", "gang.roles"),
    ],
)
def test_roles_are_of_a_cluster_alone(more: str, path: str) -> None:
    """Elsewhere there is no such key."""
    with pytest.raises(UnknownKey) as refused:
        _read(more)
    assert refused.value.fields["path"] == path


def test_a_framework_needs_a_command_of_every_role() -> None:
    """Its own or the job's."""
    bare = FILE.replace("command: [python, train.py]\n", "")
    both = "cluster: {framework: torchrun, roles: {a: {command: [a]}, b: {command: [b]}}}\n"
    assert [one.command[-1] for one in _read(both, bare).members()] == ["a", "b"]
    with pytest.raises(MissingKey):
        _read(both.replace("b: {command: [b]}", "b: {}"), bare)


KEY = json.dumps(
    {"type": "StakePoolSigningKey_ed25519", "description": "", "cborHex": "5820" + "ab" * 32}
)


def test_a_block_producers_key_is_refused_in_a_role_too() -> None:
    """Nowhere else is it looked for."""
    for said in (f"env: {{K: {json.dumps(KEY)}}}", f"command: [x, {json.dumps(KEY)}]"):
        spec = _read(f"cluster: {{roles: {{a: {{}}, b: {{{said}}}}}}}\n")
        with pytest.raises(PoolKeyRefused):
            spec.check_pool_keys()


# ---- on the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        {"resources": [Resources().to_wire()]},
        {"command": ["other"]},
        {"env": {"TALLY_ROLE": "worker"}},
        {"env": {"TALLY_MEMBER": "1"}},
        {"env": {"TALLY_MEMBERS": "3"}},
        {"env": {"MORE": "1"}},
        {"price": {"budget": 11_000_000}},
        {"roles": []},
        {"roles": None},
        {"cluster": None},
        {"roles": "swapped"},
        {"roles": "full"},
    ],
)
def test_a_member_that_is_not_what_its_role_says_is_refused(broken: dict[str, Any]) -> None:
    """So its group, and with it its mesh's addresses, cannot be claimed by another job."""
    spec = _read(TWO)
    wire = json.loads(json.dumps(spec.members()[0].to_wire()))
    for key, said in broken.items():
        if said == "swapped":
            said = wire[key][::-1]
        elif said == "full":
            said = spec.to_wire()[key]
        wire[key] = {**wire[key], **said} if isinstance(said, dict) else said
        if said is None:
            del wire[key]
    if "roles" in wire:
        with pytest.raises(Malformed):
            JobSpec.from_wire(wire)
    else:
        assert JobSpec.from_wire(wire).group != spec.group


@pytest.mark.parametrize(
    "broken",
    [
        {"members": 0},
        {"members": 2},
        {"name": "worker"},
        {"name": "Head"},
        {"budget": 10_000_001},
        {"budget": 0},
        {"work": "ab" * 32},
        {"image": "x"},
        {"env": {"TALLY_MEMBER": "1"}},
    ],
)
def test_roles_that_are_none_are_refused_on_the_wire(broken: dict[str, Any]) -> None:
    """Whoever posts need not have read a job file."""
    wire = json.loads(json.dumps(_read(TWO).to_wire()))
    JobSpec.from_wire(wire)
    wire["roles"][0] |= broken
    with pytest.raises(Malformed):
        JobSpec.from_wire(wire)


def test_a_job_that_shows_hashes_alone_is_not_posted() -> None:
    """Of a member nobody makes members again."""
    member = _read(TWO).members()[0]
    with pytest.raises(Malformed):
        member.members()
    bare = {name: value for name, value in member.env.items() if not name.startswith("TALLY_")}
    with pytest.raises(Malformed):
        JobSpec.from_wire(replace(member, env=bare).to_wire())


ROLES = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.none() | st.integers(1, 8),
        st.none() | st.lists(st.sampled_from("abc"), max_size=3),
        st.dictionaries(
            st.sampled_from(("A", "B", "EPOCHS")), st.sampled_from(("", "x")), max_size=2
        ),
    ),
    min_size=2,
    max_size=5,
)


@given(ROLES)
def test_whatever_the_roles_the_members_are_one_group_within_the_budget(roles: list[Any]) -> None:
    """And each is told apart from all others."""
    said = {
        f"r{at}x": {"members": count, "env": env}
        | ({} if cpu is None else {"resources": {"cpu": cpu}})
        | ({} if command is None else {"command": command})
        for at, (count, cpu, command, env) in enumerate(roles)
    }
    spec = _read(f"cluster: {json.dumps({'roles': said})}\n")
    members = _members(spec)
    assert len(members) == sum(count for count, *_ in roles)
    assert {one.group for one in members} == {spec.group}
    assert len({one.hash for one in members}) == len(members)
    assert sum(one.price.budget for one in members) <= spec.price.budget
    for (_, cpu, command, env), name in zip(roles, said, strict=True):
        for one in members:
            if one.role == name:
                assert one.resources[0].cpu.least == (cpu or 1) * 1000
                assert list(one.command) == (["python", "train.py"] if command is None else command)
                assert env.items() <= one.env.items()
