// Any CIP-30 wallet: connect, sign in (CIP-8), and sign a transaction that this page has read first.

import { keepToken, post } from "./api.js";
import { fromHex, toHex } from "./bytes.js";
import { Refused } from "./records.js";
import { signInFault } from "./signin.js";

const CHOSEN = "tally-wallet";

/** The wallets of this browser: `{key, name, icon}`. */
export function wallets() {
  return Object.entries(globalThis.cardano ?? {})
    .filter(([, wallet]) => wallet && typeof wallet.enable === "function")
    .map(([key, { name, icon }]) => ({ key, name: name || key, icon: safeIcon(icon) }));
}

const safeIcon = (icon) => (typeof icon === "string" && icon.startsWith("data:image/") ? icon : "");

export const chosen = () => localStorage.getItem(CHOSEN);

/** The wallet's API; it may ask its owner whether this site may see it. */
export async function connect(key = chosen()) {
  const wallet = globalThis.cardano?.[key];
  if (!wallet) throw new Error("the wallet that you signed in with is not here: sign in again");
  return wallet.enable();
}

/** Whether *network* (1 mainnet, 0 others) is the market's. */
export async function sameNetwork(api, magic) {
  return (await api.getNetworkId()) === (Number(magic) === 764824073 ? 1 : 0);
}

/** The address that signs in and pays: its payment key is the account. */
export const addressOf = async (api) => (await api.getUsedAddresses())[0] ?? api.getChangeAddress();

/** Every address that the wallet says is its own, as bytes; those of wallets before Shelley are left out. */
export async function ownAddresses(api) {
  const told = await Promise.all([api.getUsedAddresses(), api.getUnusedAddresses(), api.getChangeAddress()]);
  const shelley = (address) => (address[0] >> 4 <= 3 && address.length === 57) || ([6, 7].includes(address[0] >> 4) && address.length === 29);
  return [...new Set(told.flat().filter(Boolean))].map(fromHex).filter(shelley);
}

/** Sign in: one signature of the wallet. The session's token stays in this browser. */
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

/** The payment key hash of an address's bytes: header, then 28 bytes. */
export const paymentHash = (address) => fromHex(address).slice(1, 29);

/** CIP-30's codes of what a wallet throws, `{code, info}`, in words. */
const SAID = {
  "-1": "The wallet did not understand the request. Is it up to date?",
  "-2": "The wallet met an error of its own. Unlock it, or open it once, and try again.",
  "-3": "The wallet does not let this site see it. Allow this site in the wallet, and try again.",
  "-4": "The wallet changed to another account. Load this page again, or sign in with that account.",
  1: "The wallet cannot sign this: a key is missing in it (a hardware wallet may be locked).",
  2: "The wallet declined. Nothing was signed.",
  3: "The wallet declined. Nothing was signed.",
};

/** What a person should read when a wallet says no; any other error in its own words. */
export function walletSaid(error) {
  if (error instanceof Error && error.code === undefined && /declin|reject|cancel/i.test(error.message)) return SAID[2];
  if (/declin|reject|cancel/i.test(error?.info ?? "")) return SAID[2];
  const known = typeof error?.code === "number" && SAID[error.code];
  if (known) return error.info ? `${known} (It said: ${String(error.info).slice(0, 200)})` : known;
  return error?.remedy ? `${error.message}. What helps: ${error.remedy}.` : error?.info || error?.message || String(error);
}
