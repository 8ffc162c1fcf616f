// Mesh, with the provider's evaluation.
import { BlockfrostProvider, MeshTxBuilder, MeshWallet } from "@meshsdk/core";
import { enterprise, life } from "./channel.mjs";

async function make({ url, startMs, consumer }) {
  const provider = new BlockfrostProvider(url);
  const address = enterprise(consumer.vkh);
  const wallet = new MeshWallet({
    networkId: 0, fetcher: provider, submitter: provider, key: { type: "cli", payment: "5820" + consumer.seed },
  });
  await wallet.init();
  const slot = (ms) => Math.floor((ms - startMs) / 1000);

  return {
    address,
    async outputs(where) {
      const found = await provider.fetchAddressUTxOs(where);
      return found.map(({ input, output }) => ({
        tx: input.txHash, index: input.outputIndex, lovelace: BigInt(output.amount[0].quantity),
        datum: output.plutusData ?? null, script: output.scriptHash ?? null, size: (output.scriptRef ?? "").length / 2,
      }));
    },
    async send({ spend, withdraw, outputs, signer, validFrom, validTo }) {
      const build = new MeshTxBuilder({ fetcher: provider, submitter: provider, evaluator: provider });
      const coins = (await provider.fetchAddressUTxOs(address)).filter((one) => one.output.amount.length === 1);
      if (spend) {
        const amount = [{ unit: "lovelace", quantity: spend.lovelace.toString() }];
        const stub = spend.reference, settle = withdraw.reference;
        build.spendingPlutusScriptV3()
          .txIn(spend.tx, spend.index, amount, spend.address, 0)
          .spendingTxInReference(stub.tx, stub.index, `${stub.size}`, stub.script)
          .txInInlineDatumPresent()
          .txInRedeemerValue(spend.redeemer, "CBOR")
          .withdrawalPlutusScriptV3()
          .withdrawal(withdraw.address, "0")
          .withdrawalTxInReference(settle.tx, settle.index, `${settle.size}`, settle.script)
          .withdrawalRedeemerValue(withdraw.redeemer, "CBOR");
        const { input, output } = coins.reduce((a, b) => (BigInt(a.output.amount[0].quantity) > BigInt(b.output.amount[0].quantity) ? a : b));
        build.txInCollateral(input.txHash, input.outputIndex, output.amount, output.address);
      }
      for (const { address: to, lovelace, datum } of outputs) {
        build.txOut(to, [{ unit: "lovelace", quantity: lovelace.toString() }]);
        if (datum) build.txOutInlineDatumValue(datum, "CBOR");
      }
      if (signer) build.requiredSignerHash(signer);
      if (validFrom !== undefined) build.invalidBefore(slot(validFrom));
      if (validTo !== undefined) build.invalidHereafter(slot(validTo));
      const unsigned = await build.changeAddress(address).selectUtxosFrom(coins).complete();
      const hash = await wallet.submitTx(await wallet.signTx(unsigned));
      await included(provider, hash);
      return hash;
    },
  };
}

async function included(provider, hash) {
  for (let look = 0; look < 300; look++) {
    try {
      return await provider.fetchTxInfo(hash);
    } catch {
      await new Promise((done) => setTimeout(done, 100));
    }
  }
  throw new Error(`${hash} is in no block`);
}

await life("mesh", make);
