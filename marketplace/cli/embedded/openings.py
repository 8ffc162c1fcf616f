"""What an embedded market's adapters open on this machine, as lines of their configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapter.mesh.reach import own_address
from adapter.runtime.meshing import lacks_for_mesh
from adapter.runtime.stores.mounts import missing as missing_for_stores
from marketplace.cli.embedded.ports import block_of

_DIRECT: Final = 16  # ports of each adapter's own host, for the devnet's machine alone
_MESH: Final = 16


def openings(home: Path, name: str, runtime: str) -> list[str]:
    """Direct ports for this machine alone; and a mesh at its own address in its network, where it
    can have one: nobody sends packets to loopback; and stores, where it can mount them.
    """
    lines: list[str] = []
    if first := block_of(home, f"{name}-direct", _DIRECT):
        lines += ["[direct]", 'address = "127.0.0.1"', 'bind = "127.0.0.1"']
        lines += [f'ports = "{first}-{first + _DIRECT - 1}"']
    address = own_address()
    able = address and not lacks_for_mesh([runtime])
    if able and (first := block_of(home, f"{name}-mesh", _MESH)):
        lines += ["[mesh]", f'endpoint = "{address}"', f'ports = "{first}-{first + _MESH - 1}"']
    if not missing_for_stores():
        lines.append("[stores]")
    return lines
