from typing import Any

class DAVNonCollection:
    path: str
    environ: dict[str, Any]
    name: str
    def __init__(self, path: str, environ: dict[str, Any]) -> None: ...
