// Channels: finish, top up, close. The wallet signs only what was read here.

import { get, post } from "./api.js";
import { fromHex, toHex } from "./bytes.js";
import { readStage, readTx, readUtxos } from "./opentx.js";
import { refresh, wrong } from "./live.js";
import { order } from "./paying.js";
import { readTerms, Refused } from "./records.js";
import { ada, parseAda } from "./units.js";
import * as vault from "./vault.js";
import { addressOf, connect, walletSaid } from "./wallet.js";

const FEE_MOST = 3_000_000n;

export function start() {
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("button[data-action]");
    if (!button) return;
    wrong("");
    button.disabled = true;
    try {
      await ACTIONS[button.dataset.action](button.dataset.channel);
      button.blur();
      await refresh();
    } catch (error) {
      wrong(walletSaid(error));
    } finally {
      button.disabled = false;
    }
  });
}

const say = (text) => (document.getElementById("said").textContent = text);

const ACTIONS = {
  finish: async (id) => {
    if (!(await vault.load(id))?.privateKey) throw new Refused("ELSEWHERE", "the key of this channel is in another browser or purse; close it with the wallet instead");
    order({ do: "finish", id });
    say("Asked the provider to settle and send the rest home.");
  },
  topup: async (id) => {
    const amount = parseAda(document.querySelector(`[data-amount="${id}"]`).value);
    if (!amount) throw new Error("the amount is ADA, such as 5 or 2.5");
    const tx = await signed(id, "topup", amount);
    const book = await vault.load(id);
    if (book?.state === "OPEN") order({ do: "topped", id, amount });
    say(`Added ${ada(amount)} in ${tx.slice(0, 10)}….`);
  },
  close: async (id) => {
    const tx = await signed(id, "close", 0);
    say(`Closing began in ${tx.slice(0, 10)}…. After the close period anybody can send the rest home.`);
  },
};

/** Build, read, sign and submit one step; the transaction's id. */
async function signed(id, step, amount) {
  const api = await connect();
  const [address, utxos] = [await addressOf(api), (await api.getUtxos()) ?? []];
  const made = await post(`/v1/channels/${id}/${step}`, { address, amount, utxos });
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
