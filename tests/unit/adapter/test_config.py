"""The owner's file: words to numbers, and no misspelt key goes unnoticed; prices by model and
hour.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from adapter.config import Config, ConfigRefused, load
from adapter.core.shelving import Shelving
from adapter.devices.prices import DAYS, Prices, Slot
from marketplace.domain.supply.hardware import Gpu
from marketplace.domain.supply.offer import Window

FILE = """
payout = "addr_test1xyz"
region = "EU"
tick = "2s"
close_period = "24h"
[prices]
"RTX 4090" = "220 lovelace"
core = "6.5 lovelace"
[[prices.schedule]]
hours = "22-7"
percent = 70
days = ["mon", "Tuesday"]
[reserve]
cores = 2
memory = "4GB"
[limits]
images = ["ghcr.io/acme/*"]
resume_window = "15m"
[images]
keep = "50GB"
keep_for = 0
ahead = 3
ahead_size = "8GB"
[treasury]
watch = "10s"
claim_above = "5 ADA"
batch_wait = "5m"
allowance = "0.2 ADA"
[[maintenance]]
start = "2027-01-10T02:00:00Z"
end = 2027-01-10T05:00:00Z
notice = "new power supply"
"""


def write(tmp_path: Path, text: str, name: str = "adapter.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_says_what_it_means(tmp_path: Path) -> None:
    config = load(write(tmp_path, FILE), environment={})
    assert (config.payout, config.region, config.tick_ms) == ("addr_test1xyz", "EU", 2000)
    assert config.prices.models == {"RTX 4090": 220_000_000}
    assert config.prices.core_rate == 6_500_000
    assert config.prices.schedule == (Slot(22, 7, 700, ("mon", "tue")),)
    assert (config.reserve.cores_milli, config.reserve.memory_mib) == (2000, 4096)
    assert config.limits.images == ("ghcr.io/acme/*",)
    assert config.limits.resume_window_ms == 900_000
    assert config.shelving == Shelving(51_200, 0, 3, 8_192)
    assert (config.treasury.watch_s, config.treasury.claim_above) == (10, 5_000_000)
    assert config.treasury.batch_wait_ms == 300_000
    assert config.treasury.allowance == 200_000
    start = 1_799_546_400_000
    assert config.windows == (Window(start, start + 3 * 3_600_000, "new power supply"),)


def test_yaml_says_the_same(tmp_path: Path) -> None:
    text = "payout: addr_test1xyz\nprices: {core: 6 lovelace}\nlimits: {stop_grace: 20s}\n"
    config = load(write(tmp_path, text, "adapter.yaml"), environment={})
    assert config.prices.core_rate == 6_000_000
    assert config.limits.stop_grace_ms == 20_000


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'market = "http://file"\nchain_url = "http://file"\n')
    env = {"TALLY_MARKET": "http://env", "TALLY_CHAIN_URL": "http://env", "TALLY_HOME": "/h"}
    config = load(path, {"market": "http://option", "payout": None}, env)
    assert (config.market, config.chain_url) == ("http://option", "http://env")
    assert config.folder == Path("/h/adapter")


def test_without_a_file_everything_has_a_default() -> None:
    assert load(environment={}) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('pay_out = "x"', "did you mean 'payout'"),
        ("[limits]\nresume_windw = '5m'", "did you mean 'resume_window'"),
        ("tick = 5", "tick"),
        ("tick = '100s'", "tick is 1 s to 60 s"),
        ("fee_bps = 200", "fee_bps"),
        ("fee_bps = true", "fee_bps"),
        ("runtime = 'podman'", "runtime"),
        ("[prices]\nH100 = '0 lovelace'", "above zero"),
        ("[prices]\nH100 = 'a lot'", "H100"),
        ("[[prices.schedule]]\nhours = 'night'", "hours"),
        ("[[prices.schedule]]\nhours = '1-5'\ndays = ['someday']", "days"),
        ("[[maintenance]]\nstart = 'soon'\nend = 'later'", "ISO 8601"),
        ("[[maintenance]]\nstart = '2027-01-02T00:00'\nend = '2027-01-01T00:00'", "before"),
        ("[treasury]\nbatch_wait = '1h'", "batch_wait"),
        ("[images]\nkeep = 'much'", "size"),
        ("[images]\nkep = '10GB'", "did you mean 'keep'"),
        ("[images]\nahead = 21", "images.ahead is 0"),
        ("[images]\nahead = true", "ahead"),
        ("[treasury]\nallowance = '4 ADA'", "allowance is 0 ADA"),
        ("reserve = 5", "reserve is not a table"),
        ("this is no toml", "adapter.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigRefused, match=says.replace("(", r"\(")):
        load(write(tmp_path, text), environment={})


def wall(day: str, hour: int) -> int:
    """A local time on a day of the week, in ms."""
    base = time.mktime((2027, 1, 4, hour, 0, 0, 0, 0, -1))  # 4 January 2027 was a Monday
    return int(base * 1000) + DAYS.index(day) * 86_400_000


@pytest.mark.parametrize(
    ("day", "hour", "factor"),
    [("mon", 21, 1000), ("mon", 22, 700), ("tue", 6, 700), ("tue", 7, 1000), ("tue", 23, 1000),
     ("mon", 3, 1000)],
)  # fmt: skip
def test_a_slot_over_midnight_belongs_to_the_day_on_which_it_begins(
    day: str, hour: int, factor: int
) -> None:
    prices = Prices(schedule=(Slot(22, 7, 700, ("mon",)),))
    assert prices.factor(wall(day, hour)) == factor


def test_a_price_is_the_owners_by_name_or_part_else_a_default() -> None:
    gpus = [Gpu("GPU-1", "NVIDIA RTX 4090", 24_000), Gpu("GPU-2", "NVIDIA H100 80GB", 80_000)]
    rates = Prices({"rtx 4090": 5_000_000}).gpu_rates(gpus, wall("mon", 12))
    assert rates == {"NVIDIA RTX 4090": 5_000_000, "NVIDIA H100 80GB": 1_300_000_000}
    exact = Prices({"4090": 1, "NVIDIA RTX 4090": 7}).gpu_rates(gpus[:1], wall("mon", 12))
    assert exact == {"NVIDIA RTX 4090": 7}


def test_the_schedule_moves_every_price() -> None:
    prices = Prices({"4090": 1000}, core_rate=10, schedule=(Slot(0, 24, 500),))
    gpus = [Gpu("GPU-1", "NVIDIA RTX 4090", 24_000)]
    assert prices.gpu_rates(gpus, 0) == {"NVIDIA RTX 4090": 500}
    assert prices.core(0) == 5


def test_folders_that_processes_see_are_absolute_and_hide_nothing_of_theirs(tmp_path: Path) -> None:
    config = load(write(tmp_path, 'readable = ["/opt/stacks", "/srv/data"]'), environment={})
    assert config.readable == ("/opt/stacks", "/srv/data")
    for wrong in ("/", "//", "stacks", "/opt/../etc", "/opt/", "/tmp", "/etc", "", "/workspace"):
        with pytest.raises(ConfigRefused, match="readable"):
            load(write(tmp_path, f'readable = ["{wrong}"]'), environment={})
    for wrong in ('"/opt"', "[1]"):
        with pytest.raises(ConfigRefused):
            load(write(tmp_path, f"readable = {wrong}"), environment={})
