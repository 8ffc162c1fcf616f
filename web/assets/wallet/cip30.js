// What is asked of a wallet (CIP-30), whether it is a browser's extension or a purse.

import { fromHex } from "../crypto/bytes.js";

/** @import { Bytes } from "../crypto/bytes.js" */

/**
 * What may be asked of a wallet (CIP-30); all bytes are hex.
 * @typedef {object} WalletApi
 * @property {() => Promise<number>} getNetworkId
 * @property {() => Promise<string[]>} getUsedAddresses
 * @property {() => Promise<string[]>} getUnusedAddresses
 * @property {() => Promise<string>} getChangeAddress
 * @property {() => Promise<string[] | null>} getUtxos
 * @property {(tx: string, partial: boolean) => Promise<string>} signTx
 * @property {(address: string, message: string) => Promise<{signature: string, key: string}>} signData
 */

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
 * The payment key hash of an address's bytes: header, then 28 bytes.
 * @type {(address: string) => Bytes}
 */
export const paymentHash = (address) => fromHex(address).slice(1, 29);
