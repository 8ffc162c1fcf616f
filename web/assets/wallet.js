// Any CIP-30 wallet: connect, sign in (CIP-8), and sign a transaction that this page has read first.

import { keepToken, post } from "./api.js";
import { fromHex } from "./bytes.js";

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

/** Sign in: one signature of the wallet. The session's token stays in this browser. */
export async function signIn(key, magic) {
  const api = await connect(key);
  if (!(await sameNetwork(api, magic))) throw new Error("the wallet is on another network than this market");
  const address = await addressOf(api);
  const { message } = await post("/v1/auth/challenge", { address }, { bearer: "" });
  const { signature, key: coseKey } = await api.signData(address, message);
  const session = await post("/v1/auth/verify", { address, signature, key: coseKey }, { bearer: "" });
  keepToken(session.token);
  localStorage.setItem(CHOSEN, key);
  await post("/session");
  return session;
}

/** The payment key hash of an address's bytes: header, then 28 bytes. */
export const paymentHash = (address) => fromHex(address).slice(1, 29);

/** What a person should read when a wallet says no; wallets throw `{code, info}`. */
export function walletSaid(error) {
  if (error?.code === 2 || error?.code === 3 || /declin|reject|cancel/i.test(error?.info ?? error?.message ?? "")) return "The wallet declined. Nothing was signed.";
  return error?.info || error?.message || String(error);
}
