"""A price cap is compared with the price of the line that is shown."""

from __future__ import annotations

from marketplace.domain.supply.lines import CORES, fitting, lines
from tests.unit.support.adapter import offer

GPU_RATE, CORE_RATE = 250_000_000, 4_000_000
BOTH = offer(gpu_rates={"NVIDIA H100": GPU_RATE}, core_rate=CORE_RATE)


def test_an_offer_has_a_line_for_its_devices_and_one_for_its_cores() -> None:
    assert [(x.model, x.rate_micro, len(x.devices)) for x in lines(BOTH)] == [
        ("NVIDIA H100", GPU_RATE, 1), (CORES, CORE_RATE, 0),
    ]  # fmt: skip
    assert [x.model for x in lines(offer(core_rate=0))] == ["NVIDIA H100"]


def test_a_cap_that_only_the_cores_meet_shows_no_device() -> None:
    """W1: a cap of 10 lovelace/s listed GPUs of 250, since their host's cores cost 4."""
    assert fitting(BOTH, rate_micro=10_000_000) == []
    assert [x.model for x in fitting(BOTH, rate_micro=GPU_RATE)] == ["NVIDIA H100"]
    assert [x.model for x in fitting(BOTH, CORES, rate_micro=10_000_000)] == [CORES]
    assert fitting(BOTH, CORES, rate_micro=CORE_RATE - 1) == []
    assert fitting(BOTH, "h100", vram_mib=90_000) == []


def test_an_offer_of_cores_alone_is_compared_by_their_price() -> None:
    plain = offer(gpu_rates={}, core_rate=CORE_RATE)
    assert [x.model for x in fitting(plain, rate_micro=CORE_RATE)] == [CORES]
    assert fitting(plain, rate_micro=CORE_RATE - 1) == []
    assert fitting(plain, "H100") == []
