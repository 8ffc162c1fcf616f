"""The one door to a chain: an unmodified ``BlockFrostApi``, in threads, with a deadline on each
call.

``https://cardano-preprod.blockfrost.io/api`` with a project id, or the devnet's face: nothing else
changes. Every failure of the world leaves here as :class:`ChainFault`, every no of the ledger as
:class:`TxRefused` or :class:`ScriptRefused`.

How its answers read is in ``answers.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import requests
import structlog
from blockfrost import ApiError, BlockFrostApi
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import bech32, txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault, ChainUrlWrong, TxRefused
from marketplace.chain.node.answers import (
    Included,
    Moves,
    Output,
    WaitingTx,
    ogmios_entry,
    tip_of,
    units_of,
    utxo_of,
)
from marketplace.chain.node.submit_doors import Doors
from marketplace.chain.transaction.snapshot import Deployment, Params, Scripts, Snapshot, Tip, Units
from marketplace.domain.errors import TallyError

MAINNET_MAGIC: Final = 764824073
_PARAMS_FOR_S: Final = 60.0  # parameters change at epochs; a minute old is fresh enough
_AT_ONCE: Final = 8
_TOO_MANY: Final = 429
_OVER_LIMIT_S: Final = (0.5, 1.0, 2.0, 4.0)

_log = structlog.get_logger(__name__)


def map_blockfrost(what: str, error: Exception) -> TallyError:
    """The error of ours for one of Blockfrost's or of the transport under it."""
    if isinstance(error, ApiError):
        status, text = error.status_code, str(error.message or error)[:600]
        if status == 400:
            return TxRefused(f"{what}: {text}")
        if status in (402, 403, 418, 429):
            return ChainFault(
                f"{what}: the chain's door refuses this project id ({status}): {text}"
            )
        return ChainFault(f"{what}: status {status}: {text}")
    if isinstance(error, requests.ConnectionError):
        asked = error.request.url if error.request is not None else ""
        return ChainFault(f"{what}: no connection to {asked}")
    return ChainFault(f"{what}: {type(error).__name__}: {str(error)[:300]}")


class ChainReader:
    """Reads and submits. Made by :func:`connect`; safe to share between tasks."""

    def __init__(
        self,
        api: BlockFrostApi,
        magic: int,
        deadline_s: float,
        at_once: int = _AT_ONCE,
        doors: Doors | None = None,
    ) -> None:
        self._doors = doors or Doors()
        self._api: Any = (
            api  # its methods are decorated without types; `_ask` and what reads answers judge
        )
        self._deadline_s = deadline_s
        self._limiter = anyio.CapacityLimiter(at_once)
        self._params: tuple[float, Params] | None = None
        self._deployments: dict[bytes, Deployment] = {}
        self.requests = 0
        self.magic = magic

    @property
    def mainnet(self) -> bool:
        """Whether addresses here carry network id 1."""
        return self.magic == MAINNET_MAGIC

    async def _ask(
        self, what: str, call: Callable[..., Any], *args: object, **options: object
    ) -> Any:
        """One call, in a thread, within the deadline; None for 404. Over the door's limit of
        requests it is asked again, ever later: what asks on is banned.
        """
        self.requests += 1
        work = partial(call, *args, return_type="json", **options)
        try:
            async with self._limiter:
                with anyio.fail_after(self._deadline_s):
                    for wait_s in _OVER_LIMIT_S:
                        try:
                            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
                        except ApiError as error:
                            if error.status_code != _TOO_MANY:
                                raise
                        await anyio.sleep(wait_s)
                    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except ApiError as error:
            if error.status_code == 404:
                return None
            raise map_blockfrost(what, error) from error
        except TimeoutError as error:
            raise ChainFault(f"{what}: no answer within {self._deadline_s:g} s") from error
        except (requests.RequestException, ValueError) as error:
            raise map_blockfrost(what, error) from error

    async def _must(self, what: str, call: Callable[..., Any], *args: object) -> Any:
        found = await self._ask(what, call, *args)
        if found is None:
            raise ChainFault(f"{what}: not found at this URL")
        return found

    async def tip(self) -> Tip:
        """The latest block."""
        return tip_of(await self._must("latest block", self._api.block_latest))

    async def params(self) -> Params:
        """Protocol parameters, at most a minute old."""
        now = time.monotonic()
        if self._params is None or now - self._params[0] > _PARAMS_FOR_S:
            raw = await self._must("protocol parameters", self._api.epoch_latest_parameters)
            self._params = (now, Params.from_json(raw))
        return self._params[1]

    async def utxos(self, address: bytes) -> list[Utxo]:
        """Every unspent output at *address*."""
        text = addresses.to_text(address)
        found = await self._ask("utxos", self._api.address_utxos, text, gather_pages=True)
        return [
            utxo_of(bytes.fromhex(raw["tx_hash"]), raw, address)
            for raw in cast("list[Any]", found or [])
        ]

    async def utxos_of_script(self, script_hash: bytes) -> list[Utxo]:
        """Every unspent output whose payment credential is this script, whatever its stake part."""
        text = bech32.encode("script", script_hash)  # CIP-5; a door takes it in an address's place
        found = await self._ask("utxos", self._api.address_utxos, text, gather_pages=True)
        return [
            utxo_of(bytes.fromhex(raw["tx_hash"]), raw) for raw in cast("list[Any]", found or [])
        ]

    async def moves(self, tx_id: bytes) -> Moves | None:
        """What a transaction consumed and made; None if it is in no block."""
        raw = await self._ask("transaction", self._api.transaction_utxos, tx_id.hex())
        if raw is None:
            return None
        inputs = [
            utxo_of(bytes.fromhex(i["tx_hash"]), i)
            for i in raw["inputs"]
            if not i.get("collateral") and not i.get("reference")
        ]
        outputs = [
            Output(
                utxo_of(tx_id, o),
                bytes.fromhex(o["consumed_by_tx"]) if o.get("consumed_by_tx") else None,
            )
            for o in raw["outputs"]
            if not o.get("collateral")
        ]
        return Moves(tuple(inputs), tuple(outputs))

    async def output(self, ref: OutRef) -> Output | None:
        """One output and who spent it; None if its transaction is in no block."""
        moves = await self.moves(ref.tx_id)
        found = moves and next((o for o in moves.outputs if o.utxo.ref == ref), None)
        return found or None

    async def transaction(self, tx_id: bytes) -> Included | None:
        """Where a transaction is; None if in no block."""
        raw = await self._ask("transaction", self._api.transaction, tx_id.hex())
        return None if raw is None else Included(int(raw["block_height"]), int(raw["slot"]))

    async def transaction_bytes(self, tx_id: bytes) -> bytes | None:
        """Its CBOR; None if in no block."""
        raw = await self._ask("transaction bytes", self._api.transaction_cbor, tx_id.hex())
        return None if raw is None else bytes.fromhex(raw["cbor"])

    async def waiting_at(self, address: bytes) -> list[bytes]:
        """Ids of transactions in the door's mempool that touch *address*, at most a page of 100:
        only those that were submitted through this door, so none proves nothing.
        """
        text = addresses.to_text(address)
        rows = await self._ask("mempool", self._api.mempool_address, text)
        return [bytes.fromhex(row["tx_hash"]) for row in cast("list[Any]", rows or [])]

    async def waiting(self, tx_id: bytes) -> WaitingTx | None:
        """A transaction of the mempool; None once it is in a block or gone, and for one whose
        scripts fail (it would take its collateral and spend nothing else).
        """
        raw = await self._ask("mempool transaction", self._api.mempool_tx, tx_id.hex())
        if raw is None or raw.get("tx", {}).get("invalid_contract"):
            return None
        spent = [i for i in raw["inputs"] if not i.get("collateral") and not i.get("reference")]
        refs = (OutRef(bytes.fromhex(i["tx_hash"]), int(i["output_index"])) for i in spent)
        made = (utxo_of(tx_id, o) for o in raw["outputs"] if not o.get("collateral"))
        return WaitingTx(tx_id, tuple(refs), tuple(made))

    async def waits(self, tx_id: bytes) -> bool:
        """Whether a transaction is in the door's mempool. A public door shows only what was
        submitted through it, so False proves nothing there.
        """
        found = await self._ask("mempool transaction", self._api.mempool_tx, tx_id.hex())
        return found is not None

    async def rewards(self, script_hash: bytes) -> int | None:
        """The withdrawable balance of a script's account; None if it is not registered."""
        account = addresses.to_text(addresses.stake_account(script_hash, self.mainnet))
        raw = await self._ask("account", self._api.accounts, account)
        if raw is None or not (raw.get("registered", raw.get("active"))):
            return None
        return int(raw["withdrawable_amount"])

    async def deployment(self, scripts: Scripts) -> Deployment | None:
        """Where the reference scripts lie: at settle's own address, where nothing can be spent."""
        known = self._deployments.get(scripts.settle_hash)
        if known is not None:
            return known
        found: dict[bytes, OutRef] = {}
        for utxo in await self.utxos(deployment_address(scripts, self.mainnet)):
            if utxo.script_hash is not None:
                found[utxo.script_hash] = min(utxo.ref, found.get(utxo.script_hash, utxo.ref))
        settle, stub = found.get(scripts.settle_hash), found.get(scripts.stub_hash)
        if settle is None or stub is None:
            return None
        self._deployments[scripts.settle_hash] = Deployment(settle, stub)
        return self._deployments[scripts.settle_hash]

    def forget(self, scripts: Scripts) -> None:
        """Look the deployment up anew next time: a rollback may have taken it."""
        self._deployments.pop(scripts.settle_hash, None)

    async def snapshot(self, scripts: Scripts) -> Snapshot:
        """What every builder needs, read now."""
        return Snapshot(
            magic=self.magic,
            mainnet=self.mainnet,
            params=await self.params(),
            tip=await self.tip(),
            scripts=scripts,
            deployment=await self.deployment(scripts),
            rewards=await self.rewards(scripts.settle_hash),
        )

    async def evaluate(self, tx: bytes, unconfirmed: Sequence[Utxo] = ()) -> dict[str, Units]:
        """Exact units by redeemer (``spend:3``, ``withdrawal:0``).

        *unconfirmed* are inputs that no block holds yet. :class:`ScriptRefused` when a script says
        no, :class:`TxRefused` when an input is unknown.
        """
        if unconfirmed:
            extra = [ogmios_entry(u) for u in unconfirmed]
            raw = await self._must_evaluate(self._api.transaction_evaluate_utxos, tx, extra)
        else:
            raw = await self._must_evaluate(self._api.transaction_evaluate_cbor, tx)
        return units_of(raw)

    async def _must_evaluate(self, call: Callable[..., Any], *args: object) -> Any:
        found = await self._must("evaluate", call, *args)
        if not isinstance(found, dict):
            raise ChainFault("evaluate: the answer has another shape")
        return cast(dict[str, Any], found)

    async def submit(self, tx: bytes, *, strictly: bool = False) -> bytes:
        """Send, through every door that is configured; the transaction's id.

        One door that takes it is enough, unless *strictly* the one that is read from must.
        :class:`TxRefused` with the ledger's own reason, as the door says that is read from.
        """
        said: list[bytes | TallyError] = []
        taken = 0

        async def here() -> None:
            try:
                answer = await self._must("submit", self._api.transaction_submit_cbor, tx)
                said.append(bytes.fromhex(answer))
            except TallyError as error:
                said.append(error)

        async def elsewhere() -> None:
            nonlocal taken
            taken = await self._doors.submit(tx)

        async with anyio.create_task_group() as group:
            group.start_soon(here)
            group.start_soon(elsewhere)
        answer = said[0]
        if isinstance(answer, bytes):
            return answer
        if strictly or not taken:
            raise answer
        _log.warning("submit_door", door="chain_url", cause=answer.message[:200])
        return txbytes.split(tx).tx_id


def deployment_address(scripts: Scripts, mainnet: bool) -> bytes:
    """Settle's hash as a payment credential: settle refuses to be spent, so what lies here
    stays.
    """
    return addresses.channel_address(scripts.settle_hash, None, mainnet)


async def connect(
    url: str,
    project_id: str = "",
    *,
    deadline_s: float = 20.0,
    at_once: int = _AT_ONCE,
    submit_urls: Sequence[str] = (),
) -> ChainReader:
    """The chain at *url* (with or without ``/v0``); :class:`ChainFault` if nothing answers there,
    :class:`ChainUrlWrong` if what answers is no chain or does not take *project_id*.

    *at_once* bounds the requests in flight; *deadline_s* counts for each from when it is sent;
    *submit_urls* are further doors for what is sent (:mod:`marketplace.chain.node.submit_doors`).
    """
    base = url.rstrip("/").removesuffix("/v0")
    api = BlockFrostApi(project_id=project_id or "none", base_url=base)
    reader = ChainReader(api, 0, deadline_s, at_once, Doors(submit_urls))
    try:
        genesis = await reader._ask("genesis", cast(Any, api).genesis)  # pyright: ignore[reportPrivateUsage] -- same module
    except ChainFault as fault:
        cause = fault.__cause__
        if isinstance(cause, ApiError) and cause.status_code == 403:
            raise ChainUrlWrong(f"{base} does not take this project id: {cause.message}") from fault
        if isinstance(cause, (MissingSchema, InvalidSchema, InvalidURL)):
            raise ChainUrlWrong(f"{url!r} is not an address: {cause}") from fault
        raise
    if not isinstance(genesis, dict) or "network_magic" not in genesis:
        raise ChainUrlWrong(f"there is no chain at {base}")
    reader.magic = int(cast("dict[str, Any]", genesis)["network_magic"])
    return reader
