// A step of an open channel that the wallet signs: built by the market, read here before the wallet is asked.

import { get, post } from "./api.js";
import { fromHex, toHex } from "./bytes.js";
import { readStage, readTx, readUtxos } from "./opentx.js";
import { readTerms, Refused } from "./records.js";
import { addressOf, connect } from "./wallet.js";

const FEE_MOST = 3_000_000n;

/** Build, read, sign and submit *step* (topup or close) of channel *id*; the transaction's id. */
export async function signedStep(id, step, amount) {
  const api = await connect();
  const [address, utxos] = [await addressOf(api), (await api.getUtxos()) ?? []];
  const made = await post(`/v1/channels/${id}/${step}`, { address, amount: Number(amount), utxos });
  const channel = await get(`/v1/channels/${id}`);
  const fault = stepFault(fromHex(made.cbor), { id, amount: BigInt(amount), close: step === "close", channel, wallet: fromHex(address), utxos: readUtxos(utxos) });
  if (fault) throw new Refused("STEP_REFUSED", `the transaction is not what it should be: ${fault}. Nothing was signed.`);
  const witness = await api.signTx(made.cbor, true);
  await post(`/v1/channels/${id}/witness`, { tx: made.tx, witness });
  return made.tx;
}

/** Null if the step continues this one channel with *amount* more and only a fee leaves the wallet. */
export function stepFault(bytes, wanted) {
  const tx = readTx(bytes);
  const terms = readTerms(fromHex(wanted.channel.terms));
  const next = tx.outputs[0];
  const stage = next?.datum && readStage(next.datum);
  if (!stage || toHex(stage.consts.session_vk) !== wanted.id) return "it does not continue the channel";
  const same = ["adapter_vkh", "payout", "consumer_vkh"].every((name) => toHex(stage.consts[name]) === toHex(terms[name]));
  if (!same || stage.consts.fee_bps !== terms.fee_bps || stage.consts.close_period_ms !== terms.close_period_ms) return "the channel's rules would change";
  if (stage.open === wanted.close) return wanted.close ? "it does not close" : "it closes";
  const foreign = tx.inputs.filter((name) => !wanted.utxos.has(name));
  if (foreign.length !== 1) return "it spends more than this channel and your outputs";
  const others = tx.outputs.slice(1);
  if (others.some((o) => toHex(o.address) !== toHex(wanted.wallet))) return "something goes to a stranger";
  const spent = tx.inputs.reduce((sum, name) => sum + (wanted.utxos.get(name)?.lovelace ?? 0n), 0n);
  const back = others.reduce((sum, o) => sum + o.lovelace, 0n);
  if (tx.fee > FEE_MOST || spent - back !== tx.fee + wanted.amount) return "more than the fee and the amount leaves your wallet";
  const before = BigInt(wanted.channel.chain?.value ?? -1);
  if (before >= 0n && next.lovelace !== before + wanted.amount) return "the channel's value is not what it should become";
  return null;
}
