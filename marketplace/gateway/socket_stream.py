"""One websocket to a port of a workload: a websocket to a websocket, for as long as both hold."""

from __future__ import annotations

from typing import Final

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from marketplace.gateway.tunnel import Tunnel
from marketplace.market.base.errors import Offline

_HANDSHAKE: Final = "sec-websocket-"  # of each handshake its own
_ORDINARY: Final = 1000
_CODES: Final = frozenset((*range(1000, 1004), *range(1007, 1015)))
_SET: Final = ("host", "connection", "upgrade", "content-length")


async def carry(
    socket: WebSocket, tunnel: Tunnel, at: str, target: str, headers: list[tuple[str, str]]
) -> None:
    """*socket* joined with the workload's at *target* (path and query, as on the wire), which is
    told that it was dialled as *at* (host and port), and of *headers* what is no handshake's.
    :class:`Offline` if the workload refuses.
    """
    async with tunnel:
        offered = [s for s in socket.headers.get("sec-websocket-protocol", "").split(",") if s]
        spoken = [Subprotocol(name.strip()) for name in offered]
        talk = ClientProtocol(parse_uri(f"ws://{at}{target}"), subprotocols=spoken or None)
        request = talk.connect()
        for name, value in headers:
            if name not in _SET and not name.startswith(_HANDSHAKE):
                request.headers[name] = value
        talk.send_request(request)
        await _flush(talk, tunnel)
        early: list[Frame] = []
        while talk.state.name == "CONNECTING" and talk.handshake_exc is None:
            data = await tunnel.receive()
            talk.receive_data(data) if data else talk.receive_eof()
            early += [e for e in talk.events_received() if isinstance(e, Frame)]
        if talk.handshake_exc is not None:
            raise Offline("the workload refused the websocket")
        await socket.accept(subprotocol=talk.subprotocol)
        await _pump(talk, tunnel, socket, early)


async def _pump(
    talk: ClientProtocol, tunnel: Tunnel, socket: WebSocket, early: list[Frame]
) -> None:
    async with anyio.create_task_group() as tasks:

        async def outward() -> None:
            try:
                while True:
                    message = await socket.receive()
                    if message["type"] == "websocket.disconnect":
                        talk.send_close(_sent(message.get("code")), message.get("reason") or "")
                        await _flush(talk, tunnel)
                        break
                    text, data = message.get("text"), message.get("bytes")
                    if text is not None:
                        talk.send_text(text.encode())
                    else:
                        talk.send_binary(data or b"")
                    await _flush(talk, tunnel)
            except (WebSocketDisconnect, RuntimeError, Offline, InvalidState):
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        await _inward(talk, tunnel, socket, early)
        tasks.cancel_scope.cancel()


async def _inward(
    talk: ClientProtocol, tunnel: Tunnel, socket: WebSocket, early: list[Frame]
) -> None:
    whole, kind, frames = b"", Opcode.BINARY, early
    try:
        while True:
            for event in frames:
                if event.opcode in (Opcode.TEXT, Opcode.BINARY):
                    whole, kind = bytes(event.data), event.opcode
                elif event.opcode is Opcode.CONT:
                    whole += bytes(event.data)
                elif event.opcode is Opcode.CLOSE:
                    said = talk.close_rcvd
                    await socket.close(_sent(said and said.code), said.reason if said else "")
                    return
                else:
                    continue
                if event.fin and kind is Opcode.TEXT:
                    await socket.send_text(whole.decode(errors="replace"))
                elif event.fin:
                    await socket.send_bytes(whole)
            data = await tunnel.receive()
            if not data:
                break
            talk.receive_data(data)
            await _flush(talk, tunnel)
            frames = [e for e in talk.events_received() if isinstance(e, Frame)]
        await socket.close()
    except (WebSocketDisconnect, RuntimeError, Offline):
        return


def _sent(code: int | None) -> int:
    """*code*, if a close frame may carry it, else an ordinary end's (RFC 6455, section 7.4)."""
    known = code is not None and (code in _CODES or 3000 <= code <= 4999)
    return code if code is not None and known else _ORDINARY


async def _flush(talk: ClientProtocol, tunnel: Tunnel) -> None:
    for data in talk.data_to_send():
        if data:
            await tunnel.send(data)
