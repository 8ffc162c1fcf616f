"""What the chain takes for a job, and of whom, or a router in its place. Pure; the steps' fees are
reckoned by :mod:`marketplace.chain.settlement.costs`, and every quote (command line, API, console)
is put together here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainFees:
    """Lovelace that the chain takes for a step of one channel. *open* and *top_up* are paid by the
    consumer; *end* by the provider, whose channel is ended alone; *end_together* by whoever ends
    ten channels of as many providers in one transaction, for each of them.
    """

    open: int
    top_up: int
    end: int
    end_together: int


@dataclass(frozen=True)
class JobFees:
    """What a quote says of the chain's fees, in lovelace.

    *consumer*: for the transaction that this job needs before it runs, 0 if it needs none;
    *provider*: for the end of its channel, if that is ended alone; *together*: the same of whoever
    ends it with others', who charges nobody for it; *top_up*: of the consumer, if an open channel
    is too small for the job. *smallest*: what the job must be able to cost
    to make sense: below that the chain takes more for it than its provider gets, or its provider
    does not serve it.
    """

    consumer: int
    provider: int
    together: int
    top_up: int
    smallest: int


@dataclass(frozen=True)
class RouteFees:
    """What a market's router would take for a job. Lovelace, but for *route_bps*: 1/10000 of what
    is owed.

    *carried*: it has a hop to the provider, and carries jobs of this price; *fee*: if the job costs
    all that it can; *hop_fee*: once, for the consumer's own hop to it.
    """

    carried: bool
    route_bps: int
    fee: int
    hop_fee: int


def job_fees(fees: ChainFees, minimum: int, *, opens: bool, topped_up: bool = False) -> JobFees:
    """Of a job on a channel that it *opens*, or on one that is open and is *topped_up* for it.
    *minimum*: lovelace that its provider wants it to be able to cost on a channel of its own.

    A channel that is open is ended whether or not this job runs on it: its end makes no job on it
    too small.
    """
    consumer = fees.open if opens else fees.top_up if topped_up else 0
    smallest = max(minimum, fees.open + fees.end) if opens else consumer
    return JobFees(consumer, fees.end, fees.end_together, fees.top_up, smallest)
