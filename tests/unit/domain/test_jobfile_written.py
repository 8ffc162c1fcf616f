"""A job written as a file is read as the same job: the API gives jobs back so."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from marketplace.client.jobs import jobfiles
from marketplace.domain.isolation import Isolation
from marketplace.domain.sold import nominal_least
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import write
from marketplace.domain.work.parts import (
    UNLIMITED,
    FileIn,
    Gang,
    GpuNeed,
    Placement,
    Policy,
    Port,
    Price,
    Range,
    Resources,
)
from marketplace.domain.work.relay import RelayNeed
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.workload import Egress, EgressMode
from marketplace.jobtext import text

WORD = st.text("abcXYZ019", min_size=1, max_size=12)
TEXT = st.text(max_size=40).filter(lambda text: "\x00" not in text and text.isprintable())
KEY = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def ranges(draw: st.DrawFn, least: int, most: int) -> Range:
    low = draw(st.integers(least, most))
    return Range(low, draw(st.sampled_from((UNLIMITED, low)) | st.integers(low, most)))


@st.composite
def gpus(draw: st.DrawFn) -> GpuNeed:
    vram = draw(ranges(0, 200_000))
    return GpuNeed(
        models=tuple(draw(st.lists(WORD, max_size=3))),
        count=draw(ranges(1, 16)),
        vram=replace(vram, least=nominal_least(vram.least)),
        share=draw(st.integers(1, 1000)),
    )


BLOCKS = st.builds(
    Resources, ranges(10, 64_000), ranges(16, 1 << 22), ranges(0, 1 << 22), st.none() | gpus()
)
POLICIES = st.builds(
    Policy,
    max_duration_ms=st.integers(1, 366 * 86_400_000),
    queue=st.booleans(),
    priority=st.integers(0, 100),
).flatmap(
    lambda policy: st.sampled_from(
        (
            policy,
            replace(policy, queue=False, retry_on=("provider_lost", "preempted"), retry_max=3),
            replace(policy, idle_gpu_below=5, idle_for_ms=90_000),
        )
    )
)
SPECS = st.builds(
    JobSpec,
    name=WORD,
    image=st.just("docker.io/library/python@sha256:" + "ab" * 32),
    command=st.lists(TEXT, min_size=1, max_size=4).map(tuple),
    resources=st.lists(BLOCKS, min_size=1, max_size=3).map(tuple),
    kind=st.sampled_from(("job", "service")),
    env=st.dictionaries(st.text("ABC_", min_size=1, max_size=6), TEXT, max_size=3),
    secrets=st.sampled_from(((), ("HF_TOKEN",), ("A", "B"))),
    ports=st.lists(
        st.builds(Port, st.integers(1, 65535), st.sampled_from(("token", "public"))),
        max_size=3,
        unique_by=lambda port: port.port,
    ).map(tuple),
    outputs=st.sampled_from(((), ("/workspace/out",))),
    placement=st.builds(
        Placement,
        regions=st.lists(WORD, max_size=2).map(tuple),
        isolation=st.sampled_from([one for one in Isolation if one.takes_image]),
        min_trust=st.integers(0, 100),
        labels=st.dictionaries(WORD, TEXT, max_size=2),
        providers=st.lists(KEY, max_size=2).map(tuple),
        not_providers=st.lists(KEY, max_size=2).map(tuple),
    ),
    price=st.builds(
        Price,
        max_gpu_rate=st.integers(0, 10**15 - 1),
        max_core_rate=st.integers(0, 10**15 - 1),
        budget=st.integers(1, 45_000_000_000_000_000),
        wait_rate=st.none() | st.integers(0, 10**15 - 1),
    ),
    policy=POLICIES,
    egress=st.sampled_from(
        (Egress(), Egress(EgressMode.OPEN), Egress(EgressMode.LIST, ("pypi.org:443",)))
    ),
)


@given(SPECS)
def test_what_is_written_is_read_as_the_same_job(spec: JobSpec) -> None:
    assert jobfiles.loads(json.dumps(write(spec))).spec() == spec
    assert jobfiles.loads(text(write(spec))).spec() == spec


def test_files_a_gang_and_a_plain_process_are_written_too() -> None:
    file = FileIn("/workspace/a.py", "ab" * 32, 12, 0o755)
    spec = JobSpec("x", "sha256:" + "cd" * 32, ("a",), (Resources(),), files=(file,))
    [source] = jobfiles.loads(json.dumps(write(spec))).sources
    assert (source.src, source.dst, source.mode) == ("sha256:" + "ab" * 32, file.dst, 0o755)
    for other in (
        replace(spec, files=(), gang=Gang(3, spread=True)),
        replace(spec, files=(), ports=(Port(3001),), relay=RelayNeed("preview", 3001, 90_000)),
        replace(spec, files=(), image="", placement=Placement(isolation=Isolation.PROCESS)),
        replace(spec, files=(), volumes=(Mount("chain", "/data", True), Mount("lease_1", "/b"))),
        JobSpec(
            "x",
            "",
            (),
            (Resources(Range(0), Range(0), Range(2048)),),
            kind="volume",
            price=Price(max_disk_rate=20_000),
        ),
    ):
        assert jobfiles.loads(json.dumps(write(other))).spec() == other


def test_what_a_file_leaves_out_is_left_out() -> None:
    spec = JobSpec("job", "sha256:" + "cd" * 32, (), (Resources(),))
    assert write(spec) == {
        "version": 1, "name": "job", "kind": "job", "image": spec.image,
        "resources": {"cpu": "1..", "memory": "512MB.."},
        "placement": {"isolation": "container"}, "price": {"budget": "10 ADA"},
        "policy": {"max_duration": "1h"},
    }  # fmt: skip
