// Any CIP-30 wallet: connect, sign in (CIP-8), and sign a transaction that this page has read first.

import { keepToken, post } from "../net/api.js";
import { fromHex, toHex } from "../crypto/bytes.js";
import { Refused } from "../money/records.js";
import { signInFault } from "./signin.js";

/** @import { Bytes } from "../crypto/bytes.js" */

/**
 * What a page may ask of a wallet (CIP-30); all bytes are hex.
 * @typedef {object} WalletApi
 * @property {() => Promise<number>} getNetworkId
 * @property {() => Promise<string[]>} getUsedAddresses
 * @property {() => Promise<string[]>} getUnusedAddresses
 * @property {() => Promise<string>} getChangeAddress
 * @property {() => Promise<string[] | null>} getUtxos
 * @property {(tx: string, partial: boolean) => Promise<string>} signTx
 * @property {(address: string, message: string) => Promise<{signature: string, key: string}>} signData
 */

/** @typedef {{name?: string, icon?: unknown, enable: () => Promise<WalletApi>}} Wallet */

const CHOSEN = "tally-wallet";

/**
 * What extensions put into this page, by the name of each. CIP-30's property is none that TypeScript knows.
 * @type {() => {[key: string]: Wallet | undefined}}
 */
const injected = () => /** @type {{cardano?: {[key: string]: Wallet}}} */ (globalThis).cardano ?? {};

/** The wallets of this browser: `{key, name, icon}`. */
export function wallets() {
  return Object.entries(injected()).flatMap(([key, wallet]) =>
    (typeof wallet?.enable === "function" ? [{ key, name: wallet.name || key, icon: safeIcon(wallet.icon) }] : []));
}

/** @type {(icon: unknown) => string} */
const safeIcon = (icon) => (typeof icon === "string" && icon.startsWith("data:image/") ? icon : "");

export const chosen = () => localStorage.getItem(CHOSEN);

/** The wallet's API; it may ask its owner whether this site may see it. */
export async function connect(key = chosen()) {
  const wallet = key === null ? undefined : injected()[key];
  if (!wallet) throw new Error("the wallet that you signed in with is not here: sign in again");
  return wallet.enable();
}

/**
 * Whether *network* (1 mainnet, 0 others) is the market's.
 * @param {WalletApi} api
 * @param {number} magic
 */
export async function sameNetwork(api, magic) {
  return (await api.getNetworkId()) === (magic === 764824073 ? 1 : 0);
}

/**
 * The address that signs in and pays: its payment key is the account.
 * @type {(api: WalletApi) => Promise<string>}
 */
export const addressOf = async (api) => (await api.getUsedAddresses())[0] ?? api.getChangeAddress();

/**
 * Every address that the wallet says is its own, as bytes; those of wallets before Shelley are left out.
 * @param {WalletApi} api
 */
export async function ownAddresses(api) {
  const told = await Promise.all([api.getUsedAddresses(), api.getUnusedAddresses(), api.getChangeAddress()]);
  return [...new Set(told.flat().filter(Boolean))].map(fromHex).filter(isShelley);
}

/** @type {(address: Bytes) => boolean} */
function isShelley(address) {
  const kind = (address[0] ?? 0xff) >> 4;
  return (kind <= 3 && address.length === 57) || ([6, 7].includes(kind) && address.length === 29);
}

/**
 * Sign in: one signature of the wallet. The session's token stays in this browser.
 * @param {string} key of the wallet
 * @param {number} magic
 */
export async function signIn(key, magic) {
  const api = await connect(key);
  if (!(await sameNetwork(api, magic))) throw new Error("the wallet is on another network than this market");
  const address = await addressOf(api);
  const at = location.origin;
  const { message } = await post("/v1/auth/challenge", { address, market: at }, { bearer: "" });
  const fault = signInFault(message, { origin: at, account: toHex(paymentHash(address)), magic });
  if (fault) throw new Refused("SIGN_IN_ELSEWHERE", `${fault}. Nothing was signed: tell the operator of this market`);
  const { signature, key: coseKey } = await api.signData(address, message);
  const session = await post("/v1/auth/verify", { address, signature, key: coseKey }, { bearer: "" });
  keepToken(session.token);
  localStorage.setItem(CHOSEN, key);
  await post("/session");
  return session;
}

/**
 * The payment key hash of an address's bytes: header, then 28 bytes.
 * @type {(address: string) => Bytes}
 */
export const paymentHash = (address) => fromHex(address).slice(1, 29);

const DECLINED = "The wallet declined. Nothing was signed.";

/** CIP-30's codes of what a wallet throws, `{code, info}`, in words. */
/** @type {{[code: string]: string}} */
const SAID = {
  "-1": "The wallet did not understand the request. Is it up to date?",
  "-2": "The wallet met an error of its own. Unlock it, or open it once, and try again.",
  "-3": "The wallet does not let this site see it. Allow this site in the wallet, and try again.",
  "-4": "The wallet changed to another account. Load this page again, or sign in with that account.",
  1: "The wallet cannot sign this: a key is missing in it (a hardware wallet may be locked).",
  2: DECLINED,
  3: DECLINED,
};

/**
 * What a person should read when a wallet says no; any other error in its own words.
 * @param {unknown} thrown
 */
export function walletSaid(thrown) {
  const { code, info, message, remedy } = partsOf(thrown);
  const declined = /declin|reject|cancel/i;
  if ((thrown instanceof Error && code === undefined && declined.test(message)) || declined.test(info)) return DECLINED;
  const known = typeof code === "number" && SAID[code];
  if (known) return info ? `${known} (It said: ${info.slice(0, 200)})` : known;
  return remedy ? `${message}. What helps: ${remedy}.` : info || message || String(thrown);
}

/** What is thrown at a page may be anything, whichever wallet throws it. */
function partsOf(/** @type {unknown} */ thrown) {
  /** @type {{code?: unknown, info?: unknown, message?: unknown, remedy?: unknown}} */
  const { code, info, message, remedy } = typeof thrown === "object" && thrown !== null ? thrown : {};
  const text = (/** @type {unknown} */ part) => (part === undefined || part === null ? "" : String(part));
  return { code, info: text(info), message: text(message), remedy: text(remedy) };
}
