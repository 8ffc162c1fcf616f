"""Routed leases over many worlds: crashes anywhere, lost connections, one liar. And that the checks
can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.route import main, measure
from benchmarks.route_world import LIARS, Broken, World, signer
from marketplace.domain.money.route import payer
from marketplace.domain.money.route.messages import Message, Send

BOUNDS = {"provider": 2000, "consumer": 1000}
"""Ticks x 1000: two for the provider, one for the consumer; nothing for the router."""


@pytest.mark.parametrize(
    "worlds",
    [
        13,
        pytest.param(104, marks=pytest.mark.prove),
        pytest.param(1001, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_nobody_loses_more_than_is_stated(
    worlds: int, record_property: Callable[[str, object], None]
) -> None:
    found = [measure(liar, worlds // len(LIARS), f"test {worlds}") for liar in LIARS]
    record_property("losses", [vars(one) for one in found])
    assert sum(one.worlds for one in found) == worlds
    for one in found:
        assert one.ticks_served > one.worlds  # something was delivered in each
        assert one.provider_milliticks <= BOUNDS["provider"], one
        assert one.consumer_milliticks <= BOUNDS["consumer"], one
        assert one.router <= 0, one
    nobody = found[LIARS.index("nobody")]
    assert (nobody.provider_milliticks, nobody.consumer_milliticks, nobody.refused) == (0, 0, 0)


def test_it_is_printed_by_liar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--worlds", "1"]) == 0
    said = capsys.readouterr().out
    assert all(liar in said for liar in LIARS) and "lost at most" in said


# --- worlds in which somebody errs: each check finds its own error --------------------------------


class Trusting(World):
    """Consumers that sign all that is owed, whatever the provider confirms."""

    def _decide(self, who: str, message: Message) -> tuple[tuple[Send, ...], Callable[[], None]]:
        effects, write = super()._decide(who, message)
        if who not in self.consumers:
            return effects, write

        def trust() -> None:
            write()
            book = self.consumers[who]
            wanted = {
                terms: replace(one, paid=one.owed).wanted for terms, one in book.leases.items()
            }
            paying = book.paying.pay(wanted, signer(f"hop {who}"))
            self.consumers[who] = payer.PayerBook(paying, book.leases)

        return (), trust


class Generous(World):
    """A router that signs a lovelace more than it was paid."""

    def _decide(self, who: str, message: Message) -> tuple[tuple[Send, ...], Callable[[], None]]:
        effects, write = super()._decide(who, message)

        def give() -> None:
            write()
            for hop, paying in self.market.hops_out.items():
                first = {one.terms: paying.amount(one.terms) + 1 for one in self.leases[:1]}
                if paying.last is not None and first.keys() <= {
                    x.terms for x in paying.last.leaves
                }:
                    more = paying.pay(first, self.keys[hop])
                    hops = {**self.market.hops_out, hop: more}
                    self.market = replace(self.market, hops_out=hops)

        return (effects, give) if who == "m" else (effects, write)


class Hasty(World):
    """Everybody sends before writing down."""

    def _decide(self, who: str, message: Message) -> tuple[tuple[Send, ...], Callable[[], None]]:
        effects, write = super()._decide(who, message)

        def late() -> None:
            self._send(who, effects)
            write()

        return (), late


class Patient(World):
    """Providers that go on serving unpaid."""

    def event(self) -> None:
        super().event()
        for one in self.leases:
            book = self.providers[one.provider]
            lease = book.leases[one.terms]
            more = {**book.leases, one.terms: replace(lease, owed=lease.owed + one.tick)}
            self.providers[one.provider] = replace(book, leases=more)


@pytest.mark.parametrize(
    ("kind", "rule"), [(Trusting, "V3"), (Generous, "V1"), (Hasty, "V8"), (Patient, "V2")]
)
def test_an_error_is_found_by_the_rule_that_names_it(kind: type[World], rule: str) -> None:
    with pytest.raises(Broken, match=rule):
        for number in range(20):
            kind(f"err {number}", "nobody").run()
