"""Whose an image is by its name, and what a provider signs to pull one for a lease."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.work.image_access import SignedPull, namespace_of, repository_of
from marketplace.domain.work.image_names import registry_name
from tests.fakes import seed

ACCOUNT = "ab" * 28
SIGNER = seed("provider")
PULL = SignedPull.sign(SIGNER, "images.test:5000", "abc/train", "lease_1", 1_000)


def test_a_namespace_is_of_one_account_and_a_name_of_docker() -> None:
    assert namespace_of(ACCOUNT) == "ab" * 12
    assert repository_of("abc", "my-model_2.1") == "abc/my-model_2.1"


@pytest.mark.parametrize(
    "name", ["", "Upper", "a/b", "../x", "a b", "-a", "a..b", "a" * 101, "a:v1", "ü"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Malformed):
        repository_of("abc", name)


def test_a_signed_pull_survives_as_a_password() -> None:
    read = SignedPull.read(PULL.password, "images.test:5000", "abc/train")
    assert read == PULL
    assert read.by(SIGNER.verify_key) and not read.by(seed("other").verify_key)


@pytest.mark.parametrize(
    "change",
    [
        {"registry": "images.test"}, {"repository": "abc/other"}, {"lease": "lease_2"},
        {"until_ms": 2_000}, {"signature": bytes(64)},
    ],
)  # fmt: skip
def test_no_part_of_a_signed_pull_can_be_another(change: dict[str, object]) -> None:
    assert not replace(PULL, **change).by(SIGNER.verify_key)


@pytest.mark.parametrize(
    "password",
    ["", "lease_1", "a.b.c", "lease_1.-5.00", "lease_1.1.zz", "lease.1.00.00", "x" * 500,
     "lease_1.9999999999999999.00"],
)  # fmt: skip
def test_what_is_no_signed_pull_is_refused(password: str) -> None:
    with pytest.raises(Malformed):
        SignedPull.read(password, "images.test", "abc/train")


@pytest.mark.parametrize("name", ["127.0.0.1:5000", "images.example", "images.example:443"])
def test_a_registry_has_a_name_that_docker_takes_as_one(name: str) -> None:
    assert registry_name(name) == name


@pytest.mark.parametrize("name", ["", "images", "docker.io/x", "a b.c", "https://images.example"])
def test_other_names_of_a_registry_are_refused(name: str) -> None:
    with pytest.raises(Malformed):
        registry_name(name)
