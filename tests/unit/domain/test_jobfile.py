"""Job files: what they mean, where they are wrong, and that no text at all gets past the
refusals.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.sold import nominal_least
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import (
    BadValue,
    DuplicateKey,
    JobFileRefused,
    JobSyntax,
    MissingKey,
    UnknownKey,
    WrongType,
)
from marketplace.domain.work.parts import UNLIMITED, Gang, GpuNeed, Port, Range, Resources
from marketplace.domain.work.relay import RelayNeed
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.workload import Egress, EgressMode

FULL = """\
version: 1
name: finetune
kind: job
image: python:3.11
command: ["python", "train.py"]
resources:
  gpu: {model: [H100, A100], count: 1..2, vram: 24GB.., share: 500}
  cpu: 4..
  memory: 16GB..32GB
  disk: 50GB
any_of:
  - {cpu: 0.5, memory: 512MB}
files: [{src: ./train.py, dst: /workspace/train.py, mode: "755"}]
env: {EPOCHS: "3"}
secrets: [HF_TOKEN]
ports: [{port: 8888, auth: token}, 80]
outputs: [/workspace/out]
placement: {regions: [EU], isolation: container, min_trust: 2, labels: {rack: a}}
price: {max_per_gpu_second: 2000 lovelace, max_per_core_second: 0.5 lovelace, budget: 40 ADA}
policy:
  max_duration: 6h
  retry: {on: [provider_lost], max: 2}
  idle_stop: {gpu_below: 5, for: 10m}
  queue: true
  priority: 7
"""


def test_every_key_means_what_is_written() -> None:
    spec = jobfiles.loads(FULL).spec()
    gpu = GpuNeed(("H100", "A100"), Range(1, 2), Range(22855, UNLIMITED), 500)
    assert spec.resources == (
        Resources(Range(4000), Range(16384, 32768), Range(51200, 51200), gpu),
        Resources(Range(500, 500), Range(512, 512), Range(0), None),
    )
    assert (spec.name, spec.kind, spec.image) == ("finetune", "job", "python:3.11")
    assert spec.command == ("python", "train.py") and spec.env == {"EPOCHS": "3"}
    assert spec.ports == (Port(8888, "token"), Port(80, "token"))
    assert spec.secrets == ("HF_TOKEN",) and spec.outputs == ("/workspace/out",)
    assert (spec.price.max_gpu_rate, spec.price.max_core_rate) == (2_000_000_000, 500_000)
    assert spec.price.budget == 40_000_000 and spec.policy.max_duration_ms == 21_600_000
    assert (spec.policy.retry_on, spec.policy.retry_max) == (("provider_lost",), 2)
    assert (spec.policy.idle_gpu_below, spec.policy.idle_for_ms) == (5, 600_000)
    assert spec.policy.queue and spec.policy.priority == 7
    assert spec.placement.labels == {"rack": "a"} and spec.placement.min_trust == 2


def test_the_job_survives_json_and_its_hash_is_stable() -> None:
    spec = jobfiles.loads(FULL).spec()
    again = JobSpec.from_wire(json.loads(json.dumps(spec.to_wire())))
    assert again == spec and again.hash == spec.hash


@pytest.mark.parametrize(
    ("written", "meant", "wire"),
    [
        ("none", Egress(), {}),
        ("open", Egress(EgressMode.OPEN), {"egress": "open"}),
        (
            "[pypi.org:443, 203.0.113.9:80]",
            Egress(EgressMode.LIST, ("pypi.org:443", "203.0.113.9:80")),
            {"egress": ["pypi.org:443", "203.0.113.9:80"]},
        ),
    ],
)
def test_what_a_job_may_connect_to_is_what_it_asks_for(
    written: str, meant: Egress, wire: dict[str, object]
) -> None:
    spec = jobfiles.loads(f"{FULL}egress: {written}\n").spec()
    assert spec.egress == meant
    assert {k: v for k, v in spec.to_wire().items() if k == "egress"} == wire
    again = JobSpec.from_wire(json.loads(json.dumps(spec.to_wire())))
    assert again == spec and again.hash == spec.hash


@pytest.mark.parametrize(
    "written",
    ["yes", "true", "internet", "[]", "[pypi.org]", "['pypi.org:0']", "['a b:1']", "['x:70000']",
     "['[::1]:80']", "{a: b}", "[443]", str([f"h{n}:1" for n in range(33)])],
)  # fmt: skip
def test_an_egress_that_means_nothing_is_refused_with_its_line(written: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        jobfiles.loads(f"{FULL}egress: {written}\n")
    assert refused.value.fields["line"] == FULL.count("\n") + 1
    assert str(refused.value.fields["path"]).startswith("egress")


def test_a_relay_is_asked_for_by_its_network() -> None:
    spec = jobfiles.loads(f"{FULL}relay: {{network: preprod}}\n").spec()
    assert spec.relay == RelayNeed("preprod", 3001, 300_000)
    assert spec.ports == (Port(8888, "token"), Port(80, "token"), Port(3001, "token"))
    own = jobfiles.loads(f"{FULL}relay: {{network: mainnet, port: 80, lag: 90s}}\n").spec()
    assert own.relay == RelayNeed("mainnet", 80, 90_000) and len(own.ports) == 2
    again = JobSpec.from_wire(json.loads(json.dumps(spec.to_wire())))
    assert again == spec and again.hash == spec.hash != jobfiles.loads(FULL).spec().hash


@pytest.mark.parametrize(
    "written",
    ["yes", "[]", "{}", "{network: devnet}", "{network: preprod, lag: 5s}", "{port: 3001}",
     "{network: preprod, lag: 2h}", "{network: preprod, port: 0}", "{network: preprod, tip: 1}"],
)  # fmt: skip
def test_a_relay_that_means_nothing_is_refused_with_its_line(written: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        jobfiles.loads(f"{FULL}relay: {written}\n")
    assert refused.value.fields["line"] == FULL.count("\n") + 1
    assert str(refused.value.fields["path"]).startswith("relay")


@pytest.mark.parametrize(
    "changes",
    [{"network": "devnet"}, {"lag_ms": 19_999}, {"lag_ms": 3_600_001}, {"port": 3002},
     {"port": "3001"}, {"lag_ms": None}, {"more": 1}],
)  # fmt: skip
def test_no_other_relay_is_taken_from_a_message(changes: dict[str, object]) -> None:
    """A port that nobody reaches could be looked at by its provider alone."""
    wire = jobfiles.loads(f"{FULL}relay: {{network: preprod}}\n").spec().to_wire()
    with pytest.raises(Malformed):
        JobSpec.from_wire({**wire, "relay": {**wire["relay"], **changes}})


@pytest.mark.parametrize("wire", ["none", "", "OPEN", [], [1], ["x"], None, True, {"mode": "open"}])
def test_no_other_egress_is_taken_from_a_message(wire: object) -> None:
    spec = jobfiles.loads(FULL).spec()
    with pytest.raises(Malformed):
        JobSpec.from_wire({**spec.to_wire(), "egress": wire})


def test_a_job_that_asks_for_no_egress_has_the_hash_that_it_always_had() -> None:
    """Terms are signed over it: those of before the key was known stay good."""
    plain = JobSpec("pinned", "sha256:" + "ab" * 32, ("true",), (Resources(),), version=1)
    assert plain.hash.hex() == "9c9114e277b7e0678419170c1c66c5f663d8077e1bc203a5e21e1b196b746a8c"
    asked = replace(plain, egress=Egress(EgressMode.OPEN))
    assert asked.hash != plain.hash


def test_json_is_as_good_as_yaml() -> None:
    text = json.dumps(
        {"version": 1, "image": "a/b:1", "env": {"A": "x\ty😀", "B": "é"}}, indent="\t"
    )
    assert jobfiles.loads(text).spec().env == {"A": "x\ty😀", "B": "é"}


GANG = FULL.replace("  retry: {on: [provider_lost], max: 2}\n", "")


def test_a_gang_is_so_many_equal_members_with_a_part_of_the_budget_each() -> None:
    text = GANG + "gang: {members: 3, spread: true, same_region: true}\n"
    spec = jobfiles.loads(text).spec()
    assert spec.gang == Gang(3, spread=True, same_region=True)
    assert JobSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec
    members = spec.members()
    assert [m.env["TALLY_MEMBER"] for m in members] == ["0", "1", "2"]
    assert {(m.env["TALLY_MEMBERS"], m.env["EPOCHS"]) for m in members} == {("3", "3")}
    assert sum(m.price.budget for m in members) <= spec.price.budget
    assert len({m.hash for m in members} | {spec.hash}) == 4
    # A job without a gang keeps the hash that it always had.
    alone = jobfiles.loads(GANG).spec()
    assert "gang" not in alone.to_wire() and alone.members() == (alone,)


@pytest.mark.parametrize(
    ("text", "kind", "line", "path"),
    [
        ("gang: {spread: true}\n", MissingKey, 1, "gang.members"),
        ("gang: {members: 1}\n", BadValue, 1, "gang.members"),
        ("gang: {members: 65}\n", BadValue, 1, "gang.members"),
        ("gang: {members: 3, spred: true}\n", UnknownKey, 1, "gang.spred"),
        ('gang: {members: 3, spread: "yes"}\n', WrongType, 1, "gang.spread"),
        ("gang: 3\n", WrongType, 1, "gang"),
        (
            "gang: {members: 3}\npolicy:\n  retry: {on: [provider_lost], max: 2}\n",
            BadValue,
            3,
            "policy.retry",
        ),
    ],
)
def test_each_mistake_of_a_gang_has_its_line(
    text: str, kind: type[JobFileRefused], line: int, path: str
) -> None:
    with pytest.raises(kind) as refused:
        jobfiles.loads(text + "version: 1\nimage: python:3.11\n").spec()
    assert (refused.value.fields["line"], refused.value.fields["path"]) == (line, path)


@pytest.mark.parametrize("gang", [[1, False, False], [65, False, False], [2, 0, 1], [2, True], "3"])
def test_a_gang_that_is_none_is_refused_on_the_wire(gang: object) -> None:
    with pytest.raises(Refusal):
        JobSpec.from_wire({**jobfiles.loads(GANG).spec().to_wire(), "gang": gang})


def test_short_forms() -> None:
    spec = jobfiles.loads(
        "version: 1\nimage: a\ncommand: echo hi; exit 3\nresources: {gpu: H100}"
    ).spec()
    assert spec.command == ("sh", "-c", "echo hi; exit 3")
    assert spec.resources[0].gpu == GpuNeed(("H100",))
    assert jobfiles.loads("version: 1\nimage: a\nresources: {gpu: 2}").spec().resources[
        0
    ].gpu == GpuNeed((), Range(2, 2))


@pytest.mark.parametrize(
    ("sold", "shown"), [(24, 23028), (16, 15360), (80, 81559), (48, 46068), (24, 24564)]
)
def test_a_device_counts_as_what_it_is_sold_as(sold: int, shown: int) -> None:
    assert nominal_least(sold * 1024) <= shown
    assert nominal_least(sold * 1024 * 2) > shown


HEAD = "version: 1\nimage: a\n"


@pytest.mark.parametrize(
    ("text", "kind", "line", "says"),
    [
        (HEAD + "resorces: {}", UnknownKey, 3, "did you mean 'resources'"),
        (HEAD + "resources:\n  gpu:\n    modle: H100", UnknownKey, 5, "did you mean 'model'"),
        (HEAD + "zzz: 1", UnknownKey, 3, "known here"),
        ("image: a", MissingKey, 1, "version: is missing"),
        ("version: 1", MissingKey, 1, "image: is missing"),
        ("version: 2\nimage: a", BadValue, 1, "not within 1 to 1"),
        (HEAD + "name: a\nname: b", DuplicateKey, 4, "there twice"),
        (HEAD + "env:\n  A: '1'\n  A: '2'", DuplicateKey, 5, "there twice"),
        (HEAD + "env: {A: 3}", WrongType, 3, 'write it in quotes: "3"'),
        (HEAD + "env: {A: no}", WrongType, 3, 'write it in quotes: "no"'),
        (HEAD + "env: {LD_PRELOAD: x}", BadValue, 3, "by the adapter only"),
        (HEAD + "env: {'a b': x}", BadValue, 3, "malformed"),
        (HEAD + "secrets: [A, A]", BadValue, 3, "same place"),
        (HEAD + "kind: jbo", BadValue, 3, "did you mean 'job'"),
        (HEAD + "command: {a: b}", WrongType, 3, "a list is expected"),
        (HEAD + "resources: {cpu: 0}", BadValue, 3, "0.01 or more"),
        (HEAD + "resources: {cpu: 4..2}", BadValue, 3, "empty range"),
        (HEAD + "resources: {cpu: 1e9}", BadValue, 3, "not an amount"),
        (HEAD + "resources: {memory: 16}", BadValue, 3, "not an amount such as 16GB"),
        (HEAD + "resources: {memory: 999999999TB}", BadValue, 3, "more than any host"),
        (HEAD + "resources: {gpu: {count: 0}}", BadValue, 3, "1 or more"),
        (HEAD + "resources: {gpu: {share: 1001}}", BadValue, 3, "within 1 to 1000"),
        (HEAD + "resources: {gpu: {share: 0x10}}", BadValue, 3, "0x10"),
        (HEAD + "price: {budget: 40}", BadValue, 3, "40 ADA"),
        (HEAD + "price: {budget: 0 ADA}", BadValue, 3, "out of range"),
        (HEAD + "price: {budget: -4 ADA}", BadValue, 3, "not an amount"),
        (HEAD + "price: {max_per_gpu_second: 1.5.5 lovelace}", BadValue, 3, "not an amount"),
        (HEAD + "policy: {max_duration: 6 hours}", BadValue, 3, "such as 6h"),
        (HEAD + "policy: {retry: {on: [provider_lost]}}", MissingKey, 3, "policy.retry.max"),
        (HEAD + "policy: {retry: {on: [lost], max: 1}}", BadValue, 3, "provider_lost"),
        (HEAD + "policy: {queue: yes}", WrongType, 3, "true or false"),
        (HEAD + "files: [{src: a, dst: ../../etc/passwd}]", BadValue, 3, "inside /workspace"),
        (HEAD + "files: [{src: a, dst: /etc/passwd}]", BadValue, 3, "inside /workspace"),
        (HEAD + "files: [{src: a, dst: x}, {src: b, dst: x}]", BadValue, 3, "same place"),
        (HEAD + "outputs: [/workspace/../x]", BadValue, 3, "inside /workspace"),
        (HEAD + "ports: [{port: 70000}]", BadValue, 3, "within 1 to 65535"),
        (HEAD + "placement: {providers: [me]}", BadValue, 3, "64 hex digits"),
        ("version: 1\nimage: 'a b'", BadValue, 2, "not an image"),
        ("version: 1\nimage: a@sha256:12", BadValue, 2, "not an image"),
        ("- a\n- b", WrongType, 1, "a job file is a map"),
        ("", JobSyntax, 1, "empty"),
        ("a: [1", JobSyntax, 2, "expected"),
        ("a: &x 1\nb: *x", JobSyntax, 1, "anchors"),
        ("a: !!python/object:os.system x", JobSyntax, 1, "tags"),
        ("version: 1\n---\nversion: 1", JobSyntax, 2, "one document"),
        ("? [a]\n: b", WrongType, 1, "a key is plain text"),
        ('a: "\\UFFFFFFFF"', JobSyntax, 1, ""),
        ('a: "\\ud800"', JobSyntax, 1, "escape code"),
        ("a: " + "[" * 100, JobSyntax, 1, "nested deeper"),
        ("a: [" + "1," * 20_000 + "]", JobSyntax, 1, "nested deeper, or larger"),
        ("# " + "x" * 140_000, JobSyntax, 1, "at most"),
    ],
)
def test_each_mistake_has_its_line_and_its_code(
    text: str, kind: type[JobFileRefused], line: int, says: str
) -> None:
    with pytest.raises(JobFileRefused) as caught:
        jobfiles.loads(text)
    assert type(caught.value) is kind
    assert caught.value.fields["line"] == line
    assert says in caught.value.message
    assert caught.value.code.startswith("JOB_") and caught.value.remedy


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = "version: 1\nimgae: a\nkind: x\nprice: {budget: 1}\n"
    with pytest.raises(JobFileRefused) as caught:
        jobfiles.loads(text, "job.yaml")
    problems = caught.value.fields["problems"]
    assert isinstance(problems, list)
    assert [p.split(":")[0] for p in problems] == [
        "JOB_MISSING_KEY", "JOB_UNKNOWN_KEY", "JOB_BAD_VALUE", "JOB_BAD_VALUE",
    ]  # fmt: skip
    assert str(caught.value).startswith("job.yaml: line 1") and "(and 3 more)" in str(caught.value)


def test_files_are_hashed_relative_to_the_job(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_bytes(b"print(1)\n")
    job = tmp_path / "job.yaml"
    job.write_text(HEAD + "files: [{src: sub/train.py, dst: train.py}]\n")
    loaded = jobfiles.load(job)
    (file,) = loaded.spec.files
    assert (file.dst, file.size, file.mode) == ("train.py", 9, 0o644)
    assert loaded.blobs[file.sha256].read_bytes() == b"print(1)\n"
    job.write_text(HEAD + "files: [{src: nothing, dst: train.py}]\n")
    with pytest.raises(jobfiles.FileRefused, match="line 3"):
        jobfiles.load(job)
    with pytest.raises(jobfiles.FileRefused):
        jobfiles.load(tmp_path / "none.yaml")


WORDS = [
    "..", "4..", "..9", "1..2", "24GB..", "0", "-1", "1e400", "nan", ".inf", "~", "yes", "null", "''", "'",
    '"', "[", "]", "{", "}", "{}", "[]", "[[]]", "!!binary x", "&a", "*a", "<<: *a", "? ", "- ", ": ", "|",
    ">", "%YAML 9.9", "---", "...", "\t", "\x00", "\x85", "\u2028", "😀", "é", "0x1f", "0o17", "1_000",
    "2020-01-01", "12:30:45", "6h", "40 ADA", "99999999999999999999 ADA", "sha256:" + "a" * 64, "H100",
    "a" * 4000, "9" * 400, "../../x", "/workspace", "/workspace/a", "\\", '"\\x"', '"\\uD83D\\uDE00"', "#",
]  # fmt: skip


def mutated(rng: random.Random) -> str:
    """FULL with a few of its lines, words or characters changed."""
    text: str = str(FULL)
    for _ in range(rng.randint(1, 6)):
        kind = rng.randrange(6)
        at = rng.randrange(len(text) + 1)
        if kind == 0:
            text = text[:at] + rng.choice(WORDS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randint(1, 30) :]
        elif kind == 2:
            pieces = text.split(" ")
            pieces[rng.randrange(len(pieces))] = rng.choice(WORDS)
            text = " ".join(pieces)
        elif kind == 3:
            lines = text.split("\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        elif kind == 4:
            lines = text.split("\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            text = "\n".join(lines)
        else:
            text = (
                text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[at:]
            )
        text = text or " "
    return text


def fuzz(cases: range) -> int:
    """How many of *cases* parse; every other one must end as a coded refusal."""
    held = 0
    for case in cases:
        text = mutated(random.Random(case))
        try:
            spec = jobfiles.loads(text).spec()
        except Refusal as error:
            assert error.code.startswith("JOB_"), (case, error)
        else:
            held += 1
            assert JobSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec, case
            assert len(spec.hash) == 32
    return held


def test_fuzz_a_few() -> None:
    assert 0 < fuzz(range(300)) < 300


@pytest.mark.prove
def test_fuzz_many() -> None:
    assert 0 < fuzz(range(300, 6_000)) < 5_700


VOLUME = """
version: 1
name: chain
kind: volume
resources: {disk: 20GB}
price: {budget: 5 ADA, max_per_gb_second: 0.02 lovelace}
policy: {max_duration: 30d}
"""


def test_a_volume_is_disk_alone() -> None:
    spec = jobfiles.loads(VOLUME).spec()
    assert spec.is_volume and (spec.image, spec.command) == ("", ())
    assert spec.resources == (Resources(Range(0), Range(0), Range(20_480, 20_480)),)
    assert spec.price.max_disk_rate == 20_000
    again = JobSpec.from_wire(json.loads(json.dumps(spec.to_wire())))
    assert again == spec and again.hash == spec.hash


@pytest.mark.parametrize(
    "more",
    ["image: a", "command: [a]", "env: {A: b}", "secrets: [A]", "ports: [80]", "egress: open",
     "outputs: [/workspace/a]", "gang: {members: 2}", "relay: {network: preprod}",
     "any_of: [{disk: 1GB}]", "volumes: [{volume: a, path: /a}]",
     "files: [{src: a, dst: /workspace/a}]"],
)  # fmt: skip
def test_a_volume_that_would_run_something_is_refused_with_its_line(more: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        jobfiles.loads(f"{VOLUME}{more}\n")
    assert str(refused.value.fields["path"]).startswith(more.partition(":")[0])


@pytest.mark.parametrize("disk", ["{}", "{disk: 63MB}", "{disk: 1GB, cpu: 1}", "3", "{gpu: 1}"])
def test_a_volume_says_how_large_it_is_and_nothing_else(disk: str) -> None:
    with pytest.raises(JobFileRefused):
        jobfiles.loads(VOLUME.replace("{disk: 20GB}", disk))


@pytest.mark.parametrize(
    ("name", "value"),
    [("image", "sha256:" + "ab" * 32), ("command", ["a"]), ("outputs", ["/workspace/a"]),
     ("secrets", ["A"]), ("env", {"A": "b"}), ("egress", "open"), ("resources", []),
     ("kind", "disk"), ("volumes", [{"volume": "lease_2", "path": "/a", "read_only": False}])],
)  # fmt: skip
def test_no_other_volume_is_taken_from_a_message(name: str, value: object) -> None:
    wire = jobfiles.loads(VOLUME).spec().to_wire()
    with pytest.raises(Malformed):
        JobSpec.from_wire({**wire, name: value})
    sizes = {"cpu": {"least": 1}, "memory": {"least": 0}, "disk": {"least": 2048}}
    with pytest.raises(Malformed):
        JobSpec.from_wire({**wire, "resources": [sizes]})


def test_a_job_mounts_volumes() -> None:
    spec = jobfiles.loads(
        f"{FULL}volumes: [{{volume: chain, path: /data}}, "
        "{volume: lease_9, path: /var/cache, read_only: true}]\n"
    ).spec()
    assert spec.volumes == (Mount("chain", "/data"), Mount("lease_9", "/var/cache", True))
    again = JobSpec.from_wire(json.loads(json.dumps(spec.to_wire())))
    assert again == spec and again.hash == spec.hash != jobfiles.loads(FULL).spec().hash


@pytest.mark.parametrize(
    "written",
    ["data", "{}", "[{volume: a}]", "[{path: /a}]", "[{volume: a, path: a}]",
     "[{volume: a, path: /}]", "[{volume: a, path: /workspace/a}]", "[{volume: a, path: /proc}]",
     "[{volume: a, path: /a/../dev}]", "[{volume: a, path: /a}, {volume: a, path: /b}]",
     "[{volume: a, path: /a}, {volume: b, path: /a/b}]", "[{volume: a, path: /a, mode: 1}]",
     "[{volume: a/b, path: /a}]", str([{"volume": f"v{n}", "path": f"/{n}"} for n in range(9)])],
)  # fmt: skip
def test_volumes_that_mean_nothing_are_refused_with_their_line(written: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        jobfiles.loads(f"{FULL}volumes: {written}\n")
    assert str(refused.value.fields["path"]).startswith("volumes")
    assert refused.value.fields["line"] == FULL.count("\n") + 1
