"""A CIP-30 wallet with keys of its own: what an extension would inject, bridged to Python.

It holds a payment and a stake key, reads its outputs from the chain's own face, and signs whatever
it is asked to. Every signature is counted: a usual rental asks for two.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cbor2
import httpx
from playwright.sync_api import BrowserContext

from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.address import from_text, key_address, to_text
from marketplace.client.net.signin import sign_message
from marketplace.domain.keys import Signer

_INJECTED = """
(() => {
  const call = (name, ...given) => window.tallyWallet(name, given);
  const api = {
    getNetworkId: () => call("network"),
    getUsedAddresses: async () => [await call("address")],
    getUnusedAddresses: async () => [],
    getChangeAddress: () => call("address"),
    getRewardAddresses: async () => [],
    getUtxos: () => call("utxos"),
    getBalance: () => call("balance"),
    signTx: (tx, partial) => call("signTx", tx, partial),
    signData: (address, payload) => call("signData", address, payload),
    submitTx: async () => { throw { code: 1, info: "this wallet submits nothing" }; },
  };
  window.cardano = {
    test: {
      name: "Test wallet", apiVersion: "1.0.0",
      icon: "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA4IDgiPjxyZWN0IHdpZHRoPSI4IiBoZWlnaHQ9IjgiIGZpbGw9IiM0MTYiLz48L3N2Zz4=",
      isEnabled: async () => true, enable: async () => api,
    },
  };
})();
"""


@dataclass
class Wallet:
    """One wallet on the devnet at *chain_url*; *asked* is every signature it gave, in order."""

    chain_url: str
    payment: Signer = field(default_factory=lambda: Signer(secrets.token_bytes(32)))
    stake: Signer = field(default_factory=lambda: Signer(secrets.token_bytes(32)))
    asked: list[str] = field(default_factory=list[str])
    declines: bool = False
    before_signing: Callable[[], object] = lambda: None

    @property
    def address(self) -> bytes:
        """A base address, as real wallets use."""
        return key_address(self.payment.key_hash, self.stake.key_hash, False)

    def lovelace(self) -> int:
        """What the chain shows at the address."""
        return sum(int(a["quantity"]) for u in self.unspent() for a in u["amount"])

    def fund(self, lovelace: int) -> None:
        """From the devnet's faucet; returns once a block holds it."""
        root = self.chain_url.removesuffix("/api/v0")
        body = {"address": to_text(self.address), "lovelace": lovelace}
        answer = httpx.post(f"{root}/devnet/faucet", json=body, timeout=30, trust_env=False)
        answer.raise_for_status()

    def install(self, context: BrowserContext) -> None:
        """Into every page of *context*."""
        context.expose_function("tallyWallet", self._asked)
        context.add_init_script(_INJECTED)

    def _asked(self, name: str, given: list[Any]) -> Any:
        match name:
            case "network":
                return 0
            case "address":
                return self.address.hex()
            case "utxos":
                return [cbor2.dumps(self._output(u)).hex() for u in self.unspent()]
            case "balance":
                return cbor2.dumps(self.lovelace()).hex()
            case "signData":
                self.asked.append(name)
                address, payload = (bytes.fromhex(x) for x in given)
                assert address == self.address
                signed = sign_message(self.payment, address, payload)
                return {"signature": signed.signature, "key": signed.key}
            case "signTx":
                if self.declines:
                    raise RuntimeError("the user declined to sign")
                self.asked.append(name)
                self.before_signing()
                tx_id = txbytes.split(bytes.fromhex(given[0])).tx_id
                witness = [self.payment.verify_key, self.payment.sign(tx_id)]
                return cbor2.dumps({0: [witness]}).hex()
            case _:
                raise RuntimeError(f"no wallet has {name}")

    def unspent(self) -> list[dict[str, Any]]:
        """Its outputs as the chain's face tells them."""
        url = f"{self.chain_url}/addresses/{to_text(self.address)}/utxos"
        answer = httpx.get(url, timeout=30, trust_env=False)
        return [] if answer.status_code == 404 else list(answer.raise_for_status().json())

    def _output(self, row: dict[str, Any]) -> list[Any]:
        place = [bytes.fromhex(row["tx_hash"]), int(row["output_index"])]
        value = sum(int(a["quantity"]) for a in row["amount"])
        return [place, {0: from_text(row["address"]), 1: value}]
