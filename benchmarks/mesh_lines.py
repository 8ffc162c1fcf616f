"""The lines that ``tally bench mesh`` measures: two hosts and the market's relay, each in a network
namespace of its own on this machine, joined by virtual cables without a NAT.

Between the same two hosts: wireguard-go alone, told its peer once; two members of a mesh that reach
each other direct; and two that were told of the relay alone. Each host of members is a process of
its own, as an adapter is one, and answers lines of JSON: ``["up", lease, at]``, ``["given", lease,
ticket]``, ``["meet", lease, peers]``, ``["hear", lease]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapter.mesh import device, netns, uapi
from adapter.mesh.host import MeshHost
from adapter.mesh.keys import key_in
from adapter.mesh.netns import MeshFault, run
from adapter.mesh.reach import Reach
from marketplace.cli.embedded.child import die_with
from marketplace.cli.shared.logs import configure_logs
from marketplace.domain.errors import Fault
from marketplace.domain.work.mesh import Candidate, MeshPeer, PathKind
from marketplace.domain.work.mesh_net import Seat, address
from marketplace.domain.work.mesh_relay import RelayPass, RelayPlace

KINDS: Final = ("bare", "direct", "relayed")
WITHIN_S: Final = 30.0
_RELAY: Final = "11.0.9.1"  # these packets leave no namespace
_PORT: Final = 42_000
_WIREGUARD: Final = 20_900
_PATHS: Final = {"direct": PathKind.SEEN.value, "relayed": PathKind.RELAY.value}
_PIECE: Final = 1 << 18
_SETTLES_S: Final = 0.3
_ENDS: Final = (0, 1)


class LineLost(Fault):
    """A line did not stand in time, carried nothing, or went another way than it was to."""

    code = "LINE_LOST"
    remedy = "try it when nothing else runs on this machine"


@dataclass(frozen=True)
class Line:
    """One that stands: of both ends the namespace in which programs are, and the address there;
    *goes*: whether it is the way that it is to be.
    """

    kind: str
    spaces: tuple[str, str]
    addresses: tuple[str, str]
    goes: Callable[[], bool]

    def rate(self, seconds: float) -> int:
        """Bytes a second that TCP brings from the first end to the second one; LineLost."""
        found = self._rate(seconds)
        if not self.goes():
            raise LineLost(f"{self.kind}: the members do not hear each other so any more")
        return found

    def _rate(self, seconds: float) -> int:
        sender, receiver = self.spaces
        with (
            closing(netns.inside(receiver, lambda: _listener(self.addresses[1]))) as door,
            closing(netns.inside(sender, socket.socket)) as out,
        ):
            out.settimeout(WITHIN_S)
            out.connect(door.getsockname())
            taken, _ = door.accept()
            with closing(taken):
                return _streamed(out, taken, seconds)


def _listener(at: str) -> socket.socket:
    made = socket.socket()
    made.bind((at, 0))
    made.listen(1)
    made.settimeout(WITHIN_S)
    return made


def _streamed(out: socket.socket, taken: socket.socket, seconds: float) -> int:
    over = threading.Event()

    def send() -> None:
        piece = os.urandom(_PIECE)
        with contextlib.suppress(OSError):
            while not over.is_set():
                out.sendall(piece)

    sending = threading.Thread(target=send, daemon=True)
    taken.settimeout(WITHIN_S)
    held = bytearray(_PIECE)
    sending.start()
    try:
        begin = time.monotonic() + _SETTLES_S
        while time.monotonic() < begin:
            taken.recv_into(held)
        begin, count = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            count += taken.recv_into(held)
        return round(count / (time.monotonic() - begin))
    except TimeoutError as error:
        raise LineLost("nothing came for half a minute") from error
    finally:
        over.set()
        taken.close()
        sending.join(WITHIN_S)


# ---- what they stand on --------------------------------------------------------------------------


@contextmanager
def lines(folder: Path) -> Generator[tuple[Line, ...]]:
    """All of them, one of each of :data:`KINDS`; LineLost, MeshFault."""
    name = f"tbm{os.urandom(3).hex()}"
    with ExitStack() as stack:
        stack.enter_context(_cabled(name))
        stack.enter_context(_relay(name))
        members = [
            stack.enter_context(_host(f"{name}h{at}", folder / str(at), f"{name}{at}"))
            for at in _ENDS
        ]
        bare = stack.enter_context(_bare(name, folder))
        yield (bare, *(_meshed(kind, members, name) for kind in _PATHS))


@contextmanager
def _cabled(name: str) -> Generator[None]:
    """Two hosts, ``h0`` and ``h1``, around a middle ``m``."""
    made = [name + one for one in ("m", "h0", "h1")]
    middle = made[0]
    try:
        for one in made:
            run("ip", "netns", "add", one)
            run("ip", "-n", one, "link", "set", "lo", "up")
        run("ip", "-n", middle, "address", "add", f"{_RELAY}/32", "dev", "lo")
        netns.inside(middle, lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))
        for at, host in enumerate(made[1:]):
            inner = ("type", "veth", "peer", "name", "cable", "netns", host)
            run("ip", "link", "add", f"down{at}", "netns", middle, *inner)
            for space, end, last in ((middle, f"down{at}", 1), (host, "cable", 2)):
                run("ip", "-n", space, "address", "add", f"11.0.{at}.{last}/24", "dev", end)
                run("ip", "-n", space, "link", "set", end, "up")
            run("ip", "-n", host, "route", "add", "default", "via", f"11.0.{at}.1")
        yield
    finally:
        for one in made:
            with contextlib.suppress(MeshFault):
                run("ip", "netns", "del", one)


@contextmanager
def _bare(name: str, folder: Path) -> Generator[Line]:
    """wireguard-go as its documentation starts it, with its own MTU; sockets outside, interface in
    a namespace, as a mesh has them.
    """
    spaces = (f"{name}b0", f"{name}b1")
    keys = [key_in(folder / f"bare{at}") for at in _ENDS]
    programs: list[subprocess.Popen[bytes]] = []
    try:
        for at, space in enumerate(spaces):
            run("ip", "netns", "add", space)
            programs.append(
                subprocess.Popen(
                    [*_entering(f"{name}h{at}"), device.PROGRAM, "-f", space],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
            door, host = device.socket_of(space), f"{name}h{at}"
            _until(door.exists, "wireguard-go does not start")
            run("ip", "-n", host, "link", "set", space, "netns", space)
            run("ip", "-n", space, "address", "add", f"10.99.0.{at + 1}/24", "dev", space)
            run("ip", "-n", space, "link", "set", space, "up")
            told = f"private_key={keys[at].private.hex()}\nlisten_port={_WIREGUARD}\n"
            told += f"public_key={keys[1 - at].public.hex()}\nallowed_ip=10.99.0.{2 - at}/32\n"
            uapi.put(door, f"{told}endpoint=11.0.{1 - at}.2:{_WIREGUARD}\n")
        yield Line("bare", spaces, ("10.99.0.1", "10.99.0.2"), lambda: True)
    finally:
        for program in programs:
            program.terminate()
            program.wait(WITHIN_S)
        for space in spaces:
            with contextlib.suppress(MeshFault):
                run("ip", "netns", "del", space)


@contextmanager
def _relay(name: str) -> Generator[None]:
    """The market's, in the middle."""
    code = ["-m", "marketplace.mesh_relay.serving", _RELAY, str(_PORT), str(len(_ENDS))]
    with _inside(f"{name}m", code) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(_secret().hex().encode() + b"\n")
        program.stdin.flush()
        if program.stdout.readline() != b"ready\n":
            raise LineLost("the relay does not start")
        yield


def _secret() -> bytes:
    return b"s" * 32


def _until(holds: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise LineLost(why)
        time.sleep(0.05)


def _entering(space: str) -> tuple[str, str]:
    return "nsenter", f"--net={netns.path_of(space)}"


@contextmanager
def _inside(space: str, code: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """``python`` *code* in a namespace, until its input is closed."""
    command = [*_entering(space), sys.executable, *code]
    root = str(Path(__file__).parents[1])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as program:  # fmt: skip
        try:
            yield program
        finally:
            assert program.stdin is not None
            program.stdin.close()
            try:
                program.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                program.kill()


# ---- members -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Host:
    """A process that has meshes, in the namespace of one host."""

    adapter: str
    program: subprocess.Popen[bytes]

    def ask(self, *what: Any) -> Any:
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(json.dumps(what).encode() + b"\n")
        self.program.stdin.flush()
        answer = self.program.stdout.readline()
        if not answer:
            raise LineLost("a host of members ended")
        return json.loads(answer)


@contextmanager
def _host(space: str, folder: Path, adapter: str) -> Generator[_Host]:
    folder.mkdir(parents=True, exist_ok=True)
    code = ["-m", "benchmarks.mesh_lines", str(folder), adapter, str(os.getpid())]
    with _inside(space, code) as program:
        yield _Host(adapter, program)


def _meshed(kind: str, members: list[_Host], name: str) -> Line:
    """Two members of a group of their own that reach each other so."""
    lease = f"lease_{kind}"
    place, now = RelayPlace(_RELAY, _PORT, len(_ENDS), _secret()), time.time_ns() // 1_000_000
    keys = [one.ask("up", lease, at)[0] for at, one in enumerate(members)]
    for at, one in enumerate(members):
        wire = place.give(f"{name}{kind}", at, 1, now).to_wire()
        one.ask("given", lease, [x.hex() if isinstance(x, bytes) else x for x in wire])
    ways: list[list[Any]] = [[], []]
    wanted = {PathKind.RELAY.value, *([PathKind.SEEN.value] if kind == "direct" else [])}

    def known() -> bool:
        for at, one in enumerate(members):
            ways[at] = [way for way in one.ask("up", lease, at)[1] if _kind(way) in wanted]
        return all({_kind(way) for way in found} == wanted for found in ways)

    _until(known, f"{kind}: the relay does not tell where the members are")
    for at, one in enumerate(members):
        one.ask("meet", lease, [[1 - at, keys[1 - at], ways[1 - at]]])

    def goes() -> bool:
        return _path_is(kind, members)

    _until(goes, f"{kind}: the members do not hear each other so")
    spaces = [netns.name_of(lease, one.adapter) for one in members]
    at = [address(_group(lease), end) for end in _ENDS]
    return Line(kind, (spaces[0], spaces[1]), (at[0], at[1]), goes)


def _kind(way: Any) -> str:
    return Candidate.from_wire(way).kind.value


def _path_is(kind: str, members: list[_Host]) -> bool:
    """Whether both hear the other by the path that the line is to have."""
    heard = [one.ask("hear", f"lease_{kind}").get(str(1 - at)) for at, one in enumerate(members)]
    return heard == [_PATHS[kind]] * 2


def _group(lease: str) -> bytes:
    return lease.encode().ljust(32, b"g")


def _answer(host: MeshHost, what: str, lease: str, more: Any) -> Any:
    match what:
        case "up":
            seat = Seat(more, tuple(address(_group(lease), at) for at in _ENDS))
            placed = host.up(lease, seat)
            return [placed.key.hex(), [one.to_wire() for one in placed.candidates]]
        case "given":
            told = [bytes.fromhex(one) if at > 2 else one for at, one in enumerate(more)]
            return host.given(lease, RelayPass.from_wire(told))
        case "meet":
            peers = [
                MeshPeer(at, bytes.fromhex(key), tuple(map(Candidate.from_wire, ways)))
                for at, key, ways in more
            ]
            return host.meet(lease, peers)
        case _:
            return {one.member: one.path.value for one in host.hear(lease, 0.3)}


def main(argv: list[str]) -> int:
    """The process of one host's members."""
    folder, adapter, parent = argv
    die_with(int(parent))
    configure_logs()  # standard output is for answers
    host = MeshHost(Path(folder), adapter, Reach("", 20_000, 8))
    try:
        for line in sys.stdin:
            what, lease, *more = json.loads(line)
            print(json.dumps(_answer(host, what, lease, more[0] if more else None)), flush=True)
    finally:
        for lease in host.held():
            host.down(lease)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
