// Money, time and size as people read them. Money is BigInt lovelace wherever it is computed.

/** @import { Whole } from "../crypto/cbor.js" */

/**
 * `₳12.34`: exact, two to six decimals.
 * @param {Whole} lovelace
 */
export function ada(lovelace) {
  const value = BigInt(lovelace);
  const digits = (value < 0n ? -value : value).toString().padStart(7, "0");
  const part = digits.slice(-6).replace(/0{1,4}$/, "");
  return `${value < 0n ? "−" : ""}₳${group(digits.slice(0, -6))}.${part}`;
}

/**
 * `₳1.668`: four digits at most, as people compare; the exact amount belongs in its title (ui/amounts.js).
 * @param {Whole} lovelace
 */
export function about(lovelace) {
  const value = BigInt(lovelace);
  const whole = value < 0n ? -value : value;
  const unit = 10n ** BigInt(Math.max(0, whole.toString().length - 4));
  const rounded = ((whole + unit / 2n) / unit) * unit;
  const text = ada(value < 0n ? -rounded : rounded);
  return whole >= 1_000_000_000n ? text.replace(/\.00$/, "") : text;
}

/**
 * Lovelace an hour of micro-lovelace a second, floored.
 * @param {Whole} micro
 */
export const hourly = (micro) => (BigInt(micro) * 3600n) / 1_000_000n;

/** @type {(whole: string) => string} */
const group = (whole) => whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");

/**
 * `1900 lovelace/s` of micro-lovelace per unit-second.
 * @param {Whole} micro
 */
export function rate(micro) {
  const text = (BigInt(micro)).toString().padStart(7, "0");
  const part = text.slice(-6).replace(/0+$/, "");
  return `${group(text.slice(0, -6))}${part ? `.${part}` : ""} lovelace/s`;
}

/**
 * Lovelace of *unitMs* at *micro*, floored, as the terms say.
 * @type {(unitMs: Whole, micro: Whole) => bigint}
 */
export const owed = (unitMs, micro) => (BigInt(unitMs) * BigInt(micro)) / 1_000_000_000n;

/**
 * Delivered unit-milliseconds of *heldMs* at *unitsMilli*, floored.
 * @type {(heldMs: Whole, unitsMilli: Whole) => bigint}
 */
export const unitMs = (heldMs, unitsMilli) => (BigInt(heldMs) * BigInt(unitsMilli)) / 1000n;

/** @type {[string, number][]} */
const SECONDS = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];
/** @type {[string, number][]} */
const BYTES = [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]];
const MS = new Map([["s", 1000], ["m", 60_000], ["h", 3_600_000], ["d", 86_400_000]]);

/**
 * `1h 2m`: the two largest parts.
 * @param {Whole} ms
 */
export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  let seconds = Math.floor(Number(ms) / 1000);
  const parts = [];
  for (const [unit, one] of SECONDS) {
    if (seconds >= one) {
      parts.push(`${Math.floor(seconds / one)}${unit}`);
      seconds %= one;
    }
  }
  return parts.slice(0, 2).join(" ");
}

/**
 * Lovelace of `1.5` ADA; null for what is no amount, or more than a number holds to the lovelace.
 * @param {string} text
 */
export function parseAda(text) {
  const match = /^\s*₳?\s*(\d{1,12})(?:[.,](\d{1,6}))?\s*(?:ADA|ada|₳)?\s*$/.exec(text);
  const lovelace = match ? Number(`${match[1]}${(match[2] ?? "").padEnd(6, "0")}`) : null;
  return Number.isSafeInteger(lovelace) ? lovelace : null;
}

/**
 * Milliseconds of `90s`, `15m`, `6h`, `2d`; null for what is none.
 * @param {string} text
 */
export function parseDuration(text) {
  const [, count, unit = ""] = /^\s*(\d{1,9})\s*(s|m|h|d)\s*$/.exec(text) ?? [];
  const one = MS.get(unit);
  return one ? Number(count) * one : null;
}

/**
 * `512 bytes`, `12.3 KB`, `4.0 MB` of a file.
 * @param {number} count
 */
export function size(count) {
  const unit = BYTES.find(([, least]) => count >= least);
  return unit ? `${(Math.floor((count * 10) / unit[1]) / 10).toFixed(1)} ${unit[0]}` : `${count} bytes`;
}

/** @type {(text: string, size?: number) => string} */
export const short = (text, letters = 10) => (text.length > letters + 2 ? `${text.slice(0, letters)}…` : text);
