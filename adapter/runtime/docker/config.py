"""How the daemon is reached, and what its owner allows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """How to reach the daemon and what to allow.

    *allow* is the owner's list of repositories (:mod:`adapter.core.registries`); *image_mib* the
    most of the disk that pulling one may take; *local* permits ``sha256:…`` images that the host
    already has; *signed_by*: public keys of which one has to have signed any other; none: unsigned
    ones run too. *gpu_request*: ``cdi``, or ``legacy`` for older daemons.
    """

    state: Path
    adapter: str
    host: str = ""
    allow: tuple[str, ...] = ()
    image_mib: int = 40_960
    local: bool = True
    signed_by: tuple[Path, ...] = ()
    gpu_request: Literal["cdi", "legacy"] = "cdi"
    deadline_s: float = 30.0
    pull_deadline_s: float = 1800.0
    tmp_mib: int = 64
