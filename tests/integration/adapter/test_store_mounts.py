"""Stores of clusters, mounted by rclone from the market's own server and from a consumer's: what is
written is there when its writer's close returns, nobody reaches another's, nothing of it is left, and
a server that is away holds nobody up.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import pytest

from adapter.runtime.stores.guard import Guard
from adapter.runtime.stores.mounts import StoreFault, StoreMounts, folder_of, place_of, remove_all
from marketplace.cluster_store.places import MOST
from marketplace.cluster_store.serving import READ_S
from marketplace.domain.work.cluster_store import (
    KEY,
    PASSWORD,
    USER,
    Leave,
    Store,
    StorePass,
    StorePlace,
    id_of,
    key_of,
)
from marketplace.rclone import Source, StoreRefused, of_consumer, of_market
from tests.ports import free_port
from tests.requires import need_s3, need_stores

pytestmark = pytest.mark.timeout(60)
SECRET = bytes(range(32))
NOBODY = (10001, 10001)
KEYS = {KEY: key_of(b"p" * 32, "run")}
MIB = 1 << 20


@dataclass
class Server:
    """The market's server of stores, in a process of its own; *living*: store by lease."""

    root: Path
    process: subprocess.Popen[str]
    port: int
    living: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def place(self) -> StorePlace:
        return StorePlace(f"http://127.0.0.1:{self.port}", SECRET)

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self.living) + "\n")
        self.process.stdin.flush()

    def leave(self, lease: str, account: str = "one") -> StorePass:
        """For a lease of *account*, which lives from now on."""
        self.living[lease] = id_of(account, "run")
        given = self.place.give(account, "run", lease)
        self.tell()
        deadline = time.monotonic() + 10
        while self.ask("OPTIONS", f"/{id_of(account, 'run')}/", given.token)[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return given

    def over(self, lease: str) -> None:
        """It ended, and the server knows."""
        given = Leave("member", self.living[lease], lease).token(SECRET)
        path = f"/{self.living.pop(lease)}/"
        self.tell()
        deadline = time.monotonic() + 10
        while self.ask("OPTIONS", path, given)[0] != 403:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def ask(
        self, method: str, path: str, said: str, body: bytes | None = None, **more: str
    ) -> tuple[int, bytes]:
        line = HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(line):
            line.request(method, path, body, {"Authorization": f"Bearer {said}", **more})
            answer = line.getresponse()
            return answer.status, answer.read()


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    need_stores()
    most = getattr(request, "param", 8 * MIB)
    root = tmp_path / "stores"
    line = [sys.executable, "-m", "marketplace.cluster_store.serving"]
    with subprocess.Popen(
        [*line, str(root), str(most), "127.0.0.1", "0", "3600"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(SECRET.hex() + "\n")
        process.stdin.flush()
        yield Server(root, process, int(json.loads(process.stdout.readline())["port"]))
        process.kill()


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[StoreMounts]:
    need_stores()
    state = tmp_path / "state"
    yield StoreMounts(state, market="127.0.0.1")
    remove_all(state)
    assert str(place_of(state)) not in Path("/proc/self/mountinfo").read_text()
    assert not place_of(state).exists()


def rclone_of(state: Path, lease: str) -> int:
    return int(json.loads((place_of(state) / lease / "about.json").read_text())["pid"])


def test_what_one_member_wrote_another_reads_when_close_returned_and_the_market_cannot(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    for lease in ("lease_1", "lease_2"):
        mounts.up(lease, of_market(server.leave(lease), KEYS), NOBODY)
    one, two = (folder_of(state, lease) for lease in ("lease_1", "lease_2"))
    assert os.stat(one).st_uid == NOBODY[0] and os.stat(one).st_mode & 0o777 == 0o700
    data = os.urandom(3 * MIB)
    (one / "draft").write_bytes(data)
    (on_disk,) = [path for path in server.root.rglob("*") if path.is_file()]
    assert on_disk.stat().st_size >= len(data), "close returned, and it is not all there"
    assert "draft" not in on_disk.name and data[:64] not in on_disk.read_bytes()
    os.replace(one / "draft", one / "model")
    assert (two / "model").read_bytes() == data
    (two / "LATEST").write_text("1")
    (two / "next").write_text("2")
    os.replace(two / "next", two / "LATEST")
    (one / "deep" / "er").mkdir(parents=True)
    time.sleep(1.1)  # what one knows of a folder is a second old at most
    assert (one / "LATEST").read_text() == "2" and sorted(os.listdir(two)) == [
        "LATEST", "deep", "model"
    ]  # fmt: skip
    with pytest.raises(PermissionError), (one / "model").open("r+b") as file:
        file.write(b"within")
    (one / "model").write_bytes(b"whole")
    assert (one / "model").read_bytes() == b"whole"

    for lease in ("lease_1", "lease_2"):
        mounts.down(lease)
        mounts.down(lease)  # may be repeated
    assert mounts.held() == [] and on_disk.parent.is_dir(), "at the store everything stays"
    mounts.up("lease_3", of_market(server.leave("lease_3"), KEYS), NOBODY)
    assert (folder_of(state, "lease_3") / "LATEST").read_text() == "2"


def test_a_file_that_is_renamed_over_is_never_away(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    """rclone would delete it first: a host that is lost then would take both with it."""
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_1")
    (at / "latest").write_text("0")
    (on_disk,) = [path for path in server.root.rglob("*") if path.is_file()]
    away, over = 0, threading.Event()

    def watch() -> None:
        nonlocal away
        while not over.is_set():
            away += not on_disk.exists()

    watching = threading.Thread(target=watch)
    watching.start()
    for step in range(1, 40):
        (at / "draft").write_text(str(step))
        os.replace(at / "draft", at / "latest")
        assert (at / "latest").read_text() == str(step)
    over.set()
    watching.join()
    assert away == 0
    (at / "latest").write_text("over itself")
    (at / "latest").unlink()
    assert not on_disk.exists() and os.listdir(at) == []


@pytest.mark.prove
@pytest.mark.parametrize("server", [1024 * MIB], indirect=True)
def test_a_program_that_reads_with_pauses_reads_it_all(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    """More files at once than the server answers, each longer than what rclone reads ahead."""
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_1")
    data = os.urandom(36 * MIB)
    names = [f"shard-{number}" for number in range(MOST + 4)]
    (at / names[0]).write_bytes(data)
    (encrypted,) = [path for path in server.root.rglob("*") if path.is_file()]
    for name in names[1:]:
        (at / name).write_bytes(b"x")
    for path in encrypted.parent.iterdir():
        if path != encrypted:
            path.unlink()
            path.hardlink_to(encrypted)
    mounts.up("lease_2", of_market(server.leave("lease_2"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_2")
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context((at / name).open("rb")) for name in names]
        for file in files:
            assert file.read(MIB) == data[:MIB]
        time.sleep(READ_S + 2)
        for file in files:
            assert file.read() == data[MIB:]
        (at / "checkpoint").write_bytes(b"y")


def test_an_ended_lease_writes_and_reads_no_more(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_1")
    (at / "before").write_text("x")
    server.over("lease_1")
    with pytest.raises(OSError):
        (at / "after").write_text("x")
    with pytest.raises(OSError):
        os.rename(at / "before", at / "other")
    with pytest.raises(OSError):
        (at / "before").read_text()
    mounts.up("lease_2", of_market(server.leave("lease_2"), KEYS), NOBODY)
    assert os.listdir(folder_of(tmp_path / "state", "lease_2")) == ["before"]


def test_a_store_that_is_full_takes_no_more_and_keeps_what_it_has(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_1")
    (at / "model").write_bytes(b"1" * (5 * MIB))
    with pytest.raises(OSError):
        (at / "model").write_bytes(b"2" * (5 * MIB))
    time.sleep(1.5)  # what a mount knows of a folder is a second old at most
    assert (at / "model").read_bytes() == b"1" * (5 * MIB)
    (at / "model").unlink()
    (at / "model").write_bytes(b"2" * (5 * MIB))


def test_no_credential_is_on_a_command_line_or_in_a_file(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    given = server.leave("lease_1")
    mounts.up("lease_1", of_market(given, KEYS), NOBODY)
    pid = rclone_of(tmp_path / "state", "lease_1")
    line = Path(f"/proc/{pid}/cmdline").read_text()
    kept = "".join(
        path.read_text() for path in (place_of(tmp_path / "state") / "lease_1").glob("*.json")
    )
    for word in (given.token, KEYS[KEY], KEYS[KEY][:32], KEYS[KEY][32:]):
        assert word not in line + kept
    assert given.token not in repr(of_market(given, KEYS)) + repr(given)
    said = Path(f"/proc/{pid}/status").read_text()
    (bound,) = [row for row in said.splitlines() if row.startswith("CapBnd")]
    assert int(bound.split()[1], 16) == 1 << 21, "it may mount, and nothing else (CAP_SYS_ADMIN)"


def test_a_mount_is_taken_up_after_a_crash_and_one_that_died_is_seen(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    source = of_market(server.leave("lease_1"), KEYS)
    mounts.up("lease_1", source, NOBODY)
    (folder_of(state, "lease_1") / "kept").write_text("x")
    pid = rclone_of(state, "lease_1")
    fresh = StoreMounts(state, market="127.0.0.1")
    assert fresh.held() == ["lease_1"] and fresh.stands("lease_1")
    fresh.up("lease_1", source, NOBODY)
    assert rclone_of(state, "lease_1") == pid, "what stands is left as it is"
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while mounts.stands("lease_1"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    fresh.up("lease_1", source, NOBODY)
    assert (folder_of(state, "lease_1") / "kept").read_text() == "x"


def test_a_server_that_stands_still_holds_up_no_removal(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    at = folder_of(tmp_path / "state", "lease_1")
    server.process.send_signal(signal.SIGSTOP)
    with subprocess.Popen(["cat", str(at / "absent")], stderr=subprocess.DEVNULL) as stuck:
        time.sleep(0.3)
        begun = time.monotonic()
        assert mounts.stands("lease_1")
        assert time.monotonic() - begun < 1, "to look waits for nobody"
        mounts.down("lease_1")
        assert time.monotonic() - begun < 15
        stuck.kill()
    server.process.send_signal(signal.SIGCONT)
    assert mounts.held() == []


def test_nothing_is_removed_that_lies_where_a_store_was(
    mounts: StoreMounts, tmp_path: Path
) -> None:
    at = folder_of(tmp_path / "state", "lease_1")
    at.mkdir(parents=True)
    (at / "theirs").write_text("x")
    with pytest.raises(OSError):
        mounts.down("lease_1")
    assert (at / "theirs").read_text() == "x"
    (at / "theirs").unlink()


def test_a_consumers_own_webdav_is_mounted_where_the_owner_opens_its_network(
    server: Server, tmp_path: Path
) -> None:
    """The market's server takes tokens alone: here a plain one of rclone's is the consumer's."""
    state = tmp_path / "state"
    folder = tmp_path / "dav"
    folder.mkdir()
    with webdav(folder) as port:
        store = Store(url=f"http://127.0.0.1:{port}")
        mine = of_consumer(store, {USER: "me", PASSWORD: "my-password"})
        closed, opened = StoreMounts(state, market="127.0.0.1"), StoreMounts(state, ["127.0.0.0/8"])
        with pytest.raises(StoreRefused, match="opens to no store"):
            closed.up("lease_1", mine, NOBODY)
        wrong = of_consumer(store, {USER: "me", PASSWORD: "another-password"})
        with pytest.raises(StoreRefused, match="does not let this provider in") as refused:
            opened.up("lease_1", wrong, NOBODY)
        assert "another-password" not in str(refused.value)
        assert opened.held() == []
        opened.up("lease_1", mine, NOBODY)
        (folder_of(state, "lease_1") / "model").write_text("plain")
        assert (folder / "model").read_text() == "plain"
        remove_all(state)
        assert not place_of(state).exists() and (folder / "model").exists()


def test_a_consumers_bucket_of_s3_is_mounted_and_outlives_who_wrote_there(tmp_path: Path) -> None:
    """This server tells users by their names: of a signature it asks no more."""
    need_stores()
    with s3(tmp_path / "disk") as port:
        store = Store(url="s3://bucket/run", endpoint=f"http://127.0.0.1:{port}")
        large = os.urandom(12 * MIB)  # in several parts
        for lease in ("lease_1", "lease_2"):  # the second one's host never saw the first
            state = tmp_path / lease
            mounts = StoreMounts(state, ["127.0.0.0/8"])
            nobody = of_consumer(store, {USER: "nobody", PASSWORD: "S3RVER"})
            with pytest.raises(StoreRefused, match="does not let this provider in"):
                mounts.up(lease, nobody, NOBODY)
            mounts.up(lease, of_consumer(store, {USER: "S3RVER", PASSWORD: "S3RVER"}), NOBODY)
            at = folder_of(state, lease)
            if lease == "lease_1":
                assert not list(at.iterdir())
                (at / "deep").mkdir()
                (at / "deep" / "model").write_bytes(large)
                (at / "step").write_text("1")
                (at / "step").write_text("2")
            else:
                assert (at / "deep" / "model").read_bytes() == large
                assert (at / "step").read_text() == "2"
            remove_all(state)
            assert not place_of(state).exists()


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[int]:
    port, folder = free_port(), folder.absolute()
    folder.mkdir()
    line = ["node", str(need_s3()), "--silent", "-d", str(folder), "-a", "127.0.0.1"]
    with subprocess.Popen([*line, "-p", str(port), "--configure-bucket", "bucket"]) as process:
        until_answered(port)
        yield port
        process.kill()


@contextlib.contextmanager
def webdav(folder: Path) -> Iterator[int]:
    port = free_port()
    line = ["rclone", "serve", "webdav", str(folder), "--addr", f"127.0.0.1:{port}"]
    env = {"PATH": os.environ["PATH"], "RCLONE_CONFIG": "/dev/null", "HOME": str(folder)}
    env |= {"RCLONE_USER": "me", "RCLONE_PASS": "my-password"}
    with subprocess.Popen([*line, "--log-level", "ERROR"], env=env) as process:
        until_answered(port)
        yield port
        process.kill()


def until_answered(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        with (
            contextlib.suppress(OSError),
            contextlib.closing(HTTPConnection("127.0.0.1", port)) as one,
        ):
            one.connect()
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_mount_reaches_no_service_of_the_host_even_by_the_answer_of_a_server(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    """The kernel refuses what a server's redirect, or a name that changed, would lead to."""
    mounts.up("lease_1", of_market(server.leave("lease_1"), KEYS), NOBODY)
    group = Guard(tmp_path / "state").group([("127.0.0.1/32", server.port)])
    assert f"--gid-owner {group} -j" in output_rules()
    port = free_port()
    program = (
        "import socket,sys\n"
        "for port in map(int, sys.argv[1:]):\n"
        "    try:\n"
        "        socket.create_connection(('127.0.0.1', port), 1.5).close(); print('reached')\n"
        "    except TimeoutError: print('dropped')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    line = ["setpriv", f"--regid={group}", "--clear-groups", sys.executable, "-c", program]
    done = subprocess.run(
        [*line, str(server.port), str(port)], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.split() == ["reached", "dropped"]
    mounts.down("lease_1")
    assert str(group) not in output_rules(), "no rule outlives the last mount"


def output_rules() -> str:
    line = ["iptables", "-w", "5", "-t", "mangle", "-S", "OUTPUT"]
    return subprocess.run(line, capture_output=True, text=True, timeout=10, check=True).stdout


def test_a_market_that_does_not_answer_is_its_fault_and_no_refusal(mounts: StoreMounts) -> None:
    place = StorePlace(f"http://127.0.0.1:{free_port()}", SECRET)
    source = of_market(place.give("one", "run", "lease_1"), KEYS)
    before = output_rules()
    with pytest.raises(StoreFault):
        mounts.up("lease_1", source, NOBODY)
    assert mounts.held() == [] and output_rules() == before


def test_a_source_without_what_opens_it_is_refused() -> None:
    with pytest.raises(StoreRefused):
        of_market(StorePass("http://127.0.0.1:1/x/", "t"), {})
    with pytest.raises(StoreRefused):
        of_consumer(Store(url="s3://bucket/run"), {USER: "me"})
    assert isinstance(
        of_consumer(Store(url="s3://bucket/run"), {USER: "me", PASSWORD: "p"}), Source
    )
