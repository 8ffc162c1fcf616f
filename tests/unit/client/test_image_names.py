"""Image names: read as Docker reads them, local ones bound to who has them, headers of
registries.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.client.jobs.images import challenge
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work import image_names as images
from marketplace.domain.work.image_names import Reference
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Range, Resources
from tests.unit.support.answers import offer_answer

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
HUB = "https://registry-1.docker.io/v2"


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "url"),
    [
        ("python", "docker.io", "library/python", "latest", f"{HUB}/library/python/manifests/latest"),
        ("python:3.11", "docker.io", "library/python", "3.11", f"{HUB}/library/python/manifests/3.11"),
        ("tally/python:local", "docker.io", "tally/python", "local", f"{HUB}/tally/python/manifests/local"),
        ("index.docker.io/python", "docker.io", "library/python", "latest", f"{HUB}/library/python/manifests/latest"),
        ("ghcr.io/acme/x:1", "ghcr.io", "acme/x", "1", "https://ghcr.io/v2/acme/x/manifests/1"),
        ("reg.example:5000/x", "reg.example:5000", "x", "latest", "https://reg.example:5000/v2/x/manifests/latest"),
        ("localhost:5000/x:t", "localhost:5000", "x", "t", "http://localhost:5000/v2/x/manifests/t"),
        ("127.0.0.1:80/a/b", "127.0.0.1:80", "a/b", "latest", "http://127.0.0.1:80/v2/a/b/manifests/latest"),
    ],
)  # fmt: skip
def test_a_name_means_what_it_means_to_docker(
    text: str, host: str, repository: str, tag: str, url: str
) -> None:
    found = Reference.parse(text)
    assert (found.host, found.repository, found.tag) == (host, repository, tag)
    assert found.manifest_url == url


@pytest.mark.parametrize(
    "text",
    ["", ":3", "Python", "a//b", "../etc", "a:b c", "a@sha256:12", "a@md5:" + "a" * 32, "reg.io/",
     "user@host.io/x", "a:" + "t" * 200, "-a.io\n/x", "a/" * 200 + "b"],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        Reference.parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_a_refusal(text: str) -> None:
    try:
        found = Reference.parse(text)
    except Refusal:
        return
    assert Reference.parse(found.at(A)).repository == found.repository
    assert found.manifest_url.count("/v2/") >= 1 and ".." not in found.repository


def test_a_digest_needs_no_registry_and_loses_its_tag() -> None:
    assert images.pinned(A) == A
    assert images.pinned(f"python:3.11@{A}") == f"docker.io/library/python@{A}"
    assert images.pinned(f"ghcr.io/acme/x@{A}") == f"ghcr.io/acme/x@{A}"
    assert images.pinned("python:3.11") is None
    for wrong in ("sha256:12", f"python@{A}0"):
        with pytest.raises(Malformed):
            images.pinned(wrong)


def test_a_local_image_is_what_most_offers_announce_and_only_they_may_run_it() -> None:
    name = "tally/python:local"
    label = f"image/{name}"
    offers = [
        offer_answer(labels={label: A}),
        offer_answer(labels={label: B}),
        offer_answer(labels={label: B}),
        offer_answer(),
    ]
    assert images.announced(name, offers) == B
    assert images.announced("tally/other:local", offers) == ""
    assert images.announced(name, [offer_answer(labels={label: "sha256:short"})]) == ""
    spec = JobSpec(
        "n", name, (), (Resources(cpu=Range(1000)),), placement=Placement(labels={"x": "y"})
    )
    bound = images.on_offers_with(spec, B)
    assert bound.image == B and bound.placement.labels == {"x": "y", label: B}
    assert spec.placement.labels == {"x": "y"}


def test_only_the_tag_local_is_asked_of_providers() -> None:
    assert images.is_local("tally/python:local")
    assert not images.is_local("python:3.11") and not images.is_local("local")


def test_challenges_of_registries() -> None:
    header = 'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/python:pull"'
    assert challenge(header) == {
        "realm": "https://auth.docker.io/token",
        "service": "registry.docker.io",
        "scope": "repository:library/python:pull",
    }
    assert challenge('Basic realm="x"') == {} == challenge("")
