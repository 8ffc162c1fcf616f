"""What the chain can say no to, and how it can fail.

* Refusal
    x ChannelUnknown     no such channel on this chain
    x TxRefused          the ledger will not take this transaction
    x ScriptRefused      a script said no when the transaction was evaluated
    x FundsShort         not enough money of one's own for this transaction
    x NotDeployed        the contract's reference scripts are not on this chain
    x ChainUrlWrong      the chain's door will never answer like this: another URL or project id
* Fault
    x ChainFault         the chain's door did not answer, or answered nonsense
"""

from __future__ import annotations

from marketplace.domain.errors import Fault, Refusal


class ChainFault(Fault):
    """The chain's door did not answer in time, or answered what it must not."""

    code = "CHAIN_FAULT"
    remedy = "check the chain URL and project id; the call is safe to repeat"


class ChainUrlWrong(Refusal):
    """What is at the URL is no chain's door, or it does not take this project id."""

    code = "CHAIN_URL_WRONG"
    remedy = (
        "name a Blockfrost-compatible address (https://cardano-preprod.blockfrost.io/api/v0) and a "
        "project id of the same network: --chain-url and --project-id"
    )


class ChannelUnknown(Refusal):
    """The open transaction is not on this chain; or, *in_block*, it is, and its output is no
    channel of this session key.
    """

    code = "CHANNEL_UNKNOWN"
    remedy = "check the chain's URL and the open transaction; a fresh one takes a block to appear"

    def __init__(self, message: str, *, in_block: bool = False, **fields: object) -> None:
        super().__init__(message, **fields)
        self.in_block = in_block


class TxRefused(Refusal):
    """The ledger will not take the transaction; *conflict* is true when an input is already
    spent.
    """

    code = "TX_REFUSED"
    remedy = "read the chain again and build anew"

    def __init__(self, message: str, *, conflict: bool = False, **fields: object) -> None:
        super().__init__(message, conflict=conflict, **fields)
        self.conflict = conflict


class ScriptRefused(Refusal):
    """A script said no; *redeemer* names which (``spend:0``, ``withdrawal:0``) where it is
    known.
    """

    code = "SCRIPT_REFUSED"
    remedy = "a step of this transaction breaks a rule of contracts/README.md"

    def __init__(self, message: str, *, redeemer: str = "", **fields: object) -> None:
        super().__init__(message, redeemer=redeemer, **fields)
        self.redeemer = redeemer


class FundsShort(Refusal):
    """The paying address holds less than the transaction needs; *missing* is lovelace (or
    tokens).
    """

    code = "FUNDS_SHORT"
    remedy = "send ADA to the address that pays for this transaction"

    def __init__(self, message: str, *, missing: int, **fields: object) -> None:
        super().__init__(message, missing=missing, **fields)
        self.missing = missing


class NotDeployed(Refusal):
    """The contract's reference scripts or its stake registration are not on this chain yet."""

    code = "NOT_DEPLOYED"
    remedy = "run `tally market deploy` once on this chain"
