// A purse's address (CIP-19) as text (BIP-173, CIP-5).

import { concat, type Bytes } from "../../assets/crypto/bytes.js";

const LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const TURNS = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];

/** The address of a payment key with a key's stake part. */
export const baseAddress = (payment: Bytes, stake: Bytes, mainnet: boolean): Bytes =>
  concat(Uint8Array.of(mainnet ? 1 : 0), payment, stake);

/** Bech32 of an address's bytes. */
export function textOf(address: Bytes): string {
  const prefix = ((address[0] ?? 0) & 15) === 1 ? "addr" : "addr_test";
  const data = fives(address);
  return `${prefix}1${[...data, ...checksum(prefix, data)].map((value) => LETTERS[value]).join("")}`;
}

function fives(bytes: Bytes): number[] {
  const found: number[] = [];
  let [held, bits] = [0, 0];
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff;
    for (bits += 8; bits >= 5; bits -= 5) found.push((held >> (bits - 5)) & 31);
  }
  if (bits) found.push((held << (5 - bits)) & 31);
  return found;
}

function checksum(prefix: string, data: number[]): number[] {
  const letters = [...prefix].map((letter) => letter.charCodeAt(0));
  const spread = [...letters.map((code) => code >> 5), 0, ...letters.map((code) => code & 31)];
  let sum = 1;
  for (const value of [...spread, ...data, 0, 0, 0, 0, 0, 0]) {
    const top = sum >>> 25;
    sum = ((sum & 0x1ffffff) << 5) ^ value;
    TURNS.forEach((turn, bit) => {
      if ((top >> bit) & 1) sum ^= turn;
    });
  }
  return [0, 1, 2, 3, 4, 5].map((at) => ((sum ^ 1) >>> (5 * (5 - at))) & 31);
}
