"""The secrets that a job names: read from the environment, sealed to the provider that runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from marketplace.domain.errors import Refusal
from marketplace.domain.keys import seal_to
from marketplace.domain.work.pool_keys import refuse_in


class SecretMissing(Refusal):
    """A secret that the job names is not in this process's environment."""

    code = "SECRET_MISSING"
    remedy = "export it before the job is run; its value is sealed to the provider here"


def secrets_here(names: Sequence[str]) -> dict[str, str]:
    """The values of *names* from the environment; :class:`SecretMissing`,
    :class:`PoolKeyRefused`: the provider opens what is sealed to it.
    """
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise SecretMissing(f"not set in the environment: {', '.join(missing)}")
    for name in names:
        refuse_in(os.environ[name], f"the secret {name}")
    return {name: os.environ[name] for name in names}


def sealed(values: Mapping[str, str], adapter_vk: bytes) -> dict[str, str]:
    """Each of *values* as hex that only the adapter of that key can open."""
    return {name: seal_to(adapter_vk, value.encode()).hex() for name, value in values.items()}
