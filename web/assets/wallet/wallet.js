// The CIP-30 wallets of this browser: which there are, connecting to one, and what one says in words.

import { keepToken, market, post } from "../net/api.js";
import { signInBy } from "./signin.js";

/** @import { WalletApi } from "./cip30.js" */

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
 * Sign in: one signature of the wallet. The session's token stays in this browser.
 * @param {string} key of the wallet
 * @param {number} magic
 */
export async function signIn(key, magic) {
  const session = await signInBy(await connect(key), market, location.origin, magic);
  keepToken(session.token);
  localStorage.setItem(CHOSEN, key);
  await post("/session");
  return session;
}

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
