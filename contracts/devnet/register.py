"""Who is registered: stake accounts with their rewards and delegations, pools, DReps, governance
actions. A value that never changes.

The ledger's engine keeps the same for its own rules, but neither all of it (it does not know to
which DRep an account delegates) nor past a withdrawal (see ``Engine.apply``). So this is what a
ledger state is made from after a restart or a rollback, and what ``rules`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from contracts.devnet.parameters import PARAMETERS
from contracts.devnet.transaction import Certificate, Credential, OutRef, Tx

KEY_DREP, SCRIPT_DREP = 0, 1
DREP_DEPOSIT = int(PARAMETERS["drep_deposit"])


@dataclass(frozen=True, slots=True)
class Account:
    """rewards: lovelace to withdraw. pool: its id. drep: (0 key, 1 script, 2 abstain, 3 no
    confidence; hash or b"").
    """

    rewards: int = 0
    pool: bytes | None = None
    drep: tuple[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """pools and dreps: the certificate that registered each, as sent. actions: governance actions
    by the output they came with.
    """

    accounts: Mapping[Credential, Account] = field(default_factory=dict[Credential, Account])
    pools: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    dreps: Mapping[Credential, Certificate] = field(default_factory=dict[Credential, Certificate])
    actions: frozenset[OutRef] = frozenset()

    def after(self, tx: Tx) -> Register:
        """What a transaction that was accepted leaves: withdrawals first, then its certificates one
        by one, then its proposals.
        """
        if not tx.valid or not (tx.withdrawals or tx.certificates or tx.proposals):
            return self
        found = self.drained(tx)
        for one in tx.certificates:
            found = found.certified(one)
        proposed = {OutRef(tx.id, index) for index in range(len(tx.proposals))}
        return replace(found, actions=found.actions | proposed)

    def drained(self, tx: Tx) -> Register:
        """After the withdrawals alone."""
        accounts = dict(self.accounts)
        for address, amount in tx.withdrawals:
            key = credential(address)
            held = accounts.get(key, Account())
            accounts[key] = replace(held, rewards=held.rewards - amount)
        return replace(self, accounts=accounts)

    def rewarded(self, account: Credential, lovelace: int) -> Register:
        held = self.accounts.get(account)
        if held is None:
            return self
        more = replace(held, rewards=held.rewards + lovelace)
        return replace(self, accounts={**self.accounts, account: more})

    def certified(self, one: Certificate) -> Register:
        """After one certificate."""
        if one.credential is not None:
            return replace(self, accounts=_accounts(self.accounts, one, one.credential))
        if one.kind == 3 and one.pool is not None:
            return replace(self, pools={**self.pools, one.pool: one.raw})
        if one.kind == 16 and one.subject is not None:
            return replace(self, dreps={**self.dreps, one.subject: one})
        if one.kind == 17 and one.subject is not None:
            return self._without_drep(one.subject)
        return self

    def _without_drep(self, gone: Credential) -> Register:
        dreps = {key: one for key, one in self.dreps.items() if key != gone}
        voice = (SCRIPT_DREP if gone[0] else KEY_DREP, gone[1])
        accounts = {
            key: replace(one, drep=None) if one.drep == voice else one
            for key, one in self.accounts.items()
        }
        return replace(self, dreps=dreps, accounts=accounts)


def _accounts(
    before: Mapping[Credential, Account], one: Certificate, key: Credential
) -> dict[Credential, Account]:
    after = dict(before)
    if one.kind in (1, 8):
        after.pop(key, None)
        return after
    held = Account() if one.kind in (0, 7, 11, 12, 13) else after.get(key, Account())
    pool = one.pool if one.pool is not None else held.pool
    drep = one.drep if one.drep is not None else held.drep
    after[key] = replace(held, pool=pool, drep=drep)
    return after


def credential(account: bytes) -> Credential:
    """Of a reward account's 29 bytes."""
    return bool(account[0] & 0x10), account[1:]


def replayed(
    txs: Iterable[tuple[int, Tx]], rewards: Iterable[tuple[int, Credential, int]]
) -> Register:
    """The register after transactions and rewards, each with the height of its block; a block's
    rewards come after its transactions.
    """
    steps: list[tuple[int, int, Tx | tuple[Credential, int]]] = [(h, 0, tx) for h, tx in txs]
    steps += [(height, 1, (key, amount)) for height, key, amount in rewards]
    found = Register()
    for _, _, step in sorted(steps, key=lambda one: one[:2]):
        found = found.after(step) if isinstance(step, Tx) else found.rewarded(*step)
    return found
