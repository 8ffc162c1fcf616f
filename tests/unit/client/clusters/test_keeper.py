"""Who keeps a cluster, at a market of a few lines that forges, replays, hides and goes away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marketplace.client.clusters import keeper as module
from marketplace.client.clusters.core import Rules
from marketplace.client.clusters.guests import Guests
from marketplace.client.clusters.keeper import Change, Keeper
from marketplace.client.clusters.stage import Stage
from marketplace.client.net.http import MarketFault
from marketplace.domain.errors import Halt
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster import Stall
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import Heard, MeshPeer, MeshPlace, MeshSight, SignedMesh, public
from marketplace.domain.work.mesh_net import FIRST_GUEST

pytestmark = pytest.mark.anyio
MEET, RUN, HOLD = Verb.MEET, Verb.RUN, Verb.HOLD
STRANGER = Signer(b"\x0e" * 32)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.002)


def session(lease: str) -> Signer:
    return Signer(lease.encode().ljust(32, b"s"))


def adapter(lease: str) -> Signer:
    return Signer(lease.encode().ljust(32, b"a"))


def hexed(said: Any) -> dict[str, str] | None:
    return None if said is None else {"body": said.body.hex(), "signature": said.signature.hex()}


@dataclass
class Payer:
    """Books of a few lines: what was signed, and what is lost from them."""

    leases: dict[str, str] = field(default_factory=dict[str, str])
    newest: dict[str, SignedOrder] = field(default_factory=dict[str, SignedOrder])
    final: set[str] = field(default_factory=set[str])
    broken: bool = False

    @property
    def all(self) -> list[Any]:
        def held(lease: str, job: str) -> Any:
            terms = SimpleNamespace(job=job, adapter_vk=adapter(lease).verify_key)
            return SimpleNamespace(
                session_vk=session(lease).verify_key, final=self.final,
                book=SimpleNamespace(leases={lease: SimpleNamespace(terms=terms)}),
            )  # fmt: skip

        return [held(lease, job) for lease, job in self.leases.items()]

    def ordered(self, lease: str) -> SignedOrder | None:
        return self.newest.get(lease)

    async def order(
        self, lease: str, verb: Verb, peers: Sequence[MeshPeer], shown: SignedOrder | None
    ) -> SignedOrder:
        if self.broken:
            raise Halt("the journal cannot be written")
        known = [one for one in (self.newest.get(lease), shown) if one is not None]
        last = max(known, key=lambda one: one.order.version, default=None)
        if last is not None and (last.order.verb, last.order.peers) == (verb, tuple(peers)):
            self.newest[lease] = last
            return last
        version = 1 if last is None else last.order.version + 1
        order = ClusterOrder(lease, version, verb, tuple(peers))
        made = self.newest[lease] = SignedOrder.sign(session(lease), order)
        return made


@dataclass
class Place:
    """A market: two members, and what was posted there."""

    mesh: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    payer: Payer = field(default_factory=Payer)
    posted: list[ClusterOrder] = field(default_factory=list[ClusterOrder])
    keeps: bool = True
    over: bool = False
    away: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        for at in range(2):
            self.rows.append({
                "member": at, "job": f"job_{at}", "lease": None, "state": None, "stage": "",
                "needs": "", "started": False, "lost": False, "order": None, "place": None,
                "sight": None,
            })  # fmt: skip
            self.take(at, f"l{at}")

    def take(self, at: int, lease: str, **more: Any) -> None:
        """Member *at* is run by *lease* from now on."""
        self.payer.leases[lease] = f"job_{at}"
        clean = {"order": None, "place": None, "sight": None, "lost": False, "started": True}
        self.rows[at].update({**clean, "lease": lease, "state": "ACTIVE", **more})

    async def get(self, path: str) -> Any:
        assert path == "/v1/gangs/gang_1/cluster"
        self.looks += 1
        if self.away:
            self.away -= 1
            raise MarketFault("nobody answers")
        return {
            "id": "gang_1", "members": [dict(row) for row in self.rows], "least": 2,
            "stall": "pause", "mesh": self.mesh, "over": self.over,
        }  # fmt: skip

    async def post(self, path: str, body: dict[str, str]) -> Any:
        signed = SignedOrder(bytes.fromhex(body["body"]), bytes.fromhex(body["signature"]))
        lease = path.split("/")[3]
        self.posted.append(signed.verify(lease, session(lease).verify_key))
        if self.keeps:
            for row in self.rows:
                if row["lease"] == lease:
                    row["order"] = body
        return {"lease": lease, "version": signed.order.version}

    def last(self) -> dict[str, Verb]:
        return {order.lease: order.verb for order in self.posted}

    def says(self, at: int, said: MeshPlace | MeshSight, by: Signer | None = None) -> None:
        key = "place" if isinstance(said, MeshPlace) else "sight"
        signer = by or adapter(self.rows[at]["lease"])
        self.rows[at][key] = hexed(SignedMesh.sign(signer, said))


async def kept(
    place: Place, until: Callable[[], object], keeper: Keeper | None = None
) -> list[str]:
    """What was told until so much is so."""
    rules = Rules(2, 2, Stall.PAUSE, place.mesh)
    jobs = ("job_0", "job_1")
    made = keeper or Keeper(cast(Any, place), cast(Any, place.payer), "gang_1", jobs, rules)
    said: list[str] = []

    def told(change: Change) -> None:
        said.append(change.code or change.words)

    made.listen(told)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        with anyio.fail_after(10):
            while not until():  # noqa: ASYNC110  it is seen, and tells nobody
                await anyio.sleep(0.002)
            seen = place.looks  # what was decided by this look is told before the next one
            while place.looks == seen and made.stage is not Stage.ENDED:  # noqa: ASYNC110  as above
                await anyio.sleep(0.002)
        tasks.cancel_scope.cancel()
    return said


def after(place: Place, looks: int) -> Callable[[], object]:
    """After so many more looks of the market's."""
    first = place.looks
    return lambda: place.looks > first + looks


async def test_from_the_first_order_to_the_end() -> None:
    place = Place()
    place.rows[1].update(started=False, state="FUNDED")
    said = await kept(place, lambda: len(place.posted) == 2)
    assert place.last() == {"l0": MEET, "l1": MEET} and said == ["assembling 1 of 2"]
    place.rows[1].update(started=True, state="ACTIVE")
    assert await kept(place, lambda: place.last() == {"l0": RUN, "l1": RUN}) == ["running"]
    place.rows[1].update(lease=None, state=None, lost=True, started=False, needs="session_vk")
    said = await kept(place, lambda: place.last()["l0"] is HOLD)
    assert said[-1] == "held: 1 of 2 is missing, unbilled"
    place.take(1, "l1b", lost=True, started=False, state="FUNDED")
    await kept(place, lambda: place.last().get("l1b") is MEET)
    place.rows[1].update(started=True, state="ACTIVE", lost=False)
    said = await kept(place, lambda: place.last()["l0"] is place.last()["l1b"] is RUN)
    place.rows[0].update(state="ENDING")
    assert (await kept(place, after(place, 2)))[-1] == "running", "one that completed is there"
    place.over = True
    assert (await kept(place, lambda: place.looks, None))[-1] == "ended"
    versions = [order.version for order in place.posted if order.lease == "l0"]
    assert versions == sorted(set(versions))


async def test_one_that_waits_for_its_order_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, other = Place(), anyio.Event()
    send = place.post

    async def post(path: str, body: dict[str, str]) -> Any:
        if path.split("/")[3] == "l0":
            with anyio.fail_after(5):
                await other.wait()
        else:
            other.set()
        return await send(path, body)

    monkeypatch.setattr(place, "post", post)
    await kept(place, lambda: place.last() == {"l0": RUN, "l1": RUN})


async def test_while_something_moves_before_the_start_the_next_look_is_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    monkeypatch.setattr(module, "SOON_S", 0.002)
    place, look = Place(mesh=True), Place.get

    async def get(path: str) -> Any:  # each look finds a little more
        for at in range(2):
            if place.looks == 1:
                place.says(at, spot(f"l{at}"))
            if place.looks == 3:
                place.says(at, sees(f"l{at}", 1 - at, place.payer.newest[f"l{at}"].order.version))
        return await look(place, path)

    monkeypatch.setattr(place, "get", get)
    rules = Rules(2, 2, Stall.PAUSE, True)
    keeper = Keeper(cast(Any, place), cast(Any, place.payer), "gang_1", ("job_0", "job_1"), rules)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        with anyio.fail_after(10):
            while keeper.stage is not Stage.RUNNING:  # noqa: ASYNC110  it tells nobody
                await anyio.sleep(0.002)
        looks = place.looks
        await anyio.sleep(0.1)
        assert place.looks == looks, "one that runs is not looked at all the time"
        tasks.cancel_scope.cancel()


async def test_an_order_that_the_market_does_not_show_is_said_again_as_it_is() -> None:
    place = Place(keeps=False)
    await kept(place, lambda: len(place.posted) >= 6)
    assert {(order.version, order.verb) for order in place.posted} == {(1, RUN)}


async def test_a_market_that_is_away_is_waited_for() -> None:
    place = Place(away=3)
    said = await kept(place, lambda: place.last() == {"l0": RUN, "l1": RUN})
    assert said[0] == "MARKET_UNREACHABLE" and said.count("MARKET_UNREACHABLE") == 1


async def test_books_that_cannot_be_kept_stop_the_process() -> None:
    place = Place(payer=Payer(broken=True))
    with pytest.raises(BaseExceptionGroup) as caught:
        await kept(place, lambda: False)
    assert caught.group_contains(Halt)


async def test_another_process_goes_on_where_this_one_died_even_with_an_older_book() -> None:
    place = Place()
    await kept(place, lambda: place.last() == {"l0": RUN, "l1": RUN})
    place.payer.newest.clear()
    place.rows[1].update(started=False)
    said = await kept(place, after(place, 3))
    assert said == ["running"] and len(place.posted) == 2, "nothing is ordered back to MEET"


async def test_an_order_that_another_key_signed_is_no_order() -> None:
    place = Place()
    forged = SignedOrder.sign(STRANGER, ClusterOrder("l0", 9, HOLD))
    place.keeps = False
    place.rows[0]["order"] = hexed(forged)
    said = await kept(place, lambda: len(place.posted) >= 4)
    assert place.last() == {"l0": RUN, "l1": RUN} and "ORDER_REFUSED" in said


@pytest.mark.parametrize("forge", ["lease", "jobs", "count", "elsewhere"])
def test_members_that_are_none_of_ours_are_ordered_nothing(forge: str) -> None:
    place = Place()
    match forge:
        case "lease":
            place.rows[0]["lease"] = place.rows[1]["lease"]
        case "jobs":
            place.rows[0]["job"] = "job_9"
        case "count":
            place.rows.pop()
        case _:
            place.rows[0]["lease"] = "unknown"
    said = anyio.run(kept, place, after(place, 3))
    assert place.posted == [] and set(said) <= {"ANSWER_UNREADABLE", "CLUSTER_ELSEWHERE"} and said


async def test_one_that_has_ended_by_our_own_books_is_ordered_nothing() -> None:
    place = Place()
    place.payer.final.add("l1")
    await kept(place, lambda: place.last() == {"l0": RUN})
    assert "l1" not in place.last()


# ---- with a mesh ---------------------------------------------------------------------------------


def spot(lease: str, at: int = 1) -> MeshPlace:
    return MeshPlace(lease, lease.encode().ljust(32, b"k"), public("192.0.2.1", 4000 + at))


def sees(lease: str, other: int, version: int, number: int = 1) -> MeshSight:
    return MeshSight(lease, version, number, (Heard(other, 900, 10, 20),))


def meets(place: Place) -> bool:
    return {tuple(peer.member for peer in one.peers) for one in place.posted[-2:]} == {(0,), (1,)}


async def test_a_mesh_runs_once_each_adapter_signed_that_it_hears_the_other() -> None:
    place = Place(mesh=True)
    for at in range(2):
        place.says(at, spot(f"l{at}"))
    await kept(place, lambda: len(place.posted) >= 2 and meets(place))
    place.says(0, sees("l0", 1, 1))
    await kept(place, after(place, 3))
    assert RUN not in place.last().values()
    place.says(1, sees("l1", 0, 1))
    said = await kept(place, lambda: place.last() == {"l0": RUN, "l1": RUN})
    assert said[-1] == "running"


@pytest.mark.parametrize("lie", ["key", "lease", "hex", "twice"])
async def test_a_place_that_its_adapter_did_not_sign_is_not_used_and_is_told(lie: str) -> None:
    place = Place(mesh=True)
    place.says(1, spot("l1"))
    match lie:
        case "key":
            place.says(0, spot("l0"), by=STRANGER)
        case "lease":
            place.says(0, spot("l1"))
        case "twice":  # another one's key under its own name
            place.says(0, spot("l0"))
            place.says(1, MeshPlace("l1", spot("l0").key, public("192.0.2.1", 4001)))
        case _:
            place.rows[0]["place"] = {"body": "no hex", "signature": ""}
    said = await kept(place, after(place, 4))
    assert said.count("MESH_UNPROVEN") == 1, said
    peers = [peer.member for order in place.posted for peer in order.peers]
    assert (1 if lie == "twice" else 0) not in peers
    assert RUN not in place.last().values()


async def test_a_sight_is_the_adapters_own_and_an_older_one_does_not_come_back() -> None:
    place = Place(mesh=True)
    for at in range(2):
        place.says(at, spot(f"l{at}"))
    await kept(place, lambda: len(place.posted) >= 2 and meets(place))
    keeper = Keeper(
        cast(Any, place), cast(Any, place.payer), "gang_1", ("job_0", "job_1"),
        Rules(2, 2, Stall.PAUSE, True),
    )  # fmt: skip
    place.says(0, sees("l0", 1, 1))
    place.says(1, sees("l1", 0, 1), by=STRANGER)
    said = await kept(place, after(place, 3), keeper)
    assert "MESH_UNPROVEN" in said and keeper.stage is Stage.ASSEMBLING
    place.says(1, MeshSight("l1", 1, 5, ()))
    await kept(place, after(place, 3), keeper)
    place.says(1, sees("l1", 0, 1, number=4))  # from before it went deaf
    await kept(place, after(place, 3), keeper)
    assert keeper.stage is Stage.ASSEMBLING
    place.says(1, sees("l1", 0, 1, number=6))
    await kept(place, lambda: keeper.stage is Stage.RUNNING, keeper)


# ---- guests --------------------------------------------------------------------------------------

FOREVER = 2**52
OWN = b"\x77" * 32


def keeper_of(place: Place, home: Path) -> Keeper:
    return Keeper(
        cast(Any, place), cast(Any, place.payer), "gang_1", ("job_0", "job_1"),
        Rules(2, 2, Stall.PAUSE, True), Guests(home, "gang_1"),
    )  # fmt: skip


def guests_in(place: Place) -> dict[str, list[bytes]]:
    """Of the newest order of each lease, the keys that are no member's."""
    return {
        order.lease: [one.key for one in order.peers if one.member >= FIRST_GUEST]
        for order in place.posted
    }


def placed() -> Place:
    made = Place(mesh=True)
    for at in range(2):
        made.says(at, spot(f"l{at}"))
    return made


async def test_who_is_in_this_homes_list_is_signed_in_and_out_again(tmp_path: Path) -> None:
    place, guests = placed(), Guests(tmp_path, "gang_1")
    keeper = keeper_of(place, tmp_path)
    await kept(place, after(place, 3), keeper)
    assert guests_in(place) == {"l0": [], "l1": []}
    guests.let_in(OWN, FOREVER, (), 1)
    await kept(place, lambda: guests_in(place) == {"l0": [OWN], "l1": [OWN]}, keeper)
    place.take(1, "l1b")
    place.says(1, spot("l1b"))
    other = keeper_of(place, tmp_path)  # another process, or this one after a restart
    await kept(place, lambda: guests_in(place).get("l1b") == [OWN], other)
    guests.sign_out()
    await kept(place, lambda: guests_in(place)["l0"] == guests_in(place)["l1b"] == [], other)
    versions = [order.version for order in place.posted if order.lease == "l0"]
    assert versions == sorted(set(versions))


async def test_whose_time_is_over_is_signed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = placed()
    keeper = keeper_of(place, tmp_path)
    Guests(tmp_path, "gang_1").let_in(OWN, 2_000, (), 1)
    now = 1_999
    monkeypatch.setattr(module, "_wall_ms", lambda: now)
    await kept(place, lambda: guests_in(place) == {"l0": [OWN], "l1": [OWN]}, keeper)
    now = 2_000
    await kept(place, lambda: guests_in(place) == {"l0": [], "l1": []}, keeper)


@pytest.mark.parametrize("lie", ["order", "place", "member", "sight"])
async def test_a_market_lets_nobody_in_and_swaps_no_guests_key(lie: str, tmp_path: Path) -> None:
    place = placed()
    Guests(tmp_path, "gang_1").let_in(OWN, FOREVER, (), 1)
    keeper = keeper_of(place, tmp_path)
    thief = MeshPeer(FIRST_GUEST, b"\x66" * 32, public("192.0.2.66", 666))
    match lie:
        case "order":  # above every version that was signed here
            body = ClusterOrder("l0", 99, RUN, (thief,))
            place.keeps = False
            place.rows[0]["order"] = hexed(SignedOrder.sign(STRANGER, body))
        case "place":
            place.says(1, MeshPlace("l1", thief.key, thief.candidates), by=STRANGER)
        case "member":  # one more than there are
            place.rows.append({**place.rows[1], "member": FIRST_GUEST, "job": "job_2"})
        case _:
            place.says(0, MeshSight("l0", 1, 1, (Heard(FIRST_GUEST, 1, 1, 1),)), by=STRANGER)
    said = await kept(place, after(place, 4), keeper)
    assert thief.key not in {one.key for order in place.posted for one in order.peers}
    assert set(said) & {"ORDER_REFUSED", "MESH_UNPROVEN", "ANSWER_UNREADABLE"}, said


async def test_a_provider_that_says_a_guests_key_is_itself_left_out(tmp_path: Path) -> None:
    """It reads that key in its orders; two peers with one key would be no order at all."""
    place = placed()
    Guests(tmp_path, "gang_1").let_in(OWN, FOREVER, (), 1)
    place.says(1, MeshPlace("l1", OWN, public("192.0.2.1", 4001)))
    said = await kept(place, lambda: len(place.posted) >= 2, keeper_of(place, tmp_path))
    assert "MESH_UNPROVEN" in said and guests_in(place)["l0"] == [OWN]
    assert all(1 not in [one.member for one in order.peers] for order in place.posted)


async def test_a_damaged_list_lets_nobody_in_and_holds_up_no_member(tmp_path: Path) -> None:
    place = placed()
    Guests(tmp_path, "gang_1").let_in(OWN, FOREVER, (), 1)
    (tmp_path / "guests" / "gang_1.json").write_text("[]")
    said = await kept(place, lambda: meets(place), keeper_of(place, tmp_path))
    assert "MALFORMED" in said and guests_in(place) == {"l0": [], "l1": []}


async def test_the_list_goes_with_the_cluster(tmp_path: Path) -> None:
    place, guests = placed(), Guests(tmp_path, "gang_1")
    guests.let_in(OWN, FOREVER, (), 1)
    place.over = True
    await kept(place, lambda: place.looks, keeper_of(place, tmp_path))
    assert guests.read(1) == ()
