"""A meter as a row of the journal, and back: billing goes on where a restart cut it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from marketplace.domain.canonical import want_int
from marketplace.domain.errors import Malformed
from marketplace.domain.metering.kinds import want_resource
from marketplace.domain.metering.merkle import MerkleLog
from marketplace.domain.metering.meter import Meter, Summary
from marketplace.domain.metering.reading import Cause, Evidence, Phase, Reading


class MeterMalformed(Malformed):
    """Bytes that should hold a meter or a reading do not."""

    code = "METER_MALFORMED"
    remedy = "the journal's row is damaged or of another version; restore the journal"


def meter_to_wire(meter: Meter) -> dict[str, object]:
    """A plain map for the journal: everything that :func:`integrate` needs after a restart."""
    s, last = meter.summary, meter.last
    return {
        "resource": meter.resource,
        "device": meter.device,
        "weight": meter.weight,
        "billed_ns": meter.billed_ns,
        "lost_ns": [[cause.value, ns] for cause, ns in meter.lost_ns],
        "good_ns": meter.good_ns,
        "latched": None if meter.latched is None else meter.latched.value,
        "summary": [
            s.energy_mj,
            s.cpu_ns,
            s.util_ns_permille,
            s.memory_max_mib,
            s.throttled_ns,
            list(s.xids),
            s.strangers,
            s.readings,
        ],
        "log": [meter.log.size, list(meter.log.peaks)],
        "last": None if last is None else _reading_row(last),
    }


def _reading_row(r: Reading) -> list[object]:
    head: list[object] = [r.at_ns, r.mono_ns, r.wall_ms, r.boot_id, r.device, r.workload]
    e = r.evidence
    counters = [e.energy_mj, e.cpu_ns, *([] if e.written_kib is None else [e.written_kib])]
    fault = None if r.fault is None else r.fault.value
    return [*head, r.started_ms, r.phase.value, list(r.xids), fault, counters]


def meter_from_wire(wire: Mapping[str, object]) -> Meter:
    """The inverse of :func:`meter_to_wire`; raises :class:`MeterMalformed`."""
    try:
        size, peaks = cast("tuple[int, list[bytes]]", wire["log"])
        lost = cast("list[tuple[str, int]]", wire["lost_ns"])
        latched = cast("str | None", wire["latched"])
        row_of = cast("list[object]", wire["summary"])
        xids = [want_int(xid, "xid") for xid in cast("list[object]", row_of[5])]
        s = [want_int(value, "summary") for value in (*row_of[:5], *row_of[6:])]
        row = cast("list[object] | None", wire["last"])
        return Meter(
            resource=want_resource(wire["resource"]),
            device=cast("str", wire["device"]),
            weight=cast("int", wire["weight"]),
            billed_ns=cast("int", wire["billed_ns"]),
            lost_ns=tuple((Cause(cause), ns) for cause, ns in lost),
            last=None if row is None else _reading_from(row),
            good_ns=cast("int | None", wire["good_ns"]),
            latched=None if latched is None else Cause(latched),
            summary=Summary(s[0], s[1], s[2], s[3], s[4], tuple(xids), s[5], s[6]),
            log=MerkleLog(size, tuple(peaks)),
        )
    except (KeyError, ValueError, TypeError, IndexError, Malformed) as error:
        raise MeterMalformed(f"not a meter: {error}") from error


def _reading_from(row: list[object]) -> Reading:
    at, mono, wall, boot, device, workload, started, phase, xids, fault, counters = row
    energy, cpu, *written = cast("list[int | None]", counters)
    return Reading(
        at_ns=cast("int", at),
        mono_ns=cast("int", mono),
        wall_ms=cast("int", wall),
        boot_id=cast("str", boot),
        device=cast("str", device),
        workload=cast("str", workload),
        started_ms=cast("int", started),
        phase=Phase(cast("str", phase)),
        xids=tuple(cast("list[int]", xids)),
        fault=None if fault is None else Cause(cast("str", fault)),
        evidence=Evidence(
            energy_mj=energy, cpu_ns=cpu, written_kib=written[0] if written else None
        ),
    )
