"""One of each of what is signed, offered and asked for, with every field filled: for golden
files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from marketplace.domain.isolation import Isolation
from marketplace.domain.keys import Signer
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import Receipt, SignedReceipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.supply.hardware import Cpu, Gpu, HostHardware, Sharing
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.cluster import Stall
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.cluster_store import Store, StorePlace
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import MeshPeer, MeshPlace, SignedMesh, public
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.domain.work.parts import Range, Resources
from marketplace.domain.work.roles import Part, Role
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.workload import Egress, EgressMode
from tests.unit.support.golden import filled

ADAPTER: Final = Signer(b"\x01" * 32)
SESSION: Final = Signer(b"\x02" * 32)
_HASH: Final = bytes(range(28))

_NEED: Final = filled(Resources, {"Range": Range(2, 3), "share": 500})
JOB: Final = filled(
    JobSpec,
    {
        "Range": Range(2, 3),
        "egress": Egress(EgressMode.LIST, ("pypi.org:443",)),
        "share": 500, "auth": "public", "min_trust": 60, "retry_max": 3, "idle_gpu_below": 7,
        "priority": 9, "members": 4, "mode": 0o755, "port": 8080, "sha256": "ab" * 32,
        "kind": "service", "isolation": Isolation.VM, "network": "preprod", "lag_ms": 61_000,
        "Store": Store(url="s3://bucket/run", endpoint="https://s3.example"),
        "secrets": ("STORE_PASSWORD", "STORE_USER"), "least": 3, "stall": Stall.RUN, "assemble_ms": 59_000, "hold_ms": 121_000,
        "roles": (
            Role.of("head", 1, Part((Resources(Range(4000)),), ("a", "b"), {"A": "b"}, 2)),
            Role.of("worker", 3, Part((_NEED,), ("c", "d"), {"A": "c"}, 1)),
        ),
        "volumes": (Mount("lease_1", "/data"), Mount("lease_2", "/cache", True)),
    },
    version=2,
)  # fmt: skip
MEMBER: Final = JOB.members()[3]
"""What goes over a wire: with roles nobody but who posts has all of it."""
JOB_V1: Final = replace(JOB, version=1)
GPU: Final = filled(Gpu, {"share": 500, "sharing": Sharing.MIG})
OFFER: Final = filled(
    Offer,
    {
        "HostHardware": filled(HostHardware, {"gpus": (GPU,), "Cpu": filled(Cpu)}),
        "provider": ADAPTER.verify_key.hex(), "magic": 42, "fee_bps": 33, "trust": 44,
        "isolation": (Isolation.PROCESS, Isolation.VM), "adapter_vkh": _HASH, "payout": _HASH[::-1],
    },
)  # fmt: skip
TERMS: Final = filled(
    Terms,
    {
        "provider": ADAPTER.verify_key.hex(), "adapter_vk": ADAPTER.verify_key,
        "adapter_vkh": _HASH, "payout": _HASH[::-1], "consumer_vkh": b"\x0c" * 28,
        "session_vk": SESSION.verify_key, "fee_bps": 33, "work": JOB_V1.hash, "asset": "ab" * 30,
        "close_period_ms": 86_400_001, "magic": 42, "lease": "lease_1",
    },
)  # fmt: skip
RECEIPT: Final = filled(Receipt, {"session_vk": SESSION.verify_key, "lease": "lease_1", "seq": 7})
SIGNED_TERMS: Final = SignedTerms(
    TERMS.encode(), ADAPTER.sign(TERMS.encode()), SESSION.sign(TERMS.encode())
)
SIGNED_RECEIPT: Final = SignedReceipt.sign(RECEIPT, ADAPTER)
VOUCHER: Final = Voucher.sign(SESSION, 123_456_789)
END: Final = End.sign(SESSION, 123_456_789)
KEEP: Final = Keep.sign(SESSION, 600_001)
_PEER: Final = MeshPeer(3, b"\x0d" * 32, public("203.0.113.9", 51_820))
ORDER: Final = SignedOrder.sign(SESSION, ClusterOrder("lease_1", 7, Verb.HOLD, (_PEER,)))
PLACE: Final = SignedMesh.sign(
    ADAPTER, MeshPlace("lease_1", b"\x0e" * 32, public("203.0.113.8", 51_821))
)
GIVEN: Final[dict[str, Any]] = {
    "JobSpec": MEMBER, "Offer": OFFER, "Terms": TERMS, "Receipt": RECEIPT,
    "SignedTerms": SIGNED_TERMS, "SignedReceipt": SIGNED_RECEIPT, "Voucher": VOUCHER, "End": END,
    "Keep": KEEP, "SignedOrder": ORDER, "SignedMesh": PLACE,
    "StorePass": StorePlace("https://stores.example", b"\x0f" * 32).give("one", "run", "lease_1"),
    "RelayPass": RelayPlace("203.0.113.5", 42_000, 64, b"\x0f" * 32).give("gang_1", 3, 5, 7),
    "session_vk": SESSION.verify_key,
}  # fmt: skip
