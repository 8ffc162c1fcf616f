from collections.abc import Callable, Iterable
from typing import Any

class WsgiDAVApp:
    def __init__(self, config: dict[str, Any]) -> None: ...
    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]: ...
