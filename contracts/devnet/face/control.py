"""Our own controls under /devnet: faucet, time, blocks, rollbacks, indexer lag, rewards. No public
chain has these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from contracts.devnet.face.common import Chain
from contracts.devnet.index.store import Block
from contracts.devnet.pace import NAMED

router = APIRouter(prefix="/devnet")


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FaucetAsked(_Asked):
    address: str
    lovelace: int


class TimeAsked(_Asked):
    advance_ms: int


class BlocksAsked(_Asked):
    count: int = 1


class RollbackAsked(_Asked):
    blocks: int
    drop: bool = False


class LagAsked(_Asked):
    blocks: int


class PaceAsked(_Asked):
    like: Literal["devnet", "preprod"]


class RewardAsked(_Asked):
    stake_address: str
    lovelace: Annotated[int, Field(gt=0)]


def _block(block: Block) -> dict[str, Any]:
    return {"height": block.height, "hash": block.hash, "slot": block.slot}


@router.get("/status")
def status(chain: Chain) -> dict[str, Any]:
    return chain.status()


@router.get("/audit")
def audit(chain: Chain) -> dict[str, Any]:
    """Reads every unspent output twice: from the ledger and from what these routes answer by."""
    return chain.audit()


@router.post("/faucet")
def faucet(chain: Chain, asked: FaucetAsked) -> dict[str, Any]:
    """Pays by an ordinary transaction: it waits for a block like any other."""
    paid = chain.faucet(asked.address, asked.lovelace)
    return {"tx_hash": paid.tx, "output_index": paid.ix, "lovelace": asked.lovelace}


@router.post("/time")
def advance(chain: Chain, asked: TimeAsked) -> dict[str, Any]:
    return _block(chain.advance(asked.advance_ms))


@router.post("/blocks")
def blocks(chain: Chain, asked: BlocksAsked) -> dict[str, Any]:
    return _block(chain.mint(asked.count))


@router.post("/rollback")
def rollback(chain: Chain, asked: RollbackAsked) -> dict[str, Any]:
    """Returns the ids of the transactions in the blocks taken back."""
    taken = chain.rollback(asked.blocks, asked.drop)
    return {"transactions": taken, "dropped": asked.drop}


@router.post("/lag")
def lag(chain: Chain, asked: LagAsked) -> dict[str, int]:
    chain.set_lag(asked.blocks)
    return {"blocks": asked.blocks}


@router.post("/pace")
def pace(chain: Chain, asked: PaceAsked) -> dict[str, Any]:
    chain.set_pace(NAMED.get(asked.like))
    return {"like": chain.pace.name, "block_ms": chain.block_ms}


@router.post("/reward")
def reward(chain: Chain, asked: RewardAsked) -> dict[str, Any]:
    return _block(chain.reward(asked.stake_address, asked.lovelace))
