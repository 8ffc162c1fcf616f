"""The provider's page says nothing that the adapter would refuse."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from adapter.config import ConfigRefused, parse

PAGE = Path(__file__).parents[3] / "docs" / "provider.md"


def test_the_configuration_that_is_shown_is_accepted() -> None:
    shown = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    config = parse(tomllib.loads(shown[1]))
    assert config.slices == {"GPU-…": ("3g.40gb", "2g.20gb")}
    assert config.limits.resume_window_ms == 600_000


def test_a_plan_that_is_no_list_of_profiles_is_refused() -> None:
    for plan in ({"GPU-1": "1g.10gb"}, {"GPU-1": [1]}, []):
        with pytest.raises(ConfigRefused):
            parse({"slices": plan})
