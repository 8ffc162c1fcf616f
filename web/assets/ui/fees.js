// What a quote says of the chain's fees, and when its job starts: the figures that the API and the command line say.

import { amount } from "./amounts.js";
import { startWords } from "./starts.js";
import { make } from "./live.js";

/** @import { ExpectedStart, JobFees, RouteFees } from "../net/answers.js" */

/** @type {(name: string, value: Node | string, hint?: Node | string) => HTMLElement} */
const row = (name, value, hint = "") => make("div", {}, make("dt", {}, name, make("small", {}, hint)), make("dd", {}, value));

/**
 * Who pays the chain what for a job, and how small a job may be; nothing where nobody says it. *minimum*: what its provider wants it to be able to cost.
 * @type {(fees: JobFees | null | undefined, minimum: number) => HTMLElement[]}
 */
export function feeRows(fees, minimum) {
  const least = minimum ? make("span", {}, "this provider takes none that cannot cost ", amount(minimum)) : "";
  if (!fees) return minimum ? [row("The smallest job", amount(minimum), least)] : [];
  const rows = [
    row("You pay the network", amount(fees.consumer), fees.consumer ? "at most, for this transaction" : "the channel is open already"),
    row("The provider pays it", amount(fees.provider), make("span", {}, "for the channel's end; nothing where others' end with it (", amount(fees.together), ", which the market pays)")),
  ];
  if (fees.smallest) rows.push(row("The smallest job that makes sense", amount(fees.smallest), make("span", {}, "below it the network takes more than the provider gets", least ? "; " : "", least)));
  return rows;
}

/**
 * The same job over the market's router, which only programs speak to: a wallet opens a channel to its provider.
 * @type {(routed: RouteFees | null | undefined) => HTMLElement | string}
 */
export const routedRow = (routed) =>
  routed?.carried
    ? row("Or over the market's router", amount(routed.fee), make("span", {}, `at most, ${routed.route_bps / 100} % of the price, and no transaction once your purse has a channel to it: `, make("code", {}, "tally job run --route routed")))
    : "";

/**
 * When a job on a new channel starts. *allowance*: lovelace that its provider serves before a block holds the channel.
 * @type {(allowance: number) => HTMLElement}
 */
export const startRow = (allowance) =>
  allowance
    ? row("Starts", "at once", make("span", {}, "up to ", amount(allowance), " are served before the channel's block"))
    : row("Starts", "after a block", "20 s or more on a public network");

/**
 * How soon it runs then; nothing where nobody can say.
 * @type {(expected: ExpectedStart | null | undefined) => HTMLElement | string}
 */
export const expectedRow = (expected) => (expected ? row("Then it runs in", startWords(expected), "by what is on the provider's host, and its last starts") : "");
