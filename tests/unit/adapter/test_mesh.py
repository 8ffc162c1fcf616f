"""A mesh on its host as far as nothing is made there: keys, what is said to a device, echoes, and
what an owner may write.
"""

from __future__ import annotations

import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.config import Config, ConfigRefused, parse
from adapter.core.events import LinkUp
from adapter.core.state import Direct, Limits, Own
from adapter.mesh import uapi
from adapter.mesh.keys import key_in
from adapter.mesh.netns import MeshFault, name_of
from adapter.mesh.reach import Reach
from adapter.mesh.sight import answered, checksum, echo
from adapter.offering import check_mesh
from marketplace.domain.isolation import Isolation
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.work.mesh_net import MTU, Seat, address
from marketplace.domain.work.parts import Placement, Port
from marketplace.domain.work.workload import Egress, EgressMode
from tests.unit.adapter.test_direct_ports import answers
from tests.unit.support.adapter import ADAPTER, Bench, gpu_job, member_job, offer

KEY_A, KEY_B, KEY_C = b"\xaa" * 32, b"\xbb" * 32, b"\xcc" * 32
GET = f"""private_key={"01" * 32}
listen_port=41000
public_key={KEY_A.hex()}
preshared_key={"00" * 32}
protocol_version=1
endpoint=203.0.113.9:41001
last_handshake_time_sec=1796000000
last_handshake_time_nsec=5
tx_bytes=228
rx_bytes=172
persistent_keepalive_interval=0
allowed_ip=100.64.0.11/32
public_key={KEY_B.hex()}
last_handshake_time_sec=0
tx_bytes=0
rx_bytes=0
allowed_ip=100.64.0.12/32
allowed_ip=100.64.0.13/32
"""


def peer(key: bytes, host: int, port: int = 41_001) -> uapi.Peer:
    return uapi.Peer(key, f"100.64.0.{host}", "203.0.113.9", port)


def test_a_key_is_the_owners_alone_and_stays_the_leases(tmp_path: Path) -> None:
    first, other = key_in(tmp_path / "a"), key_in(tmp_path / "b")
    assert key_in(tmp_path / "a") == first
    assert first.public != other.public and len(first.public) == 32
    assert stat.S_IMODE((tmp_path / "a" / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert first.private.hex() not in repr(first) and repr(first.private) not in repr(first)


def test_a_key_that_a_crash_cut_short_is_made_anew(tmp_path: Path) -> None:
    whole = key_in(tmp_path)
    (tmp_path / "key").write_bytes(whole.private[:7])
    fresh = key_in(tmp_path)
    assert fresh != whole and key_in(tmp_path) == fresh


def test_a_device_is_read_as_it_stands() -> None:
    seen = uapi.parse(GET)
    assert (seen.key, seen.port) == (b"\x01" * 32, 41_000)
    assert seen.peers == {
        KEY_A: uapi.PeerSeen(
            KEY_A, "203.0.113.9:41001", ("100.64.0.11/32",), 1_796_000_000, 228, 172
        ),
        KEY_B: uapi.PeerSeen(KEY_B, "", ("100.64.0.12/32", "100.64.0.13/32")),
    }
    assert uapi.parse("") == uapi.Seen(b"", 0, {})


@pytest.mark.parametrize("text", ["listen_port=x\n", "public_key=zz\n", GET + "tx_bytes=much\n"])
def test_an_answer_that_is_none_is_a_fault(text: str) -> None:
    with pytest.raises(MeshFault):
        uapi.parse(text)


def test_who_is_not_wanted_goes_before_anybody_comes() -> None:
    """Another has the address now: for no moment do two keys have it, nor the old one alone."""
    held = uapi.parse(GET).peers
    said = uapi.changes(held, [peer(KEY_A, 11), peer(KEY_C, 12)])
    assert said.splitlines() == [
        f"public_key={KEY_B.hex()}",
        "remove=true",
        f"public_key={KEY_C.hex()}",
        "endpoint=203.0.113.9:41001",
        "replace_allowed_ips=true",
        "allowed_ip=100.64.0.12/32",
    ]
    assert uapi.changes({KEY_A: held[KEY_A]}, [peer(KEY_A, 11)]) == ""


def test_a_guest_is_told_where_once_and_then_sent_to_where_it_sends_from() -> None:
    guest = replace(peer(KEY_C, 200), roams=True)
    said = uapi.changes({}, [guest])
    assert "endpoint=203.0.113.9" in said
    held = applied({}, said)
    moved = {KEY_C: replace(held[KEY_C], endpoint="198.51.100.4:7")}
    assert uapi.changes(moved, [guest]) == ""
    unheard = {KEY_C: replace(held[KEY_C], endpoint="")}
    assert applied(unheard, uapi.changes(unheard, [guest])) == held
    assert uapi.changes(moved, []) == f"public_key={KEY_C.hex()}\nremove=true\n"


KEYS = st.sampled_from([KEY_A, KEY_B, KEY_C])
PEERS = st.dictionaries(KEYS, st.tuples(st.integers(10, 20), st.integers(1, 3))).map(
    lambda found: [peer(key, host, port) for key, (host, port) in found.items()]
)


def applied(held: dict[bytes, uapi.PeerSeen], said: str) -> dict[bytes, uapi.PeerSeen]:
    """What a device makes of it."""
    now, key = dict(held), b""
    for line in said.splitlines():
        name, _, value = line.partition("=")
        if name == "public_key":
            key = bytes.fromhex(value)
            now.setdefault(key, uapi.PeerSeen(key))
        elif name == "remove":
            del now[key]
        elif name == "endpoint":
            now[key] = uapi.PeerSeen(key, value, now[key].allowed)
        elif name == "replace_allowed_ips":
            now[key] = uapi.PeerSeen(key, now[key].endpoint)
        elif name == "allowed_ip":
            now[key] = uapi.PeerSeen(key, now[key].endpoint, (*now[key].allowed, value))
    return now


@given(before=PEERS, wanted=PEERS)
def test_after_the_changes_the_peers_are_those_that_are_wanted(
    before: list[uapi.Peer], wanted: list[uapi.Peer]
) -> None:
    held = applied({}, uapi.changes({}, before))
    now = applied(held, uapi.changes(held, wanted))
    assert {key: (one.endpoint, one.allowed) for key, one in now.items()} == {
        one.key: (f"{one.endpoint}:{one.port}", (f"{one.address}/32",)) for one in wanted
    }
    assert uapi.changes(now, wanted) == ""


def test_a_device_that_refuses_or_hangs_up_is_a_fault(tmp_path: Path) -> None:
    for answer, wrong in ((b"errno=-98\n\n", uapi.DeviceRefused), (b"errno=", MeshFault)):
        path = tmp_path / f"{len(answer)}.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            with pytest.raises(wrong) as caught:
                _asked(server, path, answer)
        if isinstance(caught.value, uapi.DeviceRefused):
            assert caught.value.number == 98
    with pytest.raises(MeshFault):
        uapi.get(tmp_path / "nobody.sock")


def _asked(server: socket.socket, path: Path, answer: bytes) -> None:
    def serve() -> None:
        door, _ = server.accept()
        with door:
            door.recv(4096)
            door.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        uapi.put(path, "listen_port=1\n")
    finally:
        thread.join()


IPV4: bytes = bytes([0x45]) + bytes(19)


def test_an_echo_is_answered_by_its_own_answer_alone() -> None:
    token = bytes(range(16))
    assert checksum(echo(8, 7, token)) == 0
    assert answered(IPV4 + echo(0, 7, token), token) == 7
    assert answered(IPV4 + echo(8, 7, token), token) is None, "the question itself"
    assert answered(IPV4 + echo(0, 7, token[::-1]), token) is None, "another's"
    assert answered(IPV4 + echo(0, 7, token)[:-1], token) is None


@given(st.binary(max_size=80))
def test_no_packet_breaks_whoever_listens(packet: bytes) -> None:
    assert answered(packet, bytes(16)) is None


def test_a_name_fits_the_kernel_and_is_one_leases_of_one_adapter() -> None:
    names = {name_of(lease, ours) for lease in ("lease_1", "lease_2") for ours in ("a", "b")}
    assert len(names) == 4
    assert all(len(name) == 15 and name.startswith("tlw") for name in names)


def test_a_seat_names_all_members_and_tells_a_workload_its_own() -> None:
    seat = Seat(1, tuple(address(b"g" * 32, at) for at in range(3)))
    base = seat.address.rpartition(".")[0]
    assert seat.hosts() == (
        f"127.0.0.1 localhost\n{base}.10 member-0\n{base}.11 member-1\n{base}.12 member-2\n"
    )
    assert seat.told()["TALLY_MESH_ADDRESS"] == f"{base}.11"
    assert (seat.told()["MASTER_ADDR"], seat.told()["MASTER_PORT"]) == ("member-0", "29400")
    assert gpu_job().seat is None
    assert MTU == 1380


def test_a_public_host_sends_nothing_to_private_addresses_whatever_is_ordered() -> None:
    public, private = Reach("8.8.8.8", 41_000, 4), Reach("10.0.0.5", 41_000, 4)
    for inside in ("10.0.0.7", "192.168.1.1", "100.64.0.1", "172.17.0.1"):
        assert not public.may_send_to(inside)
        assert private.may_send_to(inside)
    assert public.may_send_to("1.1.1.1") and private.may_send_to("1.1.1.1")
    assert list(public.ports) == [41_000, 41_001, 41_002, 41_003]


def test_an_owner_says_where_members_are_reached() -> None:
    said = {"endpoint": "8.8.8.8", "ports": "41000-41063"}
    assert parse({"mesh": said}).mesh == Reach("8.8.8.8", 41_000, 64)
    assert Config().mesh is None


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": "127.0.0.1"},
        {"endpoint": "host.example"},
        {"endpoint": ""},
        {"ports": "41000"},
        {"ports": "80-90"},
        {"ports": "41063-41000"},
        {"adress": "8.8.8.8"},
    ],
)
def test_what_no_mesh_can_be_reached_at_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ConfigRefused):
        parse({"mesh": {"endpoint": "8.8.8.8", "ports": "41000-41063", **changed}})


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, "ACCEPTED"),
        ({"egress": Egress(EgressMode.OPEN)}, "EGRESS_REFUSED"),
        ({"ports": (Port(8000),)}, "ACCEPTED"),  # called from inside
        ({"ports": (Port(8000, direct=True),)}, "DIRECT_PORTS_REFUSED"),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_a_plain_process_in_a_mesh_has_no_network_beside_it(
    changed: dict[str, Any], code: str, shared: bool
) -> None:
    """Though the owner lets others have the host's, and ports of it."""
    ports = Direct("203.0.113.9", 30_000, 4, "127.0.0.1")
    own = Own(offer(mesh=True, egress=True, direct_ports=4), ADAPTER,
              Limits(host_network=shared, direct=ports))  # fmt: skip
    plain = {"placement": Placement(isolation=Isolation.PROCESS), "image": ""}
    at = Bench(own)
    at.do(LinkUp(orders=True))
    at.propose(member_job(mesh=True, command=("x",), **plain, **changed))
    assert answers(at) == [code]


def test_a_private_endpoint_is_for_a_devnet_alone() -> None:
    config = Config(mesh=Reach("10.0.0.5", 41_000, 4))
    check_mesh(config, DEVNET_MAGIC)
    check_mesh(Config(mesh=Reach("8.8.8.8", 41_000, 4)), 1)
    with pytest.raises(ConfigRefused):
        check_mesh(config, 1)
