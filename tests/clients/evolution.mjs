// Evolution SDK, with the provider's evaluation; outputs that are read go with the question (passAdditionalUtxos).
import {
  Address, Assets, Client, Credential, Data, InlineDatum, KeyHash, ScriptHash, TransactionHash,
} from "@evolution-sdk/evolution";
import { bech32, enterprise, life } from "./channel.mjs";

async function make({ url, startMs, consumer }) {
  const chain = {
    id: 0, name: "devnet", networkMagic: 42, epochLength: 432_000,
    slotConfig: { zeroTime: BigInt(startMs), zeroSlot: 0n, slotLength: 1000 },
  };
  const client = Client.make(chain).withBlockfrost({ baseUrl: url, projectId: "devnet" })
    .withPrivateKey({ paymentKey: bech32("ed25519_sk", consumer.seed), addressType: "Enterprise" });
  const seen = new Map();

  return {
    address: enterprise(consumer.vkh),
    async outputs(address) {
      const found = await client.getUtxos(Address.fromBech32(address));
      return found.map((one) => {
        const at = { tx: TransactionHash.toHex(one.transactionId), index: Number(one.index) };
        seen.set(`${at.tx}#${at.index}`, one);
        const datum = one.datumOption?._tag === "InlineDatum" ? Data.toCBORHex(one.datumOption.data) : null;
        const script = one.scriptRef ? ScriptHash.toHex(ScriptHash.fromScript(one.scriptRef)) : null;
        return { ...at, lovelace: Assets.lovelaceOf(one.assets), datum, script };
      });
    },
    async send({ spend, withdraw, outputs, signer, validFrom, validTo }) {
      const kept = (one) => seen.get(`${one.tx}#${one.index}`);
      let tx = client.newTx();
      if (spend) {
        tx = tx.collectFrom({ inputs: [kept(spend)], redeemer: () => Data.fromCBORHex(spend.redeemer) }) // given as a value, the integer 0 counts as none
          .withdraw({ stakeCredential: Credential.makeScriptHash(Buffer.from(withdraw.hash, "hex")), amount: 0n, redeemer: Data.fromCBORHex(withdraw.redeemer) })
          .readFrom({ referenceInputs: [kept(spend.reference), kept(withdraw.reference)] });
      }
      for (const { address, lovelace, datum } of outputs) {
        tx = tx.payToAddress({
          address: Address.fromBech32(address), assets: Assets.fromLovelace(lovelace),
          ...(datum && { datum: new InlineDatum.InlineDatum({ data: Data.fromCBORHex(datum) }) }),
        });
      }
      if (signer) tx = tx.addSigner({ keyHash: KeyHash.fromHex(signer) });
      if (validFrom !== undefined || validTo !== undefined) {
        tx = tx.setValidity({
          ...(validFrom !== undefined && { from: BigInt(validFrom) }), ...(validTo !== undefined && { to: BigInt(validTo) }),
        });
      }
      const built = await tx.build({ passAdditionalUtxos: true });
      const hash = await (await built.sign()).submit();
      await client.awaitTx(hash, 100);
      return TransactionHash.toHex(hash);
    },
  };
}

await life("evolution", make);
