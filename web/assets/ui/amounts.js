// Money on a page: four digits as people compare it, the exact amount in its title.

import { about, ada, hourly, rate } from "../money/units.js";
import { make } from "./live.js";

/** @import { Whole } from "../crypto/cbor.js" */

/** @param {Whole} lovelace */
export const amount = (lovelace) => make("span", { class: "ada", title: ada(lovelace) }, about(lovelace));

/**
 * `≈ $2.11 · €1.95` of *lovelace*, as the operator's price source says; nothing where none is known.
 * @param {Whole} lovelace
 */
export function fiat(lovelace) {
  const { usd, eur, priced } = document.body.dataset;
  /** @type {[string, string | undefined][]} */
  const known = [["$", usd], ["€", eur]];
  const parts = known.flatMap(([sign, micro]) => (micro && micro !== "0" ? [`${sign}${other(lovelace, BigInt(micro))}`] : []));
  if (!parts.length) return "";
  return make("span", { class: "fiat", title: `at the price of ${new Date(Number(priced)).toLocaleString()}` }, `≈ ${parts.join(" · ")}`);
}

/** @type {(lovelace: Whole, micro: bigint) => string} */
function other(lovelace, micro) {
  const whole = (BigInt(lovelace) * micro + 500_000n) / 1_000_000n;
  if (whole > 0n && whole < 1_000_000n) return about(whole).replace("₳", "");
  return ada(((whole + 5_000n) / 10_000n) * 10_000n).replace("₳", "");
}

/**
 * `₳4.68 an hour`, the rate of the terms in its title.
 * @param {Whole} micro
 */
export const price = (micro) => make("span", { class: "ada", title: `${ada(hourly(micro))} an hour, ${rate(micro)}` }, `${about(hourly(micro))} an hour`);
