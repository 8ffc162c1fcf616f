"""The scores of ``scores.score`` for one device on one host, in plain numbers.

In a market that is nearly full few of the hosts that changed have room for what is asked. For so
little, arrays cost several times what the sums cost. The operations and their order are those of
the arrays, so both give the same number to the last bit and hosts that are alike stay tied,
whichever way was taken.
"""

from __future__ import annotations

from marketplace.matching.fleet import Fleet
from marketplace.matching.model import WHOLE, Request
from marketplace.matching.scoring.standing import Standing, added, stranded


def score_row(
    fleet: Fleet,
    standing: Standing,
    row: int,
    request: Request,
    fits: list[bool],
    price_weight: float,
) -> tuple[float, int]:
    """Cost of *request*, which asks for one device, on *row*, which has room for it, and the device
    that is cheapest.

    *fits* says per device whether it may go there.
    """
    usable = standing.usable
    host = standing.line(fleet, row)
    cpu = host.cpu - request.cpu_milli
    one, many = usable.plain(usable.line(host.first, cpu, host.memory - request.memory_mib))
    fewer, most, reached, milli = (
        max(host.idle - 1, 0),
        usable.most,
        usable.levels,
        request.gpu_milli,
    )
    rest_same = many[min(host.idle, most)] * host.idle
    rest_fewer = many[min(fewer, most)] * fewer
    dear: list[float] | None = fleet.gpu_dear[row].tolist() if fleet.priced else None
    now = [one[level] * share for level, share in zip(host.levels, host.free, strict=True)]
    best, slot = -float("inf"), 0
    for at, share in enumerate(host.free):
        if not fits[at]:
            continue
        after = share - milli
        kept = one[reached[after]] * after - now[at]
        kept += rest_fewer if share == WHOLE else rest_same
        if dear is not None:
            kept -= price_weight * dear[at]
        if kept > best:
            best, slot = kept, at
    best += added(now)
    best -= stranded(usable, cpu, host.total - milli, host.devices)
    return host.value - best, slot
