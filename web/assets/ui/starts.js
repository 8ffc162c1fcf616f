// What a start is expected to take, in words: those of the command line (marketplace/client/net/expected.py).

/** @import { ExpectedStart } from "../net/answers.js" */

/** `4 s, image here` or `about 90 s, 6 GB to pull at 70 MB/s`; empty where nobody can say. */
export function startWords(/** @type {ExpectedStart | null | undefined} */ expected) {
  if (!expected) return "";
  const took = time(expected.ms);
  if (expected.here) return `${took}, image here`;
  if (expected.pull_bytes === null) return `about ${took}, the whole image to pull`;
  return `about ${took}, ${size(expected.pull_bytes)} to pull${expected.bytes_s ? ` at ${size(expected.bytes_s)}/s` : ""}`;
}

function time(/** @type {number} */ ms) {
  if (ms < 10_000) return `${Math.max(1, Math.floor((ms + 50) / 100)) / 10} s`;
  if (ms < 180_000) return `${Math.floor((ms + 500) / 1000)} s`;
  return `${Math.floor((ms + 30_000) / 60_000)} min`;
}

function size(/** @type {number} */ count) {
  for (const [unit, name] of /** @type {[number, string][]} */ ([[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])) {
    if (count >= unit) {
      const tenths = Math.floor((count * 10 + unit / 2) / unit);
      return `${tenths % 10 ? `${Math.floor(tenths / 10)}.${tenths % 10}` : tenths / 10} ${name}`;
    }
  }
  return `${count} B`;
}
