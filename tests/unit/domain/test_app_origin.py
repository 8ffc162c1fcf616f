"""Names of workloads' origins: read back as written, apart from the market's own, and none by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.app_origin import AppDomain, Place
from marketplace.domain.errors import Malformed
from marketplace.process.addresses import apps_of, names_of
from marketplace.process.main import Config
from marketplace.system import SystemIds

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
JOBS = st.text(CROCKFORD, min_size=26, max_size=26).map("job_".__add__)
HERE = AppDomain.at("https://apps.example")


@given(JOBS, st.integers(1, 65_535), st.sampled_from([None, 80, 8_443]))
def test_an_origin_is_read_back_as_the_place_it_was_made_of(
    job: str, port: int, at: int | None
) -> None:
    domain = AppDomain("https", "apps.example", at)
    scheme, _, host = domain.origin(Place(job, port)).partition("://")
    assert (scheme, host) == ("https", host.lower())
    label = host.partition(".")[0]
    assert len(label) <= 63 and label.replace("-", "").isalnum()  # one label of the DNS
    for said in (host, host.upper(), host.partition(":")[0] + "."):
        assert domain.holds(said) and domain.place(said) == Place(job, port)


@given(st.text(max_size=80))
def test_no_other_name_is_a_place(text: str) -> None:
    for host in (text, f"{text}.apps.example", f"8888-{text}.apps.example"):
        place = HERE.place(host)
        assert place is None or HERE.holds(host)
        if place is not None:
            name = host.lower().partition(":")[0].removesuffix(".")
            assert HERE.origin(place) == f"https://{name}"


def test_ids_of_jobs_are_such_names() -> None:
    job = SystemIds().new("job")
    assert HERE.place(HERE.origin(Place(job, 1)).partition("://")[2]) == Place(job, 1)


@pytest.mark.parametrize(
    "host", ["apps.example", "evil-apps.example", "apps.example.evil", "", ".", ":80"]
)
def test_what_is_beside_the_domain_is_the_markets(host: str) -> None:
    assert not HERE.holds(host)


@pytest.mark.parametrize(
    "apps", ["https://example", "https://market.example", "https://MARKET.example:444/x"]
)
def test_the_markets_own_domain_is_none_for_workloads(apps: str) -> None:
    with pytest.raises(Malformed, match="holds the market's own address"):
        _apps(public_url="https://market.example", apps_url=apps)


@pytest.mark.parametrize("apps", ["http://127.0.0.1:8000", "http://[::1]:8000", "apps.example"])
def test_what_has_no_names_under_it_is_refused(apps: str) -> None:
    with pytest.raises(Malformed):
        _apps(apps_url=apps)


def test_a_market_of_this_machine_alone_has_one_by_itself() -> None:
    assert _apps() == AppDomain("http", "localhost", 8000)
    assert _apps(host="::1") == AppDomain("http", "localhost", 8000)
    assert _apps(host="0.0.0.0") is None
    assert _apps(public_url="https://market.example") is None
    assert _apps(also_urls=("http://market.localhost:8000",)) is None
    own = _apps(public_url="https://market.example", apps_url="https://apps.market.example")
    assert own is not None and own.secure and own.port is None


def _apps(**more: object) -> AppDomain | None:
    config = Config("", "", **more)  # pyright: ignore[reportArgumentType] (settings by name)
    return apps_of(config, names_of(config, 8000), 8000)
