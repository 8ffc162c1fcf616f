// A step of an open channel that the wallet signs: built by the market, judged here before the wallet is
// asked, against the channel as the chain shows it.

import { fromHex, toHex } from "../crypto/bytes.js";
import { scriptsAt, seconds, standing } from "../chain/chain.js";
import { Unread } from "../chain/descent.js";
import { moment } from "../chain/door.js";
import { channelAddress, faultOf, judge } from "../chain/judge.js";
import { readUtxos } from "../chain/opentx.js";
import { constsOf, readTerms, Refused } from "../money/records.js";
import { ADA_SCRIPTS } from "../chain/scripts.js";
import { referencesOf } from "../chain/transaction.js";
import { addressOf, ownAddresses, paymentHash, sameNetwork } from "./cip30.js";

/**
 * @import { Built, ChannelView } from "../net/answers.js"
 * @import { Door } from "../chain/door.js"
 * @import { Standing } from "../chain/chain.js"
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Paying, Stored } from "../money/books.js"
 * @import { Ground } from "./ground.js"
 */

/** @type {(why: string) => Refused} */
const no = (why) => new Refused("STEP_REFUSED", `${why}. Nothing was signed`);

/**
 * Build, judge, sign and submit *step* (topup or close) of channel *id*; the transaction's id.
 * @param {Ground} ground
 * @param {string} id
 * @param {"topup" | "close"} step
 * @param {number | bigint} amount lovelace
 */
export async function signedStep(ground, id, step, amount) {
  const { market, magic, vault } = ground;
  const api = await ground.connect();
  if (!(await sameNetwork(api, magic))) throw no("the wallet is on another network than this market");
  const [address, own, outputs, book] = await Promise.all([addressOf(api), ownAddresses(api), api.getUtxos(), vault.load(id)]);
  const known = { mainnet: magic === 764824073, own, utxos: readUtxos(outputs) };
  const { at, channel } = await lookUp(ground, id, book, { ...known, step });
  /** @type {Built} */
  const made = await market.post(`/v1/channels/${id}/${step}`, { address, amount: Number(amount), utxos: outputs ?? [] });
  const bytes = fromHex(made.cbor);
  const [now, references] = await Promise.all([moment(magic, at), scriptsAt(at, referencesOf(bytes))]);
  const into = step === "topup" ? BigInt(amount) : 0n;
  const judged = judge(bytes, { ...known, step, consts: channel.consts, least: into, most: into, channel, ...now, references });
  if (!judged.ok) throw no(`the transaction is not what it should be: ${faultOf(judged)}`);
  const witness = await api.signTx(made.cbor, true);
  await market.post(`/v1/channels/${id}/witness`, { tx: judged.id, witness });
  return judged.id;
}

/**
 * The channel on the chain, of the terms that this browser signed, or at least this wallet's own.
 * @param {Ground} ground
 * @param {string} id
 * @param {Stored | undefined} book
 * @param {{step: "topup" | "close", own: Bytes[], mainnet: boolean}} wanted
 */
async function lookUp(ground, id, book, { step, own, mainnet }) {
  const terms = book?.leases && Object.values(book.leases).map((lease) => readTerms(lease.terms))[0];
  if (step === "topup" && !terms) throw no("the key of this channel is in another browser or purse: top it up there");
  const at = await ground.door();
  if (!at) throw no("the channel can be looked up on no chain: choose a chain's address on the Account page");
  const openTx = await openTxOf(ground, id, book);
  const homes = new Set(own.map((address) => toHex(channelAddress(fromHex(ADA_SCRIPTS.stub), address, mainnet))));
  const channel = await standing(at, id, openTx, homes).catch(unread);
  if (!channel) throw no("the chain shows no such channel of yours now");
  const keys = new Set(own.map((address) => toHex(paymentHash(toHex(address)))));
  const mine = keys.has(toHex(channel.consts.consumer_vkh));
  if (!mine || (terms && constsOf(terms) !== constsOf(channel.consts))) throw no("the channel on the chain has other rules than those that you signed");
  if (step === "topup") await alone(ground, at, id, channel, keys);
  return { at, channel };
}

/** @type {(ground: Ground, id: string, book: Stored | undefined) => Promise<string>} */
async function openTxOf({ market }, id, book) {
  /** @type {ChannelView | null} */
  const told = book?.openTx ? null : await market.get(`/v1/channels/${id}`);
  const openTx = book?.openTx ?? told?.open_tx ?? "";
  if (!/^[0-9a-f]{64}$/.test(openTx)) throw no("nobody says which transaction opened the channel");
  return openTx;
}

/**
 * What cannot be read is signed for by nobody: with the words of why.
 * @type {(error: unknown) => never}
 */
function unread(error) {
  if (error instanceof Unread) throw no(error.message);
  throw error;
}

/**
 * Refused if one of *payers* paid for a second output of the key: a voucher for one is good for both, so nothing
 * more is signed on this channel, and its end is asked for (docs/decisions/0062).
 * @type {(ground: Ground, at: Door, id: string, channel: Standing, payers: Set<string>) => Promise<void>}
 */
async function alone({ order }, at, id, channel, payers) {
  const others = await seconds(at, id, channel, payers).catch(unread);
  if (!others.length) return;
  await order({ do: "twice", id });
  throw new Refused("CHANNEL_TWICE", `your wallet paid for two outputs of one session key, ${channel.ref} and ${others.join(", ")}: a voucher for one is good for both. Nothing more is signed on this channel, and the provider was asked to end it`);
}

/**
 * Before the session key agrees to another lease: the kept channel of *book* is the only one of its key, where a chain can be asked.
 * @param {Ground} ground
 * @param {Paying} book
 */
export async function stillAlone(ground, book) {
  const at = await ground.door();
  if (!at) return;
  const channel = await standing(at, book.id, await openTxOf(ground, book.id, book)).catch(unread);
  if (!channel) throw no("the chain shows no such channel of yours now");
  await alone(ground, at, book.id, channel, new Set([book.account]));
}
