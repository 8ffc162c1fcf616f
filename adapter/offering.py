"""What this host offers and where it is paid: the owner's configuration and keys as one offer."""

from __future__ import annotations

import ipaddress
from typing import Final

from adapter.config import Config, ConfigRefused
from adapter.core.workload import VOLUMES, isolations
from adapter.host.keys import Keys
from marketplace.chain.encoding import address as addresses
from marketplace.chain.node.blockfrost import MAINNET_MAGIC
from marketplace.domain.errors import Malformed
from marketplace.domain.supply.hardware import HostHardware
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer, offer_id

DISK_STEP_MIB: Final = 10_240


def payout_address(config: Config, keys: Keys, magic: int) -> str:
    """The owner's, checked against the network; on a devnet the fee key's own will do."""
    if not config.payout:
        if magic != DEVNET_MAGIC:
            raise ConfigRefused("payout: name the address at which you want to be paid")
        return fee_address(keys, magic)
    try:
        address = addresses.from_text(config.payout)
    except Malformed as error:
        raise ConfigRefused(f"payout: {error.message}") from error
    if addresses.is_mainnet(address) is not (magic == MAINNET_MAGIC):
        raise ConfigRefused(f"payout: {config.payout[:20]}… belongs to another network")
    return config.payout


def check_direct(config: Config, magic: int) -> None:
    """:class:`ConfigRefused` for a direct address that nobody outside of this network reaches."""
    if config.direct is None or magic == DEVNET_MAGIC:
        return
    try:
        address = ipaddress.ip_address(config.direct.address)
    except ValueError:
        if config.direct.address.rpartition(".")[2] not in ("localhost", "local", "internal", ""):
            return
    else:
        if address.is_global:
            return
    raise ConfigRefused(f"direct.address: nobody outside reaches {config.direct.address}")


def check_mesh(config: Config, magic: int) -> None:
    """:class:`ConfigRefused` for an endpoint that nobody outside of this network reaches."""
    if config.mesh is None or not config.mesh.endpoint or magic == DEVNET_MAGIC:
        return
    if not ipaddress.IPv4Address(config.mesh.endpoint).is_global:
        raise ConfigRefused(f"mesh.endpoint: nobody outside reaches {config.mesh.endpoint}")


def fee_address(keys: Keys, magic: int) -> str:
    """Where a little ADA must lie for the fees of Finish: the fee key's own address."""
    address = addresses.key_address(keys.fee.key_hash, None, magic == MAINNET_MAGIC)
    return addresses.to_text(address)


def make_offer(
    config: Config, keys: Keys, magic: int, payout: str, host: HostHardware, wall_ms: int,
    end_cost: int = 0, mesh: bool = False, store: bool = False,
) -> Offer:  # fmt: skip
    """The offer as of now.  Disk is told in steps, so that it does not change with every file.
    *end_cost*: lovelace that ending a channel costs; the minimum, unless the owner set another or
    is paid in a token. *mesh*: its runtimes can join a cluster's own network; *store*:
    they can show a store.
    """
    minimum = config.minimum
    if minimum is None:
        minimum = 0 if config.asset else end_cost
    steps = host.disk_mib // DISK_STEP_MIB * DISK_STEP_MIB
    shown = HostHardware(
        host.host, host.cpu, host.memory_mib, steps or host.disk_mib, host.gpus, host.region,
        host.up_kbit, host.down_kbit, host.runtimes,
    )  # fmt: skip
    return Offer(
        id=offer_id(keys.provider),
        provider=keys.provider,
        magic=magic,
        adapter_vkh=keys.end.key_hash,
        payout=addresses.payout_hash(addresses.from_text(payout)),
        payout_address=payout,
        host=shown,
        gpu_rates=config.prices.gpu_rates(host.gpus, wall_ms),
        core_rate=config.prices.core(wall_ms),
        asset=config.asset,
        tick_ms=config.tick_ms,
        grace_ms=config.grace_ms,
        pause_limit_ms=config.pause_limit_ms,
        close_period_ms=config.close_period_ms,
        fee_bps=config.fee_bps,
        isolation=isolations(host.runtimes),
        region=config.region,
        labels=config.labels,
        allow_root=config.allow_root,
        egress=config.egress,
        windows=tuple(w for w in config.windows if w.end_ms > wall_ms),
        keep_most_ms=config.limits.keep_channel_ms,
        minimum=minimum,
        allowance=0 if config.asset else config.treasury.allowance,
        relay_free_ms=config.limits.relay_free_ms,
        # One that was added while it runs waits for the next start, which tries one out.
        disk_rate=config.prices.disk_rate if VOLUMES in host.runtimes else 0,
        volume_keep_ms=config.limits.volume_keep_ms if VOLUMES in host.runtimes else 0,
        direct_ports=0 if config.direct is None else config.direct.count,
        cluster_free_ms=config.limits.cluster_free_ms,
        mesh=mesh and config.limits.cluster_free_ms > 0,
        store=store and config.limits.cluster_free_ms > 0,
    )
