"""What is kept of a service on disk: read back as it was written, and whatever else is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.services.core import Replica
from marketplace.client.services.demand import Demand
from marketplace.client.services.folder import (
    KeptElsewhere,
    NoSuchService,
    ServiceFolder,
    Standing,
    Wanted,
)
from marketplace.client.services.stage import Stage
from marketplace.domain.errors import Malformed
from marketplace.domain.work.parts import FileIn
from marketplace.domain.work.service import Health, Scale, ServiceSpec
from tests.fakes import spec

SERVICE = ServiceSpec(
    "web", 8000, "public", Scale(0, 3, 4, predict=90), Health("/x"), most_per_hour=7
)
REPLICA = Replica("job_1", "abc", Stage.DRAINING, 1, 2, 3, 4, 5, "provider", "replaced")


def wanted(folder: Path) -> Wanted:
    path = folder / "page.html"
    path.write_text("page")
    file = FileIn("/workspace/page.html", "ab" * 32, 4)
    return Wanted("http://m", LoadedJob(spec(files=(file,)), {"ab" * 32: path}), SERVICE)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder, wish = ServiceFolder(tmp_path, "web"), wanted(tmp_path)
    assert not folder.is_there and ServiceFolder.all(tmp_path) == []
    folder.want(wish)
    (tmp_path / "page.html").unlink()  # its own copy is kept
    read = folder.wanted()
    assert (read.market, read.service, read.up) == (wish.market, SERVICE, True)
    assert read.job.spec == wish.job.spec and read.revision == wish.revision
    assert read.job.blobs["ab" * 32].read_text() == "page"
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.end()
    assert not folder.wanted().up and folder.wanted().job == read.job
    assert folder.standing() == Standing()
    standing = Standing("abc", (REPLICA,), "said", 9, (4_000, 5_000), "more")
    folder.stand(standing)
    assert folder.standing() == standing
    assert folder.demand() is None
    folder.remember(Demand(5_000, 25_000, [1, 2, 3]))
    assert folder.demand() == Demand(5_000, 25_000, [1, 2, 3])
    assert [one.name for one in ServiceFolder.all(tmp_path)] == ["web"]
    folder.forget()
    with pytest.raises(NoSuchService):
        folder.wanted()


def test_one_keeps_it_at_a_time(tmp_path: Path) -> None:
    one, other = ServiceFolder(tmp_path, "web"), ServiceFolder(tmp_path, "web")
    with one.kept():
        assert other.is_kept
        with pytest.raises(KeptElsewhere), other.kept():
            pass
    assert not other.is_kept


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}'])
def test_what_is_damaged_is_said(tmp_path: Path, text: str) -> None:
    folder = ServiceFolder(tmp_path, "web")
    folder.want(wanted(tmp_path))
    for name, read in (("wanted.json", folder.wanted), ("standing.json", folder.standing)):
        (folder.path / name).write_text(text)
        with pytest.raises(Malformed, match=name.split(".")[0]):
            read()
    folder.stand(Standing("abc", (REPLICA,)))
    row = json.loads((folder.path / "standing.json").read_text())
    row["replicas"][0]["stage"] = "ELSEWHERE"
    (folder.path / "standing.json").write_text(json.dumps(row))
    with pytest.raises(Malformed, match="ELSEWHERE"):
        folder.standing()
