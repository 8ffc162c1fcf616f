// The client's verifier answers tests/golden/invoices.json, and the bytes that are signed are the pinned ones.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const golden = (name) => JSON.parse(readFileSync(new URL(`../golden/${name}.json`, import.meta.url), "utf8"));
const { Broken, evidenceText, readEvidence, reconcile, verify } = await import(process.env.TALLY_SDK);
const from = (path) => import(new URL(`../../assets/${path}`, process.env.TALLY_SDK));
const cases = golden("invoices");

const judged = async (evidence, ledger) => {
  try {
    return await reconcile(readEvidence(evidence), ledger);
  } catch (error) {
    return error;
  }
};

test("there are vectors of every rule", () => {
  assert.ok(cases.length > 500);
  assert.ok(new Set(cases.map(({ rule }) => rule)).size >= 13);
});

test("each vector is answered with its rule, or with its bill", async () => {
  for (const { name, evidence, ledger, rule, expect } of cases) {
    const answer = await judged(evidence, ledger);
    assert.equal(answer instanceof Broken ? answer.rule : "", rule, `${name}: ${answer.message ?? ""}`);
    if (rule) continue;
    const bill = { owed: Number(answer.owed), unsigned: Number(answer.unsigned), reconciled: answer.reconciled };
    assert.deepEqual(bill, { owed: expect.owed, unsigned: expect.unsigned, reconciled: expect.reconciled }, name);
    for (const [i, line] of answer.lines.entries()) {
      const { lease, ticks, unit_ms, owed } = expect.lines[i];
      assert.deepEqual([line.lease, line.ticks, line.unit_ms, Number(line.owed)], [lease, ticks, unit_ms, owed], name);
    }
  }
});

test("evidence that is written is read as it was", async () => {
  const { evidence } = cases.find(({ rule }) => !rule);
  assert.deepEqual(readEvidence(evidenceText(readEvidence(evidence))), readEvidence(evidence));
});

test("without a chain nothing reconciles, and own books show what was left out", async () => {
  const { evidence, expect } = cases.find(({ rule, expect: is }) => !rule && is.reconciled);
  const bill = await verify(evidence);
  assert.equal(bill.reconciled, false);
  assert.equal(Number(bill.owed), expect.owed);
  const given = readEvidence(evidence);
  const { readReceipt, readTerms } = await from("money/records.js");
  const { fromHex } = await from("crypto/bytes.js");
  const channel = given.channels[0];
  const last = fromHex(channel.receipts.at(-1).body);
  const { lease } = readReceipt(last);
  const terms = fromHex(given.leases.find((one) => readTerms(fromHex(one.terms)).lease === lease).terms);
  const books = [{ id: channel.session_vk, leases: { [lease]: { terms, last } } }];
  assert.equal((await verify(evidence, { books })).reconciled, false); // nothing is lacking
  assert.equal(readTerms(terms).job, given.job);
  given.channels[0].receipts.pop();
  await assert.rejects(verify(given, { books }), (error) => error.code === "BILL_INCOMPLETE" || assert.fail(String(error)));
});

test("what is signed has the pinned bytes", async () => {
  const { endMessage, readReceipt, readTerms, voucherMessage } = await from("money/records.js");
  const { fromHex, toHex } = await from("crypto/bytes.js");
  const pinned = golden("signed_bytes");
  assert.equal(toHex(voucherMessage(1900)), pinned.voucher_message_1900);
  const { session_vk } = readTerms(fromHex(pinned.terms));
  assert.equal(toHex(endMessage(session_vk, 1900)), pinned.end_message);
  assert.equal(toHex(readReceipt(fromHex(pinned.receipt)).hash), pinned.receipt_hash);
});

test("transactions are judged as by everybody else", async () => {
  const { judge } = await from("chain/judge.js");
  const { fromHex } = await from("crypto/bytes.js");
  const { wanted, cases: given } = golden("judged");
  const known = Object.fromEntries(Object.entries(wanted).map(([step, w]) => [step, {
    ...w, own: w.own.map(fromHex), least: BigInt(w.least), most: BigInt(w.most), references: new Map(Object.entries(w.references)),
    consts: Object.fromEntries(Object.entries(w.consts).map(([k, v]) => [k, typeof v === "string" ? fromHex(v) : v])),
    utxos: new Map(Object.entries(w.utxos).map(([ref, n]) => [ref, { lovelace: BigInt(n) }])),
    channel: w.channel && { ...w.channel, address: fromHex(w.channel.address), lovelace: BigInt(w.channel.lovelace), claimed: BigInt(w.channel.claimed) },
  }]));
  assert.ok(given.length > 150);
  for (const one of given) {
    const wrong = judge(fromHex(one.tx), known[one.wanted]).checks.filter(({ ok }) => !ok).map(({ code }) => code);
    assert.deepEqual(wrong, one.wrong, one.name);
  }
});
