// Lucid Evolution, with the provider's evaluation.
import { Blockfrost, Lucid, SLOT_CONFIG_NETWORK, validatorToScriptHash } from "@lucid-evolution/lucid";
import { bech32, enterprise, life } from "./channel.mjs";

async function make({ url, startMs, consumer }) {
  SLOT_CONFIG_NETWORK.Custom = { zeroTime: startMs, zeroSlot: 0, slotLength: 1000 };
  const provider = new Blockfrost(url, "devnet");
  const lucid = await Lucid(provider, "Custom");
  lucid.selectWallet.fromPrivateKey(bech32("ed25519_sk", consumer.seed));
  const seen = new Map();

  return {
    address: enterprise(consumer.vkh),
    async outputs(address) {
      const found = await lucid.utxosAt(address);
      return found.map((one) => {
        seen.set(`${one.txHash}#${one.outputIndex}`, one);
        return {
          tx: one.txHash, index: one.outputIndex, lovelace: one.assets.lovelace, datum: one.datum ?? null,
          script: one.scriptRef ? validatorToScriptHash(one.scriptRef) : null,
        };
      });
    },
    async send({ spend, withdraw, outputs, signer, validFrom, validTo }) {
      const kept = (one) => seen.get(`${one.tx}#${one.index}`);
      let tx = lucid.newTx();
      if (spend) tx = tx.collectFrom([kept(spend)], spend.redeemer).withdraw(withdraw.address, 0n, withdraw.redeemer)
        .readFrom([kept(spend.reference), kept(withdraw.reference)]);
      for (const { address, lovelace, datum } of outputs) {
        tx = datum ? tx.pay.ToAddressWithData(address, { kind: "inline", value: datum }, { lovelace }) : tx.pay.ToAddress(address, { lovelace });
      }
      if (signer) tx = tx.addSignerKey(signer);
      if (validFrom !== undefined) tx = tx.validFrom(validFrom);
      if (validTo !== undefined) tx = tx.validTo(validTo);
      const built = await tx.complete({ localUPLCEval: false });
      const hash = await (await built.sign.withWallet().complete()).submit();
      await lucid.awaitTx(hash, 100);
      return hash;
    },
  };
}

await life("lucid", make);
