"""What the index needs to know of a transaction, as plain values; ``decoding.read`` makes them from
its bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

PURPOSES = ("spend", "mint", "cert", "reward", "vote", "propose")
# Registration and deregistration of stake credentials, Shelley's and Conway's.
PLAIN_CERTIFICATES = (0, 1, 7, 8)
SCRIPT_TYPES = ("timelock", "plutusV1", "plutusV2", "plutusV3")


class Malformed(ValueError):
    """These bytes are not a transaction."""


class OutRef(NamedTuple):
    """One output: transaction id (hex) and index."""

    tx: str
    ix: int


@dataclass(frozen=True, slots=True)
class Script:
    """kind: index into SCRIPT_TYPES; body: what follows the kind's byte under the hash
    (blake2b-224).
    """

    kind: int
    body: bytes

    @property
    def hash(self) -> str:
        return blake2b(bytes([self.kind]) + self.body, 28)


@dataclass(frozen=True, slots=True)
class Output:
    """assets: quantity by unit (policy and name in hex). raw: the output as sent."""

    raw: bytes
    address: bytes
    lovelace: int
    assets: dict[str, int]
    datum_hash: str | None
    inline_datum: bytes | None
    script: Script | None


@dataclass(frozen=True, slots=True)
class Redeemer:
    """tag: index into PURPOSES."""

    tag: int
    index: int
    data: bytes
    memory: int
    steps: int


Credential = tuple[bool, bytes]


@dataclass(frozen=True, slots=True)
class Certificate:
    """kind: the CDDL's number. Credentials are (is a script, hash).

    credential: the stake credential it is about; subject: the DRep's or committee's that others are
    about; both None for a pool's. drep: to whom votes are delegated: (0 key, 1 script, 2 abstain, 3
    no confidence; hash or b""). deposit: as it names one, lovelace.
    """

    kind: int
    credential: Credential | None
    pool: bytes | None
    subject: Credential | None = None
    drep: tuple[int, bytes] | None = None
    deposit: int | None = None
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Tx:
    """A transaction's facts. Slots: valid when start <= slot < end.

    valid: the flag that the sender sets; False says that a script fails, and then the ledger takes
    the collateral and nothing else.
    """

    id: str
    raw: bytes
    inputs: list[OutRef]
    references: list[OutRef]
    collateral: list[OutRef]
    outputs: list[Output]
    fee: int
    start: int | None = None
    end: int | None = None
    mint: dict[str, int] = field(default_factory=dict[str, int])
    withdrawals: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    certificates: list[Certificate] = field(default_factory=list[Certificate])
    required_signers: list[str] = field(default_factory=list[str])
    redeemers: list[Redeemer] = field(default_factory=list[Redeemer])
    scripts: list[Script] = field(default_factory=list[Script])
    datums: list[bytes] = field(default_factory=list[bytes])
    metadata: bytes | None = None
    donation: int = 0
    valid: bool = True
    collateral_return: Output | None = None
    voters: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    votes_on: list[OutRef] = field(default_factory=list[OutRef])
    proposals: list[Proposal] = field(default_factory=list["Proposal"])

    @property
    def datum_hashes(self) -> set[str]:
        """Of the datums that the transaction brings along."""
        return {blake2b(one) for one in self.datums}

    @property
    def spent(self) -> list[OutRef]:
        """What the ledger takes: the inputs, or the collateral of a transaction whose script
        fails.
        """
        return self.inputs if self.valid else self.collateral

    @property
    def effect(self) -> Tx:
        """This transaction as explorers keep it: of one whose script fails nothing that was meant,
        only the collateral and its return.
        """
        if self.valid:
            return self
        nothing: dict[str, Any] = {
            "inputs": [],
            "outputs": [],
            "mint": {},
            "withdrawals": [],
            "certificates": [],
        }
        more: dict[str, Any] = {
            "redeemers": [],
            "scripts": [],
            "datums": [],
            "metadata": None,
            "donation": 0,
        }
        return replace(self, **nothing, **more, voters=[], votes_on=[], proposals=[])

    @property
    def made(self) -> list[tuple[int, Output]]:
        """What the ledger makes, with its indices: a collateral return comes after the last
        declared output.
        """
        if self.valid:
            return list(enumerate(self.outputs))
        back = self.collateral_return
        return [] if back is None else [(len(self.outputs), back)]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A governance proposal. account: the reward account that gets the deposit back; guard: the
    script that it names, if any.
    """

    deposit: int
    account: bytes
    guard: bytes | None


def blake2b(data: bytes, size: int = 32) -> str:
    """Hex of the blake2b hash of this size in bytes."""
    return hashlib.blake2b(data, digest_size=size).hexdigest()


SCRIPT_VOTERS = (1, 3)
