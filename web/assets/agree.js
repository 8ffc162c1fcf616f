// Agreeing to a quote: what is checked before the wallet is asked, and what happens after it signed.

import { get, post } from "./api.js";
import { fromHex, same, toHex } from "./bytes.js";
import { sign } from "./crypto.js";
import { checkOpen, readUtxos } from "./opentx.js";
import { newBook, newLease } from "./payer.js";
import { order } from "./paying.js";
import { quoteFault, Refused, verifyTerms } from "./records.js";
import * as vault from "./vault.js";
import { addressOf, connect, paymentHash, sameNetwork } from "./wallet.js";

/** The quote of *job*, held against what this browser asked for; Refused names what differs. */
export async function examine(job, magic) {
  const { quote } = job;
  const mine = (await vault.all()).find((book) => book.id === quote.session_vk);
  if (!mine) throw new Refused("ELSEWHERE", "this job was posted from another browser: its key is there");
  const body = fromHex(quote.terms);
  const terms = await verifyTerms(body, fromHex(quote.adapter_signature));
  const wanted = { job: job.id, magic: Number(magic), spec: mine.spec, account: mine.account, sessionVk: fromHex(mine.id), spent: job.spent };
  const fault = quoteFault(terms, wanted, Date.now());
  if (fault) throw new Refused("QUOTE_REFUSED", `the quote is not what was asked for: ${fault}`);
  return { mine, terms, body, adapterSignature: fromHex(quote.adapter_signature) };
}

/** The unsigned open transaction, read and compared: `{tx, cbor, checked, api, …}`; no wallet window. */
export async function prepare(agreed, magic) {
  const api = await connect();
  if (!(await sameNetwork(api, magic))) throw new Error("the wallet is on another network than this market");
  const address = await addressOf(api);
  if (!same(paymentHash(address), agreed.terms.consumer_vkh)) throw new Error("the wallet shows another account than the one signed in: sign in again");
  const [network, own] = await Promise.all([get("/v1/network"), api.getUtxos()]);
  const utxos = own ?? [];
  const made = await post("/v1/channels", { lease: agreed.terms.lease, address, utxos });
  const wanted = {
    terms: agreed.terms, stubHash: fromHex(network.stub_hash), wallet: fromHex(address), mainnet: Number(magic) === 764824073,
    utxos: readUtxos(utxos),
  };
  return { api, cbor: made.cbor, checked: checkOpen(fromHex(made.cbor), wanted) };
}

/** Sign the terms, let the wallet sign the transaction, submit it, and start to pay. */
export async function accept(agreed, ready) {
  if (!ready.checked.ok) throw new Refused("OPEN_REFUSED", "the transaction is not the one that was agreed");
  const { mine, terms, body, adapterSignature } = agreed;
  const lease = newLease(body, adapterSignature, BigInt(terms.ceiling));
  const capacity = ready.checked.amount - ready.checked.reserve;
  const signature = toHex(await sign(mine.privateKey, body));
  const begun = { lease: terms.lease, signature, tx: ready.checked.id, witness: await ready.api.signTx(ready.cbor, true) };
  const book = newBook({ ...mine, state: "OPENING", capacity, leases: { [terms.lease]: lease }, openTx: begun.tx, begun });
  await vault.keep(book); // before the money moves: a channel without its book could only be closed
  await finish(book);
}

/** What the wallet signed is sent, and the terms after it; repeatable until both have arrived. */
export async function finish(book) {
  const { lease, signature, tx, witness } = book.begun;
  await post(`/v1/channels/${book.id}/witness`, { tx, witness });
  const signed = { session_signature: signature, channel_tx: tx, secrets: {} };
  await post(`/v1/leases/${lease}/sign`, signed, { once: `sign-${lease}` });
  await vault.keep({ ...book, state: "OPEN", begun: null });
  order({ do: "watch", id: book.id });
}
