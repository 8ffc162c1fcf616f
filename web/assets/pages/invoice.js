// The invoice page verifies itself: signatures, hash chain, sums, and the ledger.

import { getText, pause, token } from "../net/api.js";
import { door } from "../chain/chosen.js";
import { networkFees, shownOf, whole } from "../chain/ledger.js";
import { byId } from "../ui/dom.js";
import { asked, Broken, readEvidence } from "../money/evidence.js";
import { make } from "../ui/live.js";
import { KINDS } from "../money/kinds.js";
import { lackingIn } from "../money/ownbooks.js";
import { ada, duration, rate, short } from "../money/units.js";
import { write } from "../crypto/strictjson.js";
import { all } from "../money/vault.js";
import { reconcile } from "../money/verify.js";

/**
 * @import { Door } from "../chain/door.js"
 * @import { Evidence, Facts } from "../money/evidence.js"
 * @import { Bill } from "../money/verify.js"
 */

/** @type {{[rule: string]: string}} */
const RULES = {
  I1: "both sides signed the terms",
  I2: "the channel is the one of the terms",
  I3: "the provider signed every receipt",
  I4: "the receipts are one unbroken chain, and every total follows",
  I5: "devices and resource are the terms', within the ceiling",
  I6: "the vouchers are yours",
  I7: "no more was claimed than was delivered and you signed for",
  I8: "what went in is what was claimed, came home and is still held",
  I9: "no more was used than there was time for",
  I10: "the terms are of this job",
  I11: "a lease over a router has one route, and its hops are those of the route",
  I12: "the provider was paid what it says",
  MALFORMED: "the evidence can be read in one way only",
};
const AGAIN_MS = 2500;
const job = byId("invoice").dataset.job ?? "";

export async function start() {
  byId("print").onclick = () => print();
  if (!token()) return;
  for (;;) {
    const settled = await check().catch((error) => {
      say(make("p", { class: "problem", role: "alert" }, error.message));
      return false;
    });
    if (settled) return;
    await pause(AGAIN_MS);
  }
}

const say = (/** @type {Node[]} */ ...parts) => byId("verdict").replaceChildren(...parts);

/** Whether all is said: the bill is settled, or can be compared with nothing. */
async function check() {
  try {
    const given = getText(`/v1/jobs/${job}/invoice`).then((text) => whole(asked(readEvidence(text), job), getText));
    const [evidence, at] = await Promise.all([given, door()]);
    return await judged(evidence, at);
  } catch (error) {
    if (error instanceof Broken) return broken(error);
    throw error;
  }
}

/** @type {(evidence: Evidence, at: Door | null) => Promise<boolean>} */
async function judged(evidence, at) {
  offerToSave(evidence);
  if (!evidence.leases.length) {
    say(make("p", {}, "Nothing was agreed, so nothing is owed."));
    return evidence.state === "ENDED";
  }
  const over = evidence.state === "ENDED";
  const { ledger, elsewhere, ...shown } = await shownOf(evidence, at, over);
  const trouble = at ? shown.trouble : "this market names no public chain to compare with: choose one on the Account page";
  const invoice = await reconcile(evidence, ledger);
  if (elsewhere) return broken(elsewhere);
  const lacking = lackingIn(evidence, await all());
  if (lacking.length) return incomplete(lacking);
  verdict(invoice, ledger, trouble);
  bill(invoice, await networkFees(evidence, at));
  return invoice.reconciled || Boolean(trouble && over);
}

function broken(/** @type {Broken} */ error) {
  say(make("p", { class: "problem", role: "alert" }, `This bill does not hold (${error.rule}: ${RULES[error.rule]}). ${error.message}.`),
    make("p", {}, "Save the evidence: it shows what was signed."));
  return false;
}

function incomplete(/** @type {string[]} */ lacking) {
  say(make("p", { class: "problem", role: "alert" }, `This bill is not the whole one: ${lacking.join("; ")}.`),
    make("p", {}, "Save the evidence: this browser's books show what it lacks."));
  return false;
}

/** @type {(invoice: Bill, ledger: (Facts | null)[], trouble: string) => void} */
function verdict(invoice, ledger, trouble) {
  const told = ledger.some(Boolean);
  const rows = Object.entries(RULES).filter(([rule]) => rule !== "MALFORMED").map(([rule, text]) => {
    const checked = told || !["I7", "I8"].includes(rule);
    return make("li", { class: checked ? "ok" : "" }, text, checked ? "" : " (the chain was not asked)");
  });
  const line =
    invoice.reconciled ? make("p", { class: "good verdict", id: "reconciled" }, make("span", { class: "seal", "aria-hidden": "true" }, "✓"), invoice.unshown ? `Verified to the lovelace, as far as this bill shows it: ${ada(invoice.unshown)} more were claimed for leases that it does not show.` : "Verified to the lovelace: receipts, vouchers and chain agree.")
    : told ? make("p", { id: "so-far" }, "Everything holds so far. The channel is still open: it is compared again once it has ended.")
    : make("p", { id: "so-far" }, `What was signed holds. ${trouble || "The chain shows no block with this channel yet"}.`);
  say(line, make("ul", { class: "checks" }, ...rows));
}

/** @type {(name: string, value: string, hint?: string) => HTMLElement} */
const fact = (name, value, hint) => make("div", {}, make("dt", {}, name), make("dd", { class: "fit" }, value, hint ? make("small", {}, hint) : ""));
/** @type {(name: string, value: string, hint?: string, class_?: string) => HTMLElement} */
const row = (name, value, hint, class_) => make("div", { class: class_ }, make("dt", {}, name, hint ? make("small", {}, hint) : ""), make("dd", {}, value));

/** @type {(invoice: Bill, fees: bigint | null) => void} */
function bill(invoice, fees) {
  const place = byId("bill");
  place.hidden = false;
  /** @type {HTMLElement[]} */
  const rows = [];
  for (const line of invoice.lines) {
    rows.push(row(`Lease ${short(line.lease, 14)}`, ada(line.owed), `${duration(line.unit_ms)} of ${KINDS[line.resource].word} time at ${rate(line.rate_micro)}, ${line.ticks} ticks`));
    const way = invoice.routes?.find(({ lease }) => lease === line.lease);
    if (way) rows.push(row("Router's fee", ada(way.fee), `${way.route_bps} of 10000; ${ada(way.reached)} have reached the provider`));
    rows.push(...line.lost.map(({ cause, ms }) => row(`Not billed: ${cause.replaceAll("_", " ")}`, ada(0), duration(ms))));
  }
  const routed = invoice.route_fee ?? 0n;
  const sum = fees === null ? "—" : ada(invoice.owed + routed + fees);
  const parts = [sums(invoice, fees === null ? "not known" : ada(fees), sum), make("section", { class: "card" }, make("h2", {}, "Line by line"), make("dl", { class: "bill" }, ...rows, row("Compute", ada(invoice.owed), "to the provider"),
    routed ? row("Router", ada(routed), "its fee") : "",
    row("Network fees", fees === null ? "not known" : ada(fees), fees === null ? "no chain says them" : "of opening the channel; the provider pays for its end"),
    row("Total", sum, "", "total")))];
  if (invoice.ahead > 0n) parts.push(make("p", { class: "hint" }, `${ada(invoice.ahead)} were signed ahead and not delivered: an allowance, none of which may be claimed.`));
  if (invoice.withheld) parts.push(make("p", { class: "hint" }, `${ada(invoice.withheld)} were signed for to the router and are not seen to have reached the provider.`));
  if (invoice.unsigned > 0n) parts.push(make("p", { class: "hint" }, `${ada(invoice.unsigned)} were delivered and not paid for: the provider's loss.`));
  place.replaceChildren(...parts);
}

/**
 * What was owed, signed for, put in and came home, over each channel and hop.
 * @type {(invoice: Bill, fees: string, paid: string) => HTMLElement}
 */
function sums(invoice, fees, paid) {
  const total = make("dl", { class: "tiles" }, fact("Owed", ada(invoice.owed)), fact("Network fees", fees), fact("Total", paid));
  const own = (/** @type {Facts | null} */ found) => found && total.append(fact("Put in", ada(found.funded)), fact(found.ended ? "Came home" : "Still in the channel", ada(found.ended ? found.refunded : found.held)));
  for (const { facts: found, signed } of invoice.channels) {
    total.append(fact("Signed for", ada(signed)));
    own(found);
  }
  for (const { into, signed, facts: found } of invoice.hops ?? []) {
    total.append(fact(into ? "Signed for, to the router" : "Signed by the router", ada(signed)));
    if (into) own(found);
  }
  return total;
}

function offerToSave(/** @type {Evidence} */ evidence) {
  const button = byId("save");
  button.hidden = false;
  button.onclick = () => {
    const blob = new Blob([write(evidence)], { type: "application/json" });
    const link = make("a", { href: URL.createObjectURL(blob), download: `${job}.invoice.json` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
}
