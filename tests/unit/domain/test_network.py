"""By what a client is counted: no address of a /64 is another client than the rest of it."""

from __future__ import annotations

import pytest

from marketplace.domain.client_address import counted_as


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("2001:0DB8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
        ("2001:db8:1:3::", "2001:db8:1:3::"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::1", "::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("a proxy's nonsense", ""),
        ("2001:db8::/64", ""),
    ],
)
def test_an_address_is_counted_by_what_its_client_has(address: str, counted: str) -> None:
    assert counted_as(address) == counted == counted_as(counted)
