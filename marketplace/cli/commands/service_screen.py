"""What ``tally service show`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.screen import out
from marketplace.domain.units import show_ada

if TYPE_CHECKING:
    from marketplace.client.net.answers import ServiceAnswer
    from marketplace.client.services.folder import Standing


def show(view: ServiceAnswer, standing: Standing, is_kept: bool, as_json: bool) -> None:
    """The market's view, beside what is known here."""
    known = {one.job: one for one in standing.replicas}
    if as_json:
        mine = {
            name: {"stage": one.stage.name, "revision": one.revision, "per_hour": one.per_hour}
            for name, one in known.items()
        }
        kept = {"kept": is_kept, "said": standing.said, "revision": standing.revision}
        kept |= {"forecast": standing.forecast, "starts_ms": list(standing.starts_ms)}
        print_json({**view, "keeper": {**kept, "replicas": mine}})
        return
    load = view["load"]
    out.print(f"{view['name']}  {view['url']}", markup=False, soft_wrap=True)
    told = f"{load['busy']} under way, {load['held']} waiting; {load['requests']} came"
    out.print(f"{told}, {load['failed']} without an answer", markup=False)
    rows: list[tuple[object, ...]] = []
    for row in view["replicas"]:
        one = known.get(row["job"])
        stage = one.stage.name if one is not None else row["state"]
        revision = one.revision if one is not None else ""
        cost = show_ada(one.per_hour) if one is not None else ""
        rows.append((row["job"], stage, row["busy"], revision, cost, row["provider"][:16]))
    names = ("job", "stage", "busy", "revision", "an hour", "provider")
    print_table("replicas", names, rows, whole=("job",))
    if not is_kept:
        here = "nobody of this home keeps it: its replicas are paid no more and end"
        out.print(here if known else "it is not kept in this home", style="yellow")
    elif standing.forecast:
        out.print(f"forecast: {standing.forecast}", markup=False)
    if is_kept and standing.said:
        out.print(standing.said, style="yellow", markup=False)
