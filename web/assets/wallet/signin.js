// The text that signs an account in, and what is compared before a wallet signs it: it names the market
// that this page talks to and the account of this wallet. The bytes are those of marketplace/domain/signin.py.

import { fromHex, toHex } from "../crypto/bytes.js";
import { Refused } from "../money/records.js";
import { addressOf, paymentHash, sameNetwork } from "./cip30.js";

/**
 * @import { Api } from "../net/http.js"
 * @import { WalletApi } from "./cip30.js"
 */

const LONGEST_MS = 3_600_000;
const LINES = new RegExp(
  "^[^\\n]{1,300} wants you to sign in with your Cardano account:\\n([0-9a-f]{56})\\n\\n[^\\n]{1,100}\\n\\n" +
    "URI: (\\S{1,300})\\nVersion: 1\\nNetwork: ([0-9]{1,20})\\nNonce: ([0-9a-f]{16,128})\\n" +
    "Issued At: ([0-9TZ:-]{20})\\nExpiration Time: ([0-9TZ:-]{20})$",
);

/**
 * What is signed. *origin*: the market's, as `location.origin` has it; times as in ISO 8601, whole seconds.
 * @type {(said: {origin: string, account: string, magic: number, nonce: string, issued: string, expires: string}) => string}
 */
export const signInText = ({ origin, account, magic, nonce, issued, expires }) =>
  `${origin.split("://")[1]} wants you to sign in with your Cardano account:\n${account}\n\n` +
  "Sign in to Tally. This costs nothing and moves no money.\n\n" +
  `URI: ${origin}\nVersion: 1\nNetwork: ${magic}\nNonce: ${nonce}\nIssued At: ${issued}\nExpiration Time: ${expires}`;

/**
 * Null if *message* (hex) signs *account* in at *origin* and does nothing else; otherwise why not, in words.
 * @param {unknown} message
 * @param {{origin: string, account: string, magic: number}} mine
 */
export function signInFault(message, { origin, account, magic }) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fromHex(message));
  } catch {
    return "what the market asks to be signed is not a sign-in";
  }
  const found = LINES.exec(text);
  if (!found) return "what the market asks to be signed is not a sign-in";
  const [, whose, where, network, nonce = "", issued = "", expires = ""] = found;
  if (where !== origin) return `the sign-in is for ${where}, not for ${origin}`;
  if (whose !== account) return "the sign-in is for another account than this wallet's";
  if (network !== String(magic)) return `the sign-in is for network ${network}, not for ${magic}`;
  const life = Date.parse(expires) - Date.parse(issued);
  if (!(life > 0 && life <= LONGEST_MS)) return "the sign-in never expires";
  const same = text === signInText({ origin, account, magic, nonce, issued, expires });
  return same ? null : "what the market asks to be signed is not a sign-in";
}

/**
 * A session at *market*, which was dialled at *origin*: one signature of the wallet, once what it signs was read.
 * @param {WalletApi} api
 * @param {Api} market
 * @param {string} origin
 * @param {number} magic
 * @returns {Promise<{token: string}>}
 */
export async function signInBy(api, market, origin, magic) {
  if (!(await sameNetwork(api, magic))) throw new Error("the wallet is on another network than this market");
  const address = await addressOf(api);
  const { message } = await market.post("/v1/auth/challenge", { address, market: origin }, { bearer: "" });
  const fault = signInFault(message, { origin, account: toHex(paymentHash(address)), magic });
  if (fault) throw new Refused("SIGN_IN_ELSEWHERE", `${fault}. Nothing was signed: tell the operator of this market`);
  const { signature, key } = await api.signData(address, message);
  return market.post("/v1/auth/verify", { address, signature, key }, { bearer: "" });
}
