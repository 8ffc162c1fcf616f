"""The consumer's own machines in a mesh: who is let in stands in a file of this home's and nowhere
else, and the WireGuard file that joins them is what any WireGuard takes.
"""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from nacl.public import PrivateKey

from marketplace.client.clusters import wireguard
from marketplace.client.clusters.guests import FOLDER, Guest, Guests, GuestsFull
from marketplace.client.clusters.wireguard import FileTaken, GuestKey, Reached
from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import MeshPeer, public
from marketplace.domain.work.mesh_net import FIRST_GUEST, MOST_GUESTS, address

NOW = 1_000_000
GANG = "gang_01ABC"
GROUP = b"g" * 32
WAYS = public("203.0.113.7", 51_820)


def key(of: int) -> bytes:
    return bytes([of]) * 32


def test_who_is_let_in_is_read_by_another_process_until_its_time_is_over(tmp_path: Path) -> None:
    first = Guests(tmp_path, GANG).let_in(key(1), NOW + 10, WAYS, NOW)
    second = Guests(tmp_path, GANG).let_in(key(2), NOW + 20, (), NOW)
    assert (first.number, second.number) == (FIRST_GUEST, FIRST_GUEST + 1)
    assert Guests(tmp_path, GANG).read(NOW + 9) == (first, second)
    assert Guests(tmp_path, GANG).read(NOW + 10) == (second,)
    assert first.peer == MeshPeer(FIRST_GUEST, key(1), WAYS)
    assert Guests(tmp_path, "gang_01ABD").read(NOW) == (), "of one cluster alone"
    path = tmp_path / FOLDER / f"{GANG}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_one_that_comes_again_keeps_its_number_and_a_free_one_is_given_again(
    tmp_path: Path,
) -> None:
    guests = Guests(tmp_path, GANG)
    for at in range(MOST_GUESTS):
        guests.let_in(key(at), NOW + 10 + at, (), NOW)
    with pytest.raises(GuestsFull):
        guests.let_in(key(99), NOW + 50, (), NOW)
    again = guests.let_in(key(3), NOW + 99, WAYS, NOW)
    assert (again.number, again.candidates) == (FIRST_GUEST + 3, WAYS)
    assert len(guests.read(NOW)) == MOST_GUESTS
    other = guests.let_in(key(99), NOW + 99, (), NOW + 11)
    assert other.number == FIRST_GUEST, "the first two's time is over"


def test_all_are_signed_out_at_once_also_of_a_damaged_list(tmp_path: Path) -> None:
    guests = Guests(tmp_path, GANG)
    guests.let_in(key(1), NOW + 10, (), NOW)
    assert guests.sign_out() == 1 and guests.read(NOW) == () and guests.sign_out() == 0
    guests.let_in(key(1), NOW + 10, (), NOW)
    (tmp_path / FOLDER / f"{GANG}.json").write_text("{")
    with pytest.raises(Malformed):
        guests.read(NOW)
    assert guests.sign_out() == 0 and guests.read(NOW) == ()


@pytest.mark.parametrize("name", ["gang_../../x", "gang_", "../gang_1", "gang_a/b", "gang_a\0"])
def test_a_markets_name_for_a_gang_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(Malformed):
        Guests(tmp_path, name)


@pytest.mark.parametrize(
    "changed",
    [
        {"number": 0},
        {"number": FIRST_GUEST + MOST_GUESTS},
        {"key": "00" * 31},
        {"key": "zz" * 32},
        {"candidates": [["public", "127.0.0.1", 9]]},
        {"candidates": [["seen", "192.0.2.1", 9], ["public", "192.0.2.1", 9]]},
        {"until_ms": -1},
        {"more": 1},
    ],
)
def test_a_list_that_says_what_no_guest_is_lets_nobody_in(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    guests = Guests(tmp_path, GANG)
    guests.let_in(key(1), NOW + 10, (), NOW)
    path = tmp_path / FOLDER / f"{GANG}.json"
    told = json.loads(path.read_text())
    told["guests"][0] |= changed
    path.write_text(json.dumps(told))
    with pytest.raises(Malformed):
        guests.read(NOW)


def test_two_with_one_number_are_none(tmp_path: Path) -> None:
    guests = Guests(tmp_path, GANG)
    guests.let_in(key(1), NOW + 10, (), NOW)
    path = tmp_path / FOLDER / f"{GANG}.json"
    told = json.loads(path.read_text())
    told["guests"].append({**told["guests"][0], "key": key(2).hex()})
    path.write_text(json.dumps(told))
    with pytest.raises(Malformed, match="twice"):
        guests.read(NOW)


# ---- the file ------------------------------------------------------------------------------------

GUEST = Guest(FIRST_GUEST, key(1), NOW)
MEMBERS = (
    Reached(2, b"", "", "nobody knows"),
    Reached(0, key(7), "203.0.113.9:41000"),
    Reached(1, key(8), "", "no way"),
)


def test_the_file_has_what_wireguard_takes_and_what_is_not_reached_as_words(
    tmp_path: Path,
) -> None:
    made = wireguard.key_in(tmp_path / "mesh.conf", GANG)
    net = address(GROUP, 0).rpartition(".")[0]
    text = wireguard.text_of(GANG, GROUP, GUEST, made, MEMBERS)
    taken = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert taken[0] == "[Interface]" and taken[1].startswith("PrivateKey = ")
    assert taken[2:] == [
        f"Address = {net}.200/32", "MTU = 1380", "[Peer]",
        "PublicKey = BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        f"AllowedIPs = {net}.10/32", "Endpoint = 203.0.113.9:41000", "PersistentKeepalive = 25",
    ]  # fmt: skip
    assert "# member-1: no way\n# [Peer]\n" in text
    assert text.endswith("# member-2: nobody knows\n")


def test_the_private_key_is_the_files_alone_and_stays_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "mesh.conf"
    made = wireguard.key_in(path, GANG)
    assert made.public == bytes(PrivateKey(made.private).public_key)
    assert made.private.hex() not in repr(made) and repr(made.private) not in repr(made)
    wireguard.write(path, wireguard.text_of(GANG, GROUP, GUEST, made, MEMBERS, 51_820))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "ListenPort = 51820\n" in path.read_text()
    assert wireguard.key_in(path, GANG) == made
    assert wireguard.key_in(tmp_path / "other.conf", GANG) != made


@pytest.mark.parametrize(
    "held", ["", "[Interface]\nPrivateKey = x\n", "# tally mesh of gang_01ABCD, as guest-0\n"]
)
def test_what_is_another_file_is_left_as_it_is(tmp_path: Path, held: str) -> None:
    path = tmp_path / "mesh.conf"
    path.write_text(held)
    with pytest.raises(FileTaken):
        wireguard.key_in(path, GANG)
    assert path.read_text() == held


@pytest.mark.parametrize("said", ["", "PrivateKey = AAAA", "PrivateKey = !"])
def test_a_file_without_its_key_is_not_written_over(tmp_path: Path, said: str) -> None:
    path = tmp_path / "mesh.conf"
    path.write_text(f"# tally mesh of {GANG}, as guest-0\n{said}\n")
    with pytest.raises(FileTaken):
        wireguard.key_in(path, GANG)


@pytest.mark.parametrize("name", ["mesh", "mesh.txt", "a-name-too-long-x.conf", "a b.conf"])
def test_a_name_that_wg_quick_does_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Malformed, match="wg-quick"):
        wireguard.key_in(tmp_path / name, GANG)


def test_a_guest_that_is_sent_to_first_has_members_without_an_address() -> None:
    made = GuestKey.of(bytes(PrivateKey.generate()))
    text = wireguard.text_of(GANG, GROUP, GUEST, made, [replace(MEMBERS[2], why="")])
    assert "Endpoint" not in text and "\n[Peer]\n" in text


def test_no_word_of_others_becomes_a_line_of_the_file() -> None:
    made = GuestKey.of(bytes(PrivateKey.generate()))
    told = Reached(1, b"", "", "lease\n[Peer]\nPublicKey = x\r\x85AllowedIPs = 0.0.0.0/0")
    text = wireguard.text_of(GANG, GROUP, GUEST, made, [told])
    assert not any(line.startswith("[Peer]") for line in text.splitlines())
    assert len(text.splitlines()) == 8
