"""Which images the host's Docker daemon may be asked for: it fetches from wherever a name says.

The daemon's own requests pass no firewall of ours, follow the registry's redirects and its word of
where to get a token. So by default only the big public registries are named to it: whoever runs
them gains nothing by leading a daemon inward (the authors of images there might:
:mod:`adapter.runtime.docker.manifest`). An address, a port or a private name only where the owner's
list names just that registry.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from marketplace.domain.site import is_loopback
from marketplace.domain.work.image_names import PUBLIC

_PRIVATE: Final = (
    ".local",
    ".localhost",
    ".internal",
    ".intranet",
    ".lan",
    ".home",
    ".corp",
    ".arpa",
)


def registry_of(repository: str) -> str:
    """The registry that a daemon asks for *repository* (Docker's reference grammar): the part
    before the first slash if it has a dot or a colon or is ``localhost``, else Docker's own.
    """
    first, slash, _ = repository.partition("/")
    named = slash and ("." in first or ":" in first or first.lower() == "localhost")
    return first.lower() if named else "docker.io"


def is_of(market: str, registry: str) -> bool:
    """Whether *registry* (``host[:port]``) may be that of the market at *market*: the market's own
    host, or a name under it. So a market's word of where its registry is leads a daemon nowhere
    else.
    """
    host = (urlsplit(f"//{registry}").hostname or "").rstrip(".")
    ours = (urlsplit(market).hostname or "").rstrip(".")
    if is_loopback(ours) or is_loopback(host):
        return is_loopback(ours) and is_loopback(host)
    return bool(ours) and (host == ours or (_named(ours) and host.endswith("." + ours)))


def _named(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def refused(image: str, allow: Sequence[str], market: str = "") -> str:
    """Why *image* may not be pulled under the owner's list *allow*; empty if it may.

    An entry is a repository, or a prefix that ends with ``/`` or ``*``. An empty list stands for
    every repository of :data:`PUBLIC`, and of the registry of the market at *market*.
    """
    repository = image.partition("@")[0]
    registry = registry_of(repository)
    if not allow:
        if market and is_of(market, registry):
            return ""
        known = ", ".join(PUBLIC)
        return (
            "" if registry in PUBLIC else f"{registry} is none of the public registries ({known})"
        )
    covering = [entry for entry in allow if _covers(entry, repository)]
    if not covering:
        return f"{repository} is not on the owner's list"
    if _inward(registry) and not any(
        entry.lower().startswith(registry + "/") for entry in covering
    ):
        return (
            f"{registry} is an address, a port or a private name that the owner's list does not"
            " name"
        )
    return ""


def _covers(entry: str, repository: str) -> bool:
    if entry.endswith("*"):
        return repository.startswith(entry[:-1])
    return repository == entry or (entry.endswith("/") and repository.startswith(entry))


def _inward(registry: str) -> bool:
    """Whether it may be a host that only this network reaches."""
    host, colon, _ = registry.partition(":")
    if colon or "." not in host or host.rstrip(".").endswith(_PRIVATE):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return (
            host.rstrip(".").rpartition(".")[2].isdecimal()
        )  # 0x7f.1 and the like: no name ends so
    return True
