from typing import Any

class Server:
    bind_addr: tuple[str, int]
    def __init__(
        self,
        bind_addr: tuple[str, int],
        wsgi_app: Any,
        numthreads: int = ...,
        server_name: str | None = ...,
        timeout: int = ...,
    ) -> None: ...
    def prepare(self) -> None: ...
    def serve(self) -> None: ...
