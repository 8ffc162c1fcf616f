"""Names in a query that no operation knows are refused: a misspelt limit that is ignored is a limit
that does not hold."""

from __future__ import annotations

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from marketplace.domain.errors import Malformed
from marketplace.domain.nearest import nearest


class UnknownQuery(Malformed):
    """A name in the query that this operation does not know."""

    code = "QUERY_UNKNOWN"
    remedy = "docs/api.md lists what each operation takes"


def known_names(request: Request) -> None:
    """A dependency of every route of the API: UnknownQuery, with the nearest name that is known."""
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    taken = get_flat_params(route.dependant)
    known = [field.alias for field in taken if isinstance(field.field_info, params.Query)]
    by_hand = (route.openapi_extra or {}).get("parameters", ())
    known += [one["name"] for one in by_hand if one["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            hint = nearest(name, known) if known else "; this operation takes none"
            raise UnknownQuery(
                f"unknown name in the query: {name[:60]!r}{hint}", field=f"query.{name[:60]}"
            )
