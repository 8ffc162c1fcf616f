// Money on a page: four digits as people compare it, the exact amount in its title.

import { about, ada, hourly, rate } from "../money/units.js";
import { make } from "./live.js";

/** @import { Whole } from "../crypto/cbor.js" */

/** @param {Whole} lovelace */
export const amount = (lovelace) => make("span", { class: "ada", title: ada(lovelace) }, about(lovelace));

/**
 * `₳4.68 an hour`, the rate of the terms in its title.
 * @param {Whole} micro
 */
export const price = (micro) => make("span", { class: "ada", title: `${ada(hourly(micro))} an hour, ${rate(micro)}` }, `${about(hourly(micro))} an hour`);
