"""The kinds of resources that can be rented: how each is named, read, proved and priced.

Terms, receipts and meters carry a kind's name; whatever depends on the kind asks its entry here, so
another kind is a name in :data:`Resource`, an entry in :data:`KINDS`, and one in
``web/assets/money/kinds.js``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from marketplace.domain.errors import Malformed
from marketplace.domain.metering.reading import Cause, Evidence
from marketplace.domain.units import MICRO, WHOLE, four_digits, hourly, show_ada

Resource = Literal["gpu", "core", "disk"]
"""A kind's name, as it is signed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of resource.

    *word*, *words*: one unit and several of it, for people; a rate is per unit and second.
    *devices*: units are devices times their share, each metered by itself; else they are one amount
    of the host, metered as one. *counter*: what only grows while it is delivered; it proves that no
    poll was missed. *fell*: why time is not billed over which that counter went backwards. *cap*:
    the field of a job's ``Price`` that limits the rate. *rates*: the field of an ``Offer`` that
    asks for it, by model for devices.
    """

    name: Resource
    word: str
    words: str
    devices: bool
    counter: Callable[[Evidence], int | None]
    fell: Cause
    cap: str
    rates: str


def _energy(evidence: Evidence) -> int | None:
    return evidence.energy_mj


def _processor_time(evidence: Evidence) -> int | None:
    return evidence.cpu_ns


def _written(evidence: Evidence) -> int | None:
    return evidence.written_kib


GPU: Final = Kind(
    name="gpu", word="GPU", words="GPUs", devices=True, counter=_energy, fell=Cause.ENERGY_RESET,
    cap="max_gpu_rate", rates="gpu_rates",
)  # fmt: skip
CORE: Final = Kind(
    name="core", word="core", words="cores", devices=False, counter=_processor_time,
    fell=Cause.UNPROVEN, cap="max_core_rate", rates="core_rate",
)  # fmt: skip
DISK: Final = Kind(
    name="disk", word="GB", words="GB", devices=False, counter=_written, fell=Cause.UNPROVEN,
    cap="max_disk_rate", rates="disk_rate",
)  # fmt: skip
"""Of 1024 MiB, as everywhere here."""
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in (GPU, CORE, DISK)}


def want_resource(value: object) -> Resource:
    """*value* if it names a kind; Malformed."""
    kind = KINDS.get(value) if isinstance(value, str) else None
    if kind is None:
        raise Malformed(f"resource is {' or '.join(KINDS)}")
    return kind.name


def show_rate(rate_micro: int, resource: str) -> str:
    """``1900 lovelace per GPU-second`` of micro-lovelace; exact, without trailing zeros."""
    whole, part = divmod(rate_micro, MICRO)
    text = f"{whole}.{part:06d}".rstrip("0").rstrip(".")
    return f"{text} lovelace per {KINDS[resource].word}-second"


def show_price(rate_micro: int, resource: str) -> str:
    """``4.68 ADA per GPU-hour (1300 lovelace per GPU-second)``: per hour with four digits, as
    people compare it, and the exact rate of the terms.
    """
    text = show_ada(four_digits(hourly(rate_micro))).removesuffix(" ADA").rstrip("0").rstrip(".")
    return f"{text} ADA per {KINDS[resource].word}-hour ({show_rate(rate_micro, resource)})"


def show_units(units_milli: int, resource: str) -> str:
    """``2 GPUs``, ``0.5 GPU``, ``1.5 cores``: what a rate is multiplied by."""
    whole, part = divmod(units_milli, WHOLE)
    amount = f"{whole}.{part:03d}".rstrip("0").rstrip(".")
    kind = KINDS[resource]
    return f"{amount} {kind.word if units_milli <= WHOLE else kind.words}"
