// What a wallet has, and where: its own outputs, and its channels as the chain shows them, with what this
// browser's books say of each. As marketplace/client/wallet/holdings.py has it.

import { fromHex, toHex } from "../crypto/bytes.js";
import { addressText } from "../crypto/bech32.js";
import { channelsAt } from "../chain/chain.js";
import { channelAddress } from "../chain/judge.js";
import { readUtxos } from "../chain/opentx.js";
import { ADA_SCRIPTS } from "../chain/scripts.js";
import { living } from "../money/payer.js";
import { ownAddresses, paymentHash } from "./cip30.js";

/**
 * @import { Stored } from "../money/books.js"
 * @import { Ground } from "./ground.js"
 */

/**
 * A channel that holds money. Lovelace.
 * @typedef {object} Held
 * @property {string} id hex of the session key
 * @property {bigint} lovelace in it, by the chain
 * @property {bigint} owed of it: signed for here, and not claimed
 * @property {string} way how the rest comes home, in words
 */

/** @typedef {{free: bigint, held: Held[]}} Holdings */

/**
 * Everything now; null where no chain can be asked.
 * @param {Ground} ground
 * @returns {Promise<Holdings | null>}
 */
export async function holdings({ magic, door, connect, vault }) {
  const at = await door();
  if (!at) return null;
  const api = await connect();
  const [outputs, own, books] = await Promise.all([api.getUtxos(), ownAddresses(api), vault.all()]);
  const free = [...readUtxos(outputs).values()].reduce((sum, output) => sum + output.lovelace, 0n);
  const stub = fromHex(ADA_SCRIPTS.stub);
  const homes = new Set(own.map((address) => addressText(channelAddress(stub, address, magic === 764824073))));
  const keys = new Set(own.map((address) => toHex(paymentHash(toHex(address)))));
  const found = (await Promise.all([...homes].map((home) => channelsAt(at, home)))).flat();
  const held = found.filter(({ consts }) => keys.has(toHex(consts.consumer_vkh))).map((one) => {
    const id = toHex(one.consts.session_vk);
    const book = books.find((kept) => kept.id === id);
    const due = (book?.signed ?? 0n) - one.claimed;
    const owed = due < 0n ? 0n : due < one.lovelace ? due : one.lovelace;
    return { id, lovelace: one.lovelace, owed, way: wayHome(one.open, book) };
  });
  return { free, held: held.sort((a, b) => Number(b.lovelace - a.lovelace)) };
}

/**
 * How a channel comes home: marketplace/client/wallet/homecoming.py, for a browser.
 * @type {(open: boolean, book: Stored | undefined) => string}
 */
export function wayHome(open, book) {
  if (!open) return "it is closing: after its close period the rest is sent home";
  if (!book?.leases) return "its key is in another browser or purse: finish it there, or close it here with the wallet";
  if (living({ leases: book.leases })) return "a job runs on it";
  if (book.endSent) return "its provider was asked to end it; if it does not answer, close it";
  return book.keepMs ? "by itself once it was idle; Finish brings it home now" : "Finish brings it home";
}
