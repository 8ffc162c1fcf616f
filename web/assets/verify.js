// The invoice, recomputed in this browser from what both sides signed and from the ledger: the rules
// I1 to I8 of docs/invoice.md, in their order. The first that fails is the answer. The golden vectors
// of tests/golden/invoices.json hold for this verifier as for the other.

import { fromHex, toHex } from "./bytes.js";
import { verifies } from "./crypto.js";
import { brokenRule, constsOf, readReceipt, readTerms, voucherMessage } from "./records.js";

export class Broken extends Error {
  constructor(rule, message) {
    super(message);
    this.rule = rule;
  }
}

const need = (rule, holds, message) => {
  if (!holds) throw new Broken(rule, message);
};

function reading(rule, work) {
  try {
    return work();
  } catch (error) {
    throw error instanceof Broken ? error : new Broken(rule, error.message);
  }
}

/**
 * The invoice of `{job, leases, channels}`; Broken names the rule. *ledger*: for each channel
 * `{session_vk, consts, funded, claimed, refunded, held, ended}` or null. Money is BigInt.
 */
export async function reconcile(evidence, ledger = []) {
  const lines = [];
  const channels = [];
  for (const [i, channel] of evidence.channels.entries()) {
    const agreed = await terms(evidence, channel);
    const { last, byLease } = await receipts(channel, agreed);
    const signed = await voucher(channel);
    const due = big(last?.channel_owed);
    const facts = ledger[i] ?? null;
    if (facts) compare(channel, facts, agreed, signed, due);
    for (const [lease, found] of byLease) {
      const one = agreed.get(lease);
      if (one.job === evidence.job) lines.push(line(one, found));
    }
    channels.push({ channel: channel.session_vk, owed: due, signed, ahead: beyond(signed, due), facts });
  }
  const sum = (values) => values.reduce((a, b) => a + b, 0n);
  return {
    job: evidence.job, lines, channels,
    owed: sum(lines.map(({ owed }) => owed)),
    unsigned: sum(channels.map(({ owed, signed }) => beyond(owed, signed))),
    ahead: sum(channels.map(({ ahead }) => ahead)), // signed for beyond what was delivered: nobody's due
    reconciled: channels.length > 0 && channels.every(({ facts, signed, owed }) => facts?.ended && big(facts.claimed) === lesser(signed, owed)),
  };
}

const big = (value) => BigInt(value ?? 0);
const lesser = (a, b) => (a < b ? a : b);
const beyond = (a, b) => (a > b ? a - b : 0n);

async function terms(evidence, channel) {
  const found = new Map();
  for (const row of evidence.leases.filter((lease) => lease.channel === channel.session_vk)) {
    const body = reading("I1", () => fromHex(row.terms));
    const one = reading("I1", () => readTerms(body));
    need("I1", await verifies(one.adapter_vk, body, fromHex(row.adapter_signature)), "the provider did not sign the terms");
    need("I1", await verifies(one.session_vk, body, fromHex(row.session_signature)), "the session key did not sign the terms");
    need("I2", toHex(one.session_vk) === channel.session_vk, `lease ${one.lease} is on another channel`);
    need("I1", !found.has(one.lease), `lease ${one.lease} has two terms`);
    found.set(one.lease, one);
  }
  const rules = new Set([...found.values()].map((one) => `${one.magic}/${one.asset}/${constsOf(one)}`));
  need("I2", rules.size <= 1, "the leases of one channel name different payouts or rules");
  return found;
}

async function receipts(channel, agreed) {
  let last = null;
  const byLease = new Map();
  for (const row of channel.receipts) {
    const body = reading("I3", () => fromHex(row.body));
    const receipt = reading("I3", () => readReceipt(body));
    const one = agreed.get(receipt.lease);
    need("I3", one && toHex(receipt.session_vk) === channel.session_vk, `receipt ${receipt.seq} is for a lease without terms`);
    need("I3", await verifies(one.adapter_vk, body, fromHex(row.signature)), `receipt ${receipt.seq} is not signed by the provider`);
    const before = byLease.get(receipt.lease) ?? [];
    const wrong = brokenRule(receipt, last, before.at(-1) ?? null, one.rate_micro);
    need("I4", wrong === null, `receipt ${receipt.seq}: ${wrong}`);
    need("I5", receipt.resource === one.resource, `receipt ${receipt.seq} bills another resource than the terms'`);
    need("I5", toHex(receipt.device) === toHex(one.devices), `receipt ${receipt.seq} names other devices than the terms'`);
    need("I5", big(receipt.lease_owed) <= big(one.ceiling), `receipt ${receipt.seq} owes more than the ceiling`);
    byLease.set(receipt.lease, [...before, receipt]);
    last = receipt;
  }
  return { last, byLease };
}

async function voucher(channel) {
  const given = channel.voucher;
  if (!given) return 0n;
  const ok = await verifies(fromHex(channel.session_vk), voucherMessage(given.cumulative), fromHex(given.signature));
  need("I6", ok, "the voucher is not signed by the channel's session key");
  return big(given.cumulative);
}

function compare(channel, facts, agreed, signed, owed) {
  for (const one of agreed.values()) {
    const consts = [one.session_vk, one.adapter_vkh, one.payout, one.consumer_vkh].map(toHex).concat([one.close_period_ms, one.fee_bps].map(String));
    need("I2", facts.session_vk === channel.session_vk && facts.consts.map(String).join() === consts.join(), "the channel on the ledger is not the one of the terms");
  }
  const [claimed, refunded, held, funded] = [facts.claimed, facts.refunded, facts.held, facts.funded].map(big);
  need("I7", claimed <= signed, `${claimed} lovelace were claimed, ${signed} were signed for`);
  const over = `over-claimed ${claimed - owed}: ${claimed} lovelace were claimed, ${owed} were delivered; the ${signed - owed} signed ahead are an allowance, not a due`;
  need("I7", claimed <= owed, over);
  const due = lesser(signed, owed);
  need("I7", !facts.ended || claimed === due, `the channel ended with ${claimed} claimed, ${due} were due`);
  need("I8", funded === claimed + refunded + held, `${funded} went in; ${claimed} claimed, ${refunded} refunded and ${held} held are not that`);
}

function line(one, found) {
  const last = found.at(-1);
  const lost = new Map();
  for (const receipt of found) for (const [cause, ms] of receipt.lost) lost.set(cause, (lost.get(cause) ?? 0) + ms);
  return {
    lease: one.lease, provider: one.provider, resource: one.resource, rate_micro: one.rate_micro,
    units_milli: one.units_milli, ticks: found.length, lease_ms: last.t1_ms, unit_ms: last.unit_ms_total,
    owed: big(last.lease_owed), ceiling: big(one.ceiling), final: last.final,
    lost: [...lost].filter(([, ms]) => ms).sort().map(([cause, ms]) => ({ cause, ms })),
  };
}
