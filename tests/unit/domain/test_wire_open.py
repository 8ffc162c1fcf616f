"""Programs of two ages at one wire: what is new is skipped, what is critical refused, and a
capability that somebody hides, forges or repeats is worth nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import cbor2
import pytest

from marketplace.domain import cbor
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import (
    Client,
    HelloRefused,
    MarketOlder,
    Numbering,
    Server,
)
from tests.requires import need_node

ROOT = Path(__file__).parents[3]
AT = "https://market.example"
DECLINED = wire.LeaseDeclined("lease_1", "A_CODE", "a message", "a remedy")
PLAIN = replace(DECLINED, remedy="")
FORMS: dict[str, list[dict[str, Any]]] = json.loads(
    (ROOT / "tests" / "golden" / "wire.json").read_text("utf-8")
)
FIRST = {name: set(forms[0]["reads"]) for name, forms in FORMS.items()}
"""The fields of each kind when it was pinned: all that a program of then takes."""
Twist = Callable[[wire.Message], wire.Message]


def frame(kind: object, body: object, version: object = codec.VERSION) -> bytes:
    return cbor2.dumps([version, kind, body])


def unchanged(message: wire.Message) -> wire.Message:
    return message


def stating(*names: str) -> Twist:
    """Whoever stands between, or the other side itself, says this of capabilities."""

    def twist(message: wire.Message) -> wire.Message:
        if isinstance(message, (wire.Hello, wire.Welcome)):
            return replace(message, capabilities=list(names))
        return message

    return twist


class Line:
    """A client and a market, and somebody between them; *seen*: the frames that went over it."""

    def __init__(self, to_market: Twist = unchanged, to_client: Twist = unchanged) -> None:
        self.client = Client("adapter", Signer(b"a" * 32), 42, "test", Numbering(b"s" * 16), AT)
        self.numberings: dict[tuple[bytes, bytes], Numbering] = {}
        self.to_market, self.to_client = to_market, to_client
        self.seen: list[bytes] = []
        self.connect()

    def connect(self) -> None:
        self.server = Server(42, b"n" * 32, b"m" * 16, self.numberings, (AT,))
        waiting = [self.client.connected()]
        self.got: list[wire.Message] = []
        while waiting:
            for answer in self.up(waiting.pop(0)):
                back = codec.to_bytes(self.to_client(codec.from_bytes(answer)))
                waiting += self.client.receive(back)[0]

    def up(self, data: bytes) -> list[bytes]:
        self.seen.append(data)
        answers, message = self.server.receive(
            codec.to_bytes(self.to_market(codec.from_bytes(data))), 0
        )
        if message is not None:
            self.got.append(message)
        return answers


# ---- nobody gains ----------------------------------------------------------------------------------


def test_nothing_that_is_signed_paid_or_decided_upon_is_optional() -> None:
    """Who hides a capability takes away optional fields, of these kinds and no other. One more kind
    here means that somebody has asked what a market gains by hiding its fields, and the answer was
    nothing.
    """
    optional = {
        (name, f.name)
        for name, kind in wire.Message.kinds.items()
        if kind.__module__ == wire.__name__
        for f in fields(kind)
        if f.default is not MISSING or f.default_factory is not MISSING
    }
    assert optional == {
        ("Hello", "capabilities"),
        ("Welcome", "capabilities"),
        ("LeaseDeclined", "remedy"),  # words for a person
        ("OutputReady", "signature"),  # what nobody signed is unproven to whoever asks
        ("LeaseSigned", "open_tx"),  # hidden, its lease waits for a block, as without it
    }


@pytest.mark.parametrize(
    ("to_market", "to_client"),
    [
        (stating(), unchanged),
        (unchanged, stating()),
        (stating(), stating()),
        (stating("another"), stating("another")),
        (unchanged, stating("another")),
    ],
)
def test_a_hidden_or_forged_capability_takes_optional_words_away_and_nothing_else(
    to_market: Twist, to_client: Twist
) -> None:
    line = Line(to_market, to_client)
    line.up(line.client.send(DECLINED))
    line.up(line.client.send(wire.StopAsked("lease_1", "why")))
    assert line.got[0] in (PLAIN, DECLINED)
    assert line.got[1] == wire.StopAsked("lease_1", "why")
    assert line.client.numbering.sent == 2 and line.server.numbering is not None
    assert line.server.numbering.received == 2


def test_a_capability_that_was_not_stated_is_not_agreed() -> None:
    """A market that claims what the client did not ask for; and one that is told what it does not
    have.
    """
    line = Line()
    line.client.older = True
    line.to_client = stating(codec.SKIPS)
    line.connect()
    assert line.client.numbering.agreed == frozenset()
    line = Line(stating("another", codec.SKIPS), stating("another", codec.SKIPS))
    assert line.client.numbering.agreed == {codec.SKIPS}
    assert line.server.numbering is not None and line.server.numbering.agreed == {codec.SKIPS}


@pytest.mark.parametrize(
    "names",
    [
        (codec.SKIPS, codec.SKIPS),
        (codec.SKIPS, "another"),
        tuple(f"c{n:02}" for n in range(33)),
    ],
)
def test_capabilities_are_sorted_and_few_and_each_is_there_once(names: tuple[str, ...]) -> None:
    with pytest.raises(HelloRefused, match="sorted"):
        Line(to_market=stating(*names))
    with pytest.raises(HelloRefused, match="sorted"):
        Line(to_client=stating(*names))


def test_a_market_that_always_refuses_is_dialled_twice_at_once_and_then_as_ever() -> None:
    """Its refusal costs one more dial, not a loop without a pause."""
    client = Client("adapter", Signer(b"a" * 32), 42, "test", Numbering(b"s" * 16), AT)
    no = codec.to_bytes(wire.Rejected(Malformed.code, "Hello has the fields …", ""))
    client.connected()
    with pytest.raises(MarketOlder):
        client.receive(no)
    for _ in range(3):
        client.connected()
        with pytest.raises(HelloRefused) as refused:
            client.receive(no)
        assert not isinstance(refused.value, MarketOlder)


# ---- older programs --------------------------------------------------------------------------------


def takes_first_form(data: bytes) -> bool:
    """Whether a program of the first version takes the frame: every field, and no other."""
    _, kind, body = cbor2.loads(data)
    if body.keys() != FIRST[kind]:
        return False
    return kind != "Data" or takes_first_form(body["payload"])


def test_an_older_market_gets_frames_of_its_version_only() -> None:
    """It refuses the hello with capabilities; the next one, and all that follows, is as it was."""

    def old(message: wire.Message) -> wire.Message:
        if not takes_first_form(codec.to_bytes(message)):
            raise Malformed(f"{type(message).__name__} has other fields")
        return message

    line = Line()
    line.up(line.client.send(DECLINED))  # taken by the newer market, which has not acknowledged it
    line.to_market = old
    with pytest.raises(Malformed) as refused:
        line.connect()
    no = wire.Rejected(refused.value.code, refused.value.message, refused.value.remedy)
    with pytest.raises(MarketOlder):
        line.client.receive(codec.to_bytes(no))
    line.numberings.clear()  # another process: it knows nothing of the session
    line.seen.clear()
    line.connect()
    line.up(line.client.send(DECLINED))
    assert line.got == [PLAIN, PLAIN]
    assert all(takes_first_form(data) for data in line.seen)
    line.to_market = unchanged  # and it is brought up to date
    line.connect()
    line.up(line.client.send(DECLINED))
    assert line.got[-1] == DECLINED


def test_an_older_client_gets_frames_of_its_version_only() -> None:
    """Its hello has no capabilities; the market's welcome and messages are as they were."""
    sent: list[bytes] = []

    def old(message: wire.Message) -> wire.Message:
        sent.append(codec.to_bytes(message))
        return message

    line = Line(stating(), old)
    sent.append(line.server.send(DECLINED))
    assert all(takes_first_form(data) for data in sent)
    assert line.client.receive(sent[-1])[1] == PLAIN


# ---- skipped and refused ---------------------------------------------------------------------------


def test_unknown_fields_are_skipped_and_optional_ones_may_be_absent() -> None:
    body = {"lease": "l", "code": "C", "message": "m", "later": {"deep": [1, None, b"x"]}}
    assert codec.from_bytes(frame("LeaseDeclined", body)) == wire.LeaseDeclined("l", "C", "m")


def test_a_field_that_must_be_there_is_missed() -> None:
    with pytest.raises(Malformed, match="code, lease, message"):
        codec.from_bytes(frame("LeaseDeclined", {"lease": "l", "code": "C", "later": 1}))


def test_a_critical_field_or_kind_is_refused() -> None:
    body = {"lease": "l", "code": "C", "message": "m"}
    for data in (frame("LeaseDeclined", {**body, "!later": 1}), frame("!Later", body)):
        with pytest.raises(codec.WireRefused, match="!"):
            codec.from_bytes(data)
    with pytest.raises(codec.UnknownKind):
        codec.from_bytes(frame("Later", body))


@pytest.mark.parametrize("version", [0, 2, "1", None, [1, 0]])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(codec.WireRefused, match="version"):
        codec.from_bytes(frame("Ack", {"seq": 1}, version))


def later(seq: int, kind: str = "Later") -> bytes:
    return codec.to_bytes(wire.Data(seq, frame(kind, {"x": 1})))


def test_a_market_acknowledges_a_message_that_it_does_not_know_and_hears_the_next() -> None:
    line = Line()
    assert line.server.receive(later(1), 0) == ([], None)
    assert codec.from_bytes(line.server.acknowledgement()) == wire.Ack(1)
    data = codec.to_bytes(wire.Data(2, codec.to_bytes(PLAIN)))
    assert line.server.receive(data, 0)[1] == PLAIN
    with pytest.raises(codec.WireRefused):
        line.server.receive(later(3, "!Later"), 0)


def test_a_client_acknowledges_a_message_that_it_does_not_know_and_hears_the_next() -> None:
    line = Line()
    answers, message = line.client.receive(later(1))
    assert message is None and [codec.from_bytes(one) for one in answers] == [wire.Ack(1)]
    for session in (b"m" * 16, b"o" * 16):  # and nothing of it is left where numbers begin anew
        line.client.receive(codec.to_bytes(wire.Welcome(0, session, 0)))
    one = codec.to_bytes(wire.Data(1, codec.to_bytes(PLAIN)))
    assert line.client.receive(one)[1] == PLAIN


def test_a_frame_of_the_connection_itself_is_never_skipped() -> None:
    line = Line()
    with pytest.raises(codec.WireRefused):
        line.client.receive(frame("Later", {}))
    with pytest.raises(codec.WireRefused):
        line.server.receive(frame("Later", {}), 0)


# ---- the page --------------------------------------------------------------------------------------

PAGE = """
import { unframe } from "./web/assets/net/conversation.js";
import { readFileSync } from "node:fs";
const read = (hex) => {
  try {
    const { kind, body } = unframe(Uint8Array.from(Buffer.from(hex, "hex")));
    return [kind, ...Object.keys(body).sort()];
  } catch (error) { return error.code ?? String(error); }
};
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(read)));
"""


def test_the_page_reads_every_form_and_refuses_what_is_critical() -> None:
    forms = [(name, form) for name, all_ in FORMS.items() for form in all_]
    wanted: list[object] = [_named(form["hex"]) for _, form in forms]
    given = [form["hex"] for _, form in forms]
    odd: dict[bytes, object] = {
        frame("Later", {"x": 1}): ["Later", "x"],
        frame("!Later", {}): "WIRE_REFUSED",
        frame("Ack", {"seq": 1, "!x": 1}): "WIRE_REFUSED",
        frame("Ack", {"seq": 1}, 2): "WIRE_REFUSED",
    }
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", PAGE], cwd=ROOT, timeout=120, check=False,
        input=json.dumps([*given, *(raw.hex() for raw in odd)]), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:500]
    assert json.loads(done.stdout) == [*wanted, *odd.values()]


def _named(data: str) -> list[str]:
    _, kind, body = cbor2.loads(bytes.fromhex(data))
    return [kind, *sorted(body)]


# ---- what is skipped costs no more than what is read -----------------------------------------------


def steps(data: bytes) -> int:
    count = 0

    def seen(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        codec.from_bytes(data)
    except Refusal:
        pass
    finally:
        sys.settrace(before)
    return count


def test_what_is_skipped_is_limited_and_costs_as_much_as_it_is_long() -> None:
    body = {"lease": "l", "code": "C", "message": "m"}
    few, many = ({**body, **{f"later {n:04}": n for n in range(count)}} for count in (100, 1_000))
    short, long = frame("LeaseDeclined", few), frame("LeaseDeclined", many)
    assert steps(long) / len(long) < 1.2 * steps(short) / len(short)
    deep: Any = 1
    for _ in range(cbor.FRAME.depth):
        deep = [deep]
    for more in ({f"x{n}": 0 for n in range(1_100)}, {"x": deep}, {"x": [0] * 20_000}):
        with pytest.raises(Malformed):
            codec.from_bytes(frame("LeaseDeclined", {**body, **more}))
