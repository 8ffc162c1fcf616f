"""A quote, checked against what was asked before anything is signed or paid.

The price in the signed terms is the price that is charged, so the terms are what is checked; the
market's friendly summary beside them is only shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from marketplace.client.jobs.core.refused import QuoteRefused as QuoteRefused
from marketplace.client.jobs.core.routes import OwnHop, QuotedRoute, check_quoted, read_route
from marketplace.domain.canonical import want_int, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.metering.kinds import DISK, KINDS
from marketplace.domain.money.chain_fees import JobFees, RouteFees
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import ADA, MAX_FEE_BPS, SignedTerms, Terms, close_period_floor
from marketplace.domain.units import WHOLE
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.volume import units_milli as disk_units

MAX_CLOSE_PERIOD_MS = 7 * 86_400_000


@dataclass(frozen=True)
class Quote:
    """An offer to run the job, signed by the adapter. *fresh*: a new channel has to be opened;
    *payout* is the address that the terms' payout is said to be the hash of, to be compared before
    use; *keep_most_ms*: the longest that the provider keeps an idle channel open; *allowance*: the
    most, in lovelace, that it serves on a new one before a block holds it; *minimum*: lovelace that
    a job on a new one must be able to cost; *route*: where a router pays for it. *routed*: where
    one could; *direct_open*: what opening a channel would take in its place, 0 if nobody says. Both
    are the market's word, and only shown.
    """

    signed: SignedTerms
    terms: Terms
    fresh: bool
    device: str
    simulated: bool
    why: Mapping[str, Any]
    payout: str = ""
    keep_most_ms: int = 0
    allowance: int = 0
    minimum: int = 0
    route: QuotedRoute | None = None
    routed: RouteFees | None = None
    direct_open: int = 0

    @staticmethod
    def read(value: object) -> Quote:
        """From the ``quote`` of a job; :class:`Malformed`, or a refusal if the adapter did not
        sign.
        """
        if not isinstance(value, dict):
            raise Malformed("the job has no quote")
        row = cast("dict[str, Any]", value)
        try:
            body = bytes.fromhex(want_text(row["terms"], "terms", 16_384))
            signature = bytes.fromhex(want_text(row["adapter_signature"], "adapter_signature", 128))
        except (KeyError, ValueError) as error:
            raise Malformed(f"the quote's terms cannot be read: {error}") from error
        signed = either(SignedTerms(body, signature))
        offer, direct = _map(row, "offer"), _map(row, "direct")
        return Quote(
            signed=signed,
            terms=signed.verify_adapter(),
            fresh=row.get("channel") not in ("reused", "routed"),
            device=str(row.get("device") or offer.get("device") or ""),
            simulated=bool(row["simulated"] if "simulated" in row else offer.get("simulated")),
            why=cast("dict[str, Any]", row.get("why") or {}),
            payout=str(offer.get("payout_address") or ""),
            keep_most_ms=want_int(offer.get("keep_most_ms", 0), "keep_most_ms"),
            allowance=want_int(offer.get("allowance", 0), "allowance"),
            minimum=want_int(offer.get("minimum", 0), "minimum"),
            route=read_route(signed, row.get("route")),
            routed=_routed(_map(row, "routed")),
            direct_open=want_int(direct.get("consumer", 0), "consumer"),
        )


def _map(row: dict[str, Any], name: str) -> dict[str, Any]:
    value: object = row.get(name) or {}
    if not isinstance(value, dict):
        raise Malformed(f"the quote's {name} is no map")
    return cast("dict[str, Any]", value)


def _routed(told: dict[str, Any]) -> RouteFees | None:
    if not told:
        return None
    bps, most, once = (want_int(told.get(name), name) for name in ("route_bps", "fee", "hop_fee"))
    return RouteFees(told.get("carried") is True, bps, most, once)


@dataclass(frozen=True)
class CheckedQuote:
    """What is about to be agreed to: shown before anything is spent. Money in lovelace; *fees*:
    what the chain takes for it, by the client's own door, None if it needs no transaction;
    *keep_ms*: how long the channel stays open for further jobs; *has_hop*: this payer has a channel
    to the market's router.
    """

    job: str
    quote: Quote
    amount: int
    reserve: int
    spent: int
    fees: JobFees | None = None
    keep_ms: int = 0
    has_hop: bool = False

    @property
    def fresh(self) -> bool:
        """Whether a channel has to be opened (one transaction fee)."""
        return self.quote.fresh


@dataclass(frozen=True)
class Wanted:
    """What the quote must agree with: the job as it was posted and by whom.

    *session_vks*: the fresh key and the channels that may be reused; *spent*: what earlier leases
    of the job were approved for, and *works* their work: who shows another job under the same id
    does not get its budget raised; *hops*: that this payer has, by session key; *routed_only*: a
    quote over a channel of its own is not wanted.
    """

    job: str
    spec: JobSpec
    magic: int
    consumer_vkh: bytes
    session_vks: frozenset[bytes]
    spent: int = 0
    hops: Mapping[bytes, OwnHop] = field(default_factory=dict[bytes, OwnHop])
    routed_only: bool = False
    works: frozenset[bytes] = frozenset()


def check(quote: Quote, wanted: Wanted, now_ms: int) -> None:
    """:class:`QuoteRefused` names the first term that is not what was asked. *now_ms* is UTC."""
    terms, spec = quote.terms, wanted.spec
    if wanted.routed_only and quote.route is None:
        raise QuoteRefused(
            f"lease {terms.lease}: the market's router does not carry it",
            remedy="`--route auto` rents it directly; the router may lack a hop to this provider,"
            " or room on it, for now",
        )
    cap = spec.price.cap(terms.resource)
    rules = (
        (terms.job == wanted.job, "it is for another job"),
        (terms.magic == wanted.magic, "it is for another network"),
        (terms.work == spec.hash, "its work is not the job that was posted"),
        (wanted.works <= {terms.work}, "its work is not that of the job's earlier leases"),
        (
            quote.route is not None or terms.consumer_vkh == wanted.consumer_vkh,
            "the refund would go to another key",
        ),
        (terms.session_vk in wanted.session_vks, "it is on a channel of another key"),
        (terms.asset == ADA, "it is priced in another asset"),
        (not cap or terms.rate_micro <= cap, "its rate is above the job's cap"),
        (
            terms.ceiling + wanted.spent <= spec.price.budget,
            "its ceiling and what was spent exceed the budget",
        ),
        (terms.max_duration_ms <= spec.policy.max_duration_ms, "it runs longer than asked"),
        (terms.fee_bps <= MAX_FEE_BPS, "its settlement fee is above what is usual"),
        (
            terms.close_period_ms >= close_period_floor(terms.magic),
            "closing would take less than 12 hours on a public network",
        ),
        (terms.close_period_ms <= MAX_CLOSE_PERIOD_MS, "closing would take more than a week"),
        (terms.expires_at_ms > now_ms, "it has expired"),
        (_units_fit(terms, spec), "it bills more devices, share or cores than were asked for"),
        (quote.route is None or spec.cluster is None, "a cluster's member is paid directly"),
        (_provider_fits(terms, spec), "the job's placement excludes this provider"),
        (terms.adapter_vk.hex() == terms.provider, "provider and metering key differ"),
    )
    for holds, why in rules:
        if not holds:
            raise QuoteRefused(f"lease {terms.lease}: {why}", lease=terms.lease)
    if quote.route is not None:
        check_quoted(quote.route, wanted.hops, wanted.spec.price.budget - wanted.spent)


def _units_fit(terms: Terms, spec: JobSpec) -> bool:
    """Some resource block asks for what the terms bill."""
    for block in spec.resources:
        gpu = block.gpu
        if KINDS[terms.resource].devices:
            if gpu is None:
                continue
            count, rest = divmod(terms.units_milli, gpu.share)
            if rest == 0 and gpu.count.least <= count <= gpu.count.most:
                return True
        elif spec.is_volume is not (terms.resource == DISK.name):
            continue  # neither is billed as the other
        elif spec.is_volume and terms.units_milli <= disk_units(block.disk.least):
            return True
        elif gpu is None and terms.units_milli <= max(block.cpu.least, WHOLE // 100):
            return True
    return False


def _provider_fits(terms: Terms, spec: JobSpec) -> bool:
    place = spec.placement
    wanted = not place.providers or terms.provider in place.providers
    return wanted and terms.provider not in place.not_providers
