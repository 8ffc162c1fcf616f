"""Where a job's direct ports are, by its provider's own word."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from marketplace.client.net.answers import StoryAnswer
from marketplace.client.sdk.outputs import agreed_providers
from marketplace.domain.money.evidence import Evidence
from marketplace.domain.work.direct_port import STAGE, DirectPorts, DirectPortsUnproven


def proven(
    story: Sequence[StoryAnswer], lease: str, evidence: Evidence, keys: Collection[bytes]
) -> DirectPorts | None:
    """The latest word in *story* of where the ports of *lease* are; None before there is one.

    :class:`DirectPortsUnproven` where any was not signed by the provider of that lease, on terms
    that one of *keys*, a purse's session keys, agreed to; Malformed for what is no such word.
    """
    events = [one for one in story if "kind" in one]
    told = [one for one in events if one["kind"] == STAGE and one["lease"] == lease]
    said = [DirectPorts.from_story(lease, one["detail"]) for one in told]
    if not said:
        return None
    provider = agreed_providers(evidence, keys).get(lease)
    if provider is None:
        raise DirectPortsUnproven(f"this purse agreed to no terms of lease {lease}")
    for one in said:
        one.verify(provider[1])
    return max(said, key=lambda one: one.at_ms)
