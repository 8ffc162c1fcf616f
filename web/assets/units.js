// Money, time and size as people read them. Money is BigInt lovelace wherever it is computed.

/** `₳12.34`: exact, two to six decimals. */
export function ada(lovelace) {
  const value = BigInt(lovelace);
  const digits = (value < 0n ? -value : value).toString().padStart(7, "0");
  const part = digits.slice(-6).replace(/0{1,4}$/, "");
  return `${value < 0n ? "−" : ""}₳${group(digits.slice(0, -6))}.${part}`;
}

const group = (whole) => whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** `1900 lovelace/s` of micro-lovelace per unit-second. */
export function rate(micro) {
  const text = (BigInt(micro)).toString().padStart(7, "0");
  const part = text.slice(-6).replace(/0+$/, "");
  return `${group(text.slice(0, -6))}${part ? `.${part}` : ""} lovelace/s`;
}

/** Lovelace of *unitMs* at *micro*, floored, as the terms say. */
export const owed = (unitMs, micro) => (BigInt(unitMs) * BigInt(micro)) / 1_000_000_000n;

/** Delivered unit-milliseconds of *heldMs* at *unitsMilli*, floored. */
export const unitMs = (heldMs, unitsMilli) => (BigInt(heldMs) * BigInt(unitsMilli)) / 1000n;

/** `1h 2m`: the two largest parts. */
export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  let seconds = Math.floor(Number(ms) / 1000);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    if (seconds >= size) {
      parts.push(`${Math.floor(seconds / size)}${unit}`);
      seconds %= size;
    }
  }
  return parts.slice(0, 2).join(" ");
}

/** Lovelace of `1.5` ADA; null for what is no amount. */
export function parseAda(text) {
  const match = /^\s*₳?\s*(\d{1,12})(?:[.,](\d{1,6}))?\s*(?:ADA|ada|₳)?\s*$/.exec(text);
  return match ? Number(match[1]) * 1_000_000 + Number((match[2] ?? "").padEnd(6, "0")) : null;
}

/** Milliseconds of `90s`, `15m`, `6h`, `2d`; null for what is none. */
export function parseDuration(text) {
  const match = /^\s*(\d{1,9})\s*(s|m|h|d)\s*$/.exec(text);
  return match ? Number(match[1]) * { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2]] : null;
}

/** `512 bytes`, `12.3 KB`, `4.0 MB` of a file. */
export function size(count) {
  const unit = [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]].find(([, least]) => count >= least);
  return unit ? `${(Math.floor((count * 10) / unit[1]) / 10).toFixed(1)} ${unit[0]}` : `${count} bytes`;
}

export const short = (text, size = 10) => (text.length > size + 2 ? `${text.slice(0, size)}…` : text);
