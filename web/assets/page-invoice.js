// The invoice page verifies itself: signatures, hash chain, sums, and the ledger.

import { getText, token } from "./api.js";
import { facts, Unreachable } from "./chain.js";
import { Unread } from "./descent.js";
import { door } from "./door.js";
import { fromHex } from "./bytes.js";
import { make } from "./live.js";
import { lackingIn } from "./ownbooks.js";
import { readReceipt, readTerms } from "./records.js";
import { ada, duration, rate, short } from "./units.js";
import { parse, write } from "./strictjson.js";
import { all } from "./vault.js";
import { asked, Broken, readEvidence, reconcile } from "./verify.js";

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
  MALFORMED: "the evidence can be read in one way only",
};
const AGAIN_MS = 2500;
const job = document.getElementById("invoice")?.dataset.job;

export async function start() {
  if (!token()) return;
  for (;;) {
    const settled = await check().catch((error) => {
      say(make("p", { class: "problem", role: "alert" }, error.message));
      return false;
    });
    if (settled) return;
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

const say = (...parts) => document.getElementById("verdict").replaceChildren(...parts);

/** What does not decode names nothing: the rules refuse it where it stands. */
function nameIn(read, body, field = "lease") {
  try {
    return read(fromHex(body))[field];
  } catch {
    return null;
  }
}

/** What a channel is paid in. */
const assetOf = (evidence, { session_vk }) => nameIn(readTerms, evidence.leases.find((row) => row.channel === session_vk)?.terms ?? "", "asset");

/** Terms of other jobs' leases whose receipts are in the same chain. */
async function whole(evidence) {
  const known = new Set(evidence.leases.map((row) => nameIn(readTerms, row.terms)));
  const named = new Set(evidence.channels.flatMap((channel) => channel.receipts.map((row) => nameIn(readReceipt, row.body))));
  for (const lease of named) {
    if (lease !== null && !known.has(lease)) evidence.leases.push(parse(await getText(`/v1/leases/${encodeURIComponent(lease)}`)));
  }
  return evidence;
}

async function check() {
  let evidence;
  let at;
  try {
    const given = getText(`/v1/jobs/${job}/invoice`).then((text) => whole(asked(readEvidence(text), job)));
    [evidence, at] = await Promise.all([given, door()]);
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    return broken(error);
  }
  offerToSave(evidence);
  if (!evidence.leases.length) {
    say(make("p", {}, "Nothing was agreed, so nothing is owed."));
    return evidence.state === "ENDED";
  }
  let trouble = at ? "" : "this market names no public chain to compare with: choose one on the Account page";
  const ledger = [];
  const elsewhere = []; // what was signed is judged before it
  for (const channel of evidence.channels) {
    try {
      ledger.push(at ? await facts(at.url, channel, assetOf(evidence, channel), evidence.state === "ENDED") : null);
    } catch (error) {
      if (error instanceof Broken) elsewhere.push(error);
      else if (error instanceof Unreachable || error instanceof Unread) trouble = error.message;
      else throw error;
      ledger.push(null);
    }
  }
  try {
    const invoice = await reconcile(evidence, ledger);
    if (elsewhere.length) return broken(elsewhere[0]);
    const lacking = lackingIn(evidence, await all());
    if (lacking.length) return incomplete(lacking);
    verdict(invoice, ledger, trouble);
    bill(invoice);
    return invoice.reconciled || Boolean(trouble && evidence.state === "ENDED");
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    return broken(error);
  }
}

function broken(error) {
  say(make("p", { class: "problem", role: "alert" }, `This bill does not hold (${error.rule}: ${RULES[error.rule]}). ${error.message}.`),
    make("p", {}, "Save the evidence: it shows what was signed."));
  return false;
}

function incomplete(lacking) {
  say(make("p", { class: "problem", role: "alert" }, `This bill is not the whole one: ${lacking.join("; ")}.`),
    make("p", {}, "Save the evidence: this browser's books show what it lacks."));
  return false;
}

function verdict(invoice, ledger, trouble) {
  const told = ledger.some(Boolean);
  const rows = Object.entries(RULES).filter(([rule]) => rule !== "MALFORMED").map(([rule, text]) => {
    const checked = told || !["I7", "I8"].includes(rule);
    return make("li", { class: checked ? "ok" : "" }, text, checked ? "" : " (the chain was not asked)");
  });
  const line =
    invoice.reconciled ? make("p", { class: "good verdict", id: "reconciled" }, make("span", { class: "seal", "aria-hidden": "true" }, "✓"), "Verified to the lovelace: receipts, vouchers and chain agree.")
    : told ? make("p", { id: "so-far" }, "Everything holds so far. The channel is still open: it is compared again once it has ended.")
    : make("p", { id: "so-far" }, `What was signed holds. ${trouble || "The chain shows no block with this channel yet"}.`);
  say(line, make("ul", { class: "checks" }, ...rows));
}

const fact = (name, value, hint) => make("div", {}, make("dt", {}, name), make("dd", {}, value, hint ? make("small", {}, hint) : ""));
const row = (name, value, hint, class_) => make("div", { class: class_ }, make("dt", {}, name, hint ? make("small", {}, hint) : ""), make("dd", {}, value));

function bill(invoice) {
  const place = document.getElementById("bill");
  place.hidden = false;
  const rows = [];
  for (const line of invoice.lines) {
    rows.push(row(`Lease ${short(line.lease, 14)}`, ada(line.owed), `${duration(line.unit_ms)} of ${line.resource === "gpu" ? "GPU" : "cores"} at ${rate(line.rate_micro)}, ${line.ticks} ticks`));
    rows.push(...line.lost.map(({ cause, ms }) => row(`Not billed: ${cause.replaceAll("_", " ")}`, ada(0), duration(ms))));
  }
  const total = make("dl", { class: "tiles" }, fact("Owed", ada(invoice.owed)));
  for (const { facts: found, signed } of invoice.channels) {
    total.append(fact("Signed for", ada(signed)));
    if (found) total.append(fact("Put in", ada(found.funded)), fact(found.ended ? "Came home" : "Still in the channel", ada(found.ended ? found.refunded : found.held)));
  }
  const parts = [total, make("section", { class: "card" }, make("h2", {}, "Line by line"), make("dl", { class: "bill" }, ...rows, row("Owed in all", ada(invoice.owed), "", "total")))];
  if (invoice.ahead > 0n) parts.push(make("p", { class: "hint" }, `${ada(invoice.ahead)} were signed ahead and not delivered: an allowance, none of which may be claimed.`));
  if (invoice.unsigned > 0n) parts.push(make("p", { class: "hint" }, `${ada(invoice.unsigned)} were delivered and not paid for: the provider's loss.`));
  place.replaceChildren(...parts);
}

function offerToSave(evidence) {
  const button = document.getElementById("save");
  button.hidden = false;
  button.onclick = () => {
    const blob = new Blob([write(evidence)], { type: "application/json" });
    const link = make("a", { href: URL.createObjectURL(blob), download: `${job}.invoice.json` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
}
