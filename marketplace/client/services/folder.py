"""What is kept of a service on disk: what is wanted, as commands write it, and how far it is, as
its keeper does.

``HOME/services/NAME/`` has ``wanted.json``, ``standing.json``, the files that the job takes along
by their hash, and a lock that whoever keeps the service holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from marketplace import disk
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.services.core import Replica
from marketplace.client.services.demand import MOST, STRETCHES_MS, Demand
from marketplace.client.services.stage import Stage
from marketplace.domain.canonical import (
    want_fields,
    want_flag,
    want_int,
    want_items,
    want_map,
    want_text,
)
from marketplace.domain.errors import Malformed, NotFound, Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.service import Health, Scale, ServiceSpec

FOLDER: Final = "services"
_WANTED: Final = "wanted.json"
_STANDING: Final = "standing.json"
_DEMAND: Final = "demand.json"
_SCALE: Final = (set(asdict(Scale())) - {"predict"}, {"predict"})


class KeptElsewhere(Refusal):
    """Another process of this home keeps the service."""

    code = "SERVICE_KEPT"
    remedy = "it goes on there; `tally service up FILE` hands it what is new"


class NoSuchService(NotFound):
    """No service of that name is kept in this home."""

    code = "NO_SUCH_SERVICE"
    remedy = "`tally service list` shows what there is; `tally service up FILE` makes one"


@dataclass(frozen=True)
class Wanted:
    """At which *market*, what each replica runs, and the service; *up*: False once it is to end."""

    market: str
    job: LoadedJob
    service: ServiceSpec
    up: bool = True

    @property
    def revision(self) -> str:
        """Of what replicas run."""
        return self.job.spec.hash.hex()[:12]


@dataclass(frozen=True)
class Standing:
    """How far it is: its replicas, those that were posted and of which nothing more is known; the
    last thing that went wrong; *at_ms*: when this was so; *starts_ms*: how long the last replicas
    needed to start, the latest last; *forecast*: what is known of demand to come, in words.
    """

    revision: str = ""
    replicas: tuple[Replica, ...] = ()
    said: str = ""
    at_ms: int = 0
    starts_ms: tuple[int, ...] = ()
    forecast: str = ""


class ServiceFolder:
    """Of one service."""

    def __init__(self, home: Path, name: str) -> None:
        self.name, self.path = name, home / FOLDER / name

    @staticmethod
    def all(home: Path) -> list[ServiceFolder]:
        """Those that are kept in *home*, by name."""
        found = sorted((home / FOLDER).glob(f"*/{_WANTED}"))
        return [ServiceFolder(home, one.parent.name) for one in found]

    @contextmanager
    def kept(self) -> Generator[None]:
        """As its keeper; :class:`KeptElsewhere`."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        guard = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise KeptElsewhere(f"service {self.name} is kept by another command") from None
        finally:
            os.close(guard)

    @property
    def is_kept(self) -> bool:
        """Whether some process keeps it now."""
        try:
            with self.kept():
                return False
        except KeptElsewhere:
            return True

    @property
    def is_there(self) -> bool:
        """Whether anything is wanted of it."""
        return (self.path / _WANTED).exists()

    def want(self, wanted: Wanted) -> None:
        """Written down, with the files that its job takes along."""
        disk.private_folder(self.path.parent)
        disk.private_folder(self.path)
        blobs: dict[str, Path] = {}
        for sha256, source in wanted.job.blobs.items():
            blobs[sha256] = self.path / sha256
            if not blobs[sha256].exists():
                try:
                    shutil.copyfile(source, blobs[sha256])
                except OSError as error:
                    raise disk.fault(error, "a service's file cannot be kept", source) from error
        row = {
            "version": 1,
            "market": wanted.market,
            "up": wanted.up,
            "spec": wanted.job.spec.to_wire(),
            "blobs": sorted(blobs),
            "service": asdict(wanted.service),
        }
        disk.write_whole(self.path / _WANTED, json.dumps(row, indent=1).encode())

    def wanted(self) -> Wanted:
        """:class:`NoSuchService`, Malformed."""
        row = self._read(_WANTED)
        if row is None:
            raise NoSuchService(f"no service {self.name} is kept here")
        w = want_fields(row, _WANTED, {"version", "market", "up", "spec", "blobs", "service"})
        names = [want_text(one, "blob", 64) for one in want_items(w["blobs"], "blobs", 256)]
        loaded = LoadedJob(JobSpec.from_wire(w["spec"]), {n: self.path / n for n in names})
        up = want_flag(w["up"], "up")
        return Wanted(want_text(w["market"], "market", 500), loaded, _service(w["service"]), up)

    def end(self) -> None:
        """It is wanted no more."""
        self.want(replace(self.wanted(), up=False))

    def stand(self, standing: Standing) -> None:
        """Written down."""
        rows = [{**asdict(one), "stage": one.stage.name} for one in standing.replicas]
        row = {**asdict(standing), "version": 1, "replicas": rows}
        disk.write_whole(self.path / _STANDING, json.dumps(row, indent=1).encode())

    def standing(self) -> Standing:
        """How far it was when that was written; Malformed."""
        row = self._read(_STANDING)
        if row is None:
            return Standing()
        known, later = (
            {"version", "revision", "replicas", "said", "at_ms"},
            {"starts_ms", "forecast"},
        )
        w = want_fields(row, _STANDING, known, later)
        return Standing(
            want_text(w["revision"], "revision", 64),
            tuple(map(_replica, want_items(w["replicas"], "replicas", 1000))),
            want_text(w["said"], "said", 2000),
            want_int(w["at_ms"], "at_ms"),
            _ints(w.get("starts_ms", []), "starts_ms", 100),
            want_text(w.get("forecast", ""), "forecast", 2000),
        )

    def remember(self, demand: Demand) -> None:
        """What was asked of it, written down."""
        row = {
            "version": 1, "stretch_ms": demand.stretch_ms, "until_ms": demand.until_ms,
            "peaks": demand.peaks,
        }  # fmt: skip
        disk.write_whole(self.path / _DEMAND, json.dumps(row).encode())

    def demand(self) -> Demand | None:
        """As it was remembered; None: nothing was. Malformed."""
        row = self._read(_DEMAND)
        if row is None:
            return None
        w = want_fields(row, _DEMAND, {"version", "stretch_ms", "until_ms", "peaks"})
        stretch_ms = want_int(w["stretch_ms"], "stretch_ms")
        if stretch_ms not in STRETCHES_MS:
            raise Malformed(f"{stretch_ms} ms is no stretch of demand")
        peaks = _ints(w["peaks"], "peaks", MOST)
        return Demand(stretch_ms, want_int(w["until_ms"], "until_ms"), list(peaks))

    def forget(self) -> None:
        """Nothing is kept of it any more."""
        for name in (_WANTED, _STANDING, _DEMAND):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, name: str) -> object:
        path = self.path / name
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.fault(error, "a service cannot be read", path) from error
        except ValueError as error:
            raise Malformed(f"{path} is damaged: {error}") from error


def _ints(value: object, name: str, most: int) -> tuple[int, ...]:
    return tuple(want_int(one, name) for one in want_items(value, name, most))


def _replica(value: object) -> Replica:
    names, texts = set(Replica.__dataclass_fields__), ("job", "revision", "provider", "why")
    w = want_fields(value, "replica", names)
    rest: dict[str, Any] = {n: want_int(w[n], n) for n in names - {"stage", *texts}}
    rest |= {n: want_text(w[n], n, 200) for n in texts}
    stage = want_text(w["stage"], "stage", 20)
    if stage not in Stage.__members__:
        raise Malformed(f"{stage!r} is no stage of a replica")
    return Replica(stage=Stage[stage], **rest)


def _service(value: object) -> ServiceSpec:
    w = dict(want_map(value, "service"))
    made: dict[str, Any] = {
        "health": Health(**want_fields(w.pop("health", {}), "health", set(asdict(Health())))),
        "scale": Scale(**want_fields(w.pop("scale", {}), "scale", *_SCALE)),
    }
    known = set(ServiceSpec.__dataclass_fields__) - set(made)
    return ServiceSpec(**want_fields(w, "service", known), **made)
