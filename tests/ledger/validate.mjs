// Judges transactions by another ledger's rules: one {tx, context} a line in, one verdict (ValidationResult) a line out.
import { createInterface } from "node:readline";
import { validate_transaction_js } from "@cardananium/cquisitor-lib";

for await (const line of createInterface({ input: process.stdin })) {
  const { tx, context } = JSON.parse(line);
  let verdict;
  try {
    verdict = validate_transaction_js(tx, JSON.stringify(context));
  } catch (thrown) {
    verdict = JSON.stringify({ thrown: String((thrown && thrown.message) || thrown) });
  }
  process.stdout.write(`${verdict.replaceAll("\n", " ")}\n`);
}
