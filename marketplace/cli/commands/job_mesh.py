"""``tally job mesh``: how the members of a cluster stand, and who of them hears whom."""

from __future__ import annotations

from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.screen import err
from marketplace.client.sdk.cluster import ClusterStanding, standing
from marketplace.client.sdk.read_only import Reader
from marketplace.domain.work.mesh import Heard
from marketplace.domain.work.mesh_net import host_name, is_guest

MEMBERS = ("member", "role", "job", "lease", "state", "order")
PAIRS = ("member", "hears", "round trip", "by", "sent", "received")


async def mesh(opened: Reader, name: str, as_json: bool) -> None:
    """Of the cluster *name*, a gang's id or one of its jobs'."""
    found = await standing(opened, name)
    if as_json:
        print_json(_row(found))
        return
    rows = [
        (one.member, one.role or "-", one.job, one.lease or "-", one.state or "being placed",
         f"{one.order.verb} (version {one.order.version})" if one.order else "-")
        for one in found.members
    ]  # fmt: skip
    columns = MEMBERS
    if not any(one.role for one in found.members):
        columns, rows = (MEMBERS[0], *MEMBERS[2:]), [(row[0], *row[2:]) for row in rows]
    print_table(found.gang, columns, rows, whole=("job", "lease"), drop=("lease",))
    if found.mesh:
        pairs = [
            (one.member, _who(heard), f"{heard.rtt_us / 1000:.1f} ms" if heard.rtt_us else "-",
             heard.path.value, heard.sent, heard.received)
            for one in found.members
            for heard in one.hears
        ]  # fmt: skip
        print_table("who hears whom (bytes)", PAIRS, pairs)
    for one in found.members:
        if one.unproven:
            err.print(f"member {one.member}: {one.unproven}", markup=False, style="yellow")


def _who(heard: Heard) -> str:
    return host_name(heard.member) if is_guest(heard.member) else str(heard.member)


def _row(found: ClusterStanding) -> dict[str, object]:
    return {
        "gang": found.gang,
        "mesh": found.mesh,
        "over": found.over,
        "members": [
            {
                "member": one.member,
                "role": one.role,
                "job": one.job,
                "lease": one.lease or None,
                "state": one.state or None,
                "order": one.order
                and {"verb": one.order.verb.value, "version": one.order.version,
                     "peers": [peer.member for peer in one.order.peers]},
                "follows": one.follows,
                "hears": [
                    {"member": heard.member, "rtt_us": heard.rtt_us, "path": heard.path.value,
                     "sent": heard.sent, "received": heard.received,
                     "guest": is_guest(heard.member)}
                    for heard in one.hears
                ],
                "unproven": one.unproven,
            }
            for one in found.members
        ],
    }  # fmt: skip
