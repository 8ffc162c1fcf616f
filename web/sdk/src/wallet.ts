// A purse as a wallet (CIP-30): what the browser's modules ask of an extension, this answers without a window.
// Whoever calls it has judged the transaction (web/assets/chain/judge.js).

import { blake2b } from "../../assets/crypto/blake2b.js";
import { fromHex, nth, toHex, type Bytes } from "../../assets/crypto/bytes.js";
import { encode, rawItems } from "../../assets/crypto/cbor.js";
import { sign } from "../../assets/crypto/ed25519.js";
import { Unreachable } from "../../assets/chain/chain.js";
import { headersOf, type Door } from "../../assets/chain/door.js";
import type { Row } from "../../assets/chain/descent.js";
import { readTx } from "../../assets/chain/transaction.js";
import { pause } from "../../assets/net/http.js";
import type { WalletApi } from "../../assets/wallet/cip30.js";
import type { Purse } from "./purse.js";

const PAGE = 100; // rows of one answer
const BLOCK_MS = 120_000; // a transaction that is in no block by then was lost
const LOOK_MS = 1000;

/**
 * *purse* on the network *magic*, whose outputs *door* shows. After a transaction of its own it waits for the block: what
 * that spent is listed until then, and its change is not.
 */
export function walletOf(purse: Purse, door: Door, magic: number): WalletApi {
  const address = toHex(purse.at(magic));
  const spent = new Set<string>();
  const outputs = async (): Promise<string[]> => {
    for (const until = Date.now() + BLOCK_MS; ; ) {
      const rows = await rowsAt(door, purse.address(magic));
      if (rows.some((row) => spent.has(refOf(row))) && Date.now() < until) {
        await pause(LOOK_MS);
        continue;
      }
      spent.clear(); // it is in a block, or never will be
      return outputsOf(rows, purse.at(magic));
    }
  };
  return {
    getNetworkId: async () => (nth(purse.at(magic), 0) & 15 ? 1 : 0),
    getUsedAddresses: async () => [address],
    getUnusedAddresses: async () => [],
    getChangeAddress: async () => address,
    getUtxos: outputs,
    signTx: async (tx) => {
      readTx(fromHex(tx)).inputs.forEach((ref) => spent.add(ref));
      return witnessOf(purse, fromHex(tx));
    },
    signData: (at, message) => signedMessage(purse, fromHex(at), fromHex(message)),
  };
}

/** Lovelace that lie free at the purse's address. */
export async function balanceOf(purse: Purse, door: Door, magic: number): Promise<bigint> {
  return (await rowsAt(door, purse.address(magic))).filter(isPlain).reduce((sum, row) => sum + lovelaceOf(row), 0n);
}

/** The network that *door* shows, by its magic number. */
export async function networkOf(door: Door): Promise<number> {
  const answer = await fetch(`${door.url}/genesis`, { headers: headersOf(door) }).catch(() => null);
  if (!answer?.ok) throw away(door, answer);
  const { network_magic: magic } = (await answer.json()) as { network_magic: number };
  return magic;
}

const away = ({ url }: Door, answer: Response | null) => new Unreachable(`the chain at ${url} ${answer ? `answered ${answer.status}` : "cannot be reached"}`);
const refOf = ({ tx_hash: tx, output_index: index }: Row): string => `${tx}#${index}`;

async function rowsAt(door: Door, address: string): Promise<Row[]> {
  const found: Row[] = [];
  for (let page = 1; ; page++) {
    const path = `${door.url}/addresses/${address}/utxos?count=${PAGE}&page=${page}`;
    const answer = await fetch(path, { headers: headersOf(door) }).catch(() => null);
    if (answer?.status === 404) return found; // an address that was never used
    if (!answer?.ok) throw away(door, answer);
    const rows = (await answer.json()) as Row[]; // each field is looked at where the outputs are judged
    found.push(...rows);
    if (rows.length < PAGE) return found;
  }
}

const lovelaceOf = ({ amount }: Row): bigint => BigInt(amount.find(({ unit }) => unit === "lovelace")?.quantity ?? 0);

/** ADA and nothing else: tokens that somebody sent, and outputs with a script or datum, are left where they are. */
const isPlain = (row: Row): boolean =>
  row.amount.every(({ unit }) => unit === "lovelace") && !row.inline_datum && !row.data_hash && !row.reference_script_hash;

const outputsOf = (rows: Row[], address: Bytes): string[] =>
  rows.filter(isPlain).map((row) => {
    const output = new Map<number, unknown>([[0, address], [1, lovelaceOf(row)]]);
    return toHex(encode([[fromHex(row.tx_hash), row.output_index], output]));
  });

async function witnessOf(purse: Purse, tx: Bytes): Promise<string> {
  const signature = await sign(purse.signer.privateKey, blake2b(nth(rawItems(tx), 0)));
  return toHex(encode(new Map([[0, [[purse.signer.verifyKey, signature]]]])));
}

/** CIP-8: a COSE_Sign1 and its COSE_Key, as marketplace/domain/signin.py makes them. */
async function signedMessage(purse: Purse, address: Bytes, message: Bytes): Promise<{ signature: string; key: string }> {
  const headers = encode(new Map<unknown, unknown>([[1, -8], ["address", address]]));
  const signature = await sign(purse.signer.privateKey, encode(["Signature1", headers, new Uint8Array(), message]));
  const key = new Map<number, unknown>([[1, 1], [3, -8], [-1, 6], [-2, purse.signer.verifyKey]]);
  return { signature: toHex(encode([headers, { hashed: false }, message, signature])), key: toHex(encode(key)) };
}
