// A bill, recomputed from what both sides signed and compared with a chain that you trust: the rules of
// docs/invoice.md, by the browser's own verifier.

import { shownOf } from "../../assets/chain/ledger.js";
import type { Door } from "../../assets/chain/door.js";
import { readEvidence, type Evidence } from "../../assets/money/evidence.js";
import { lackingIn } from "../../assets/money/ownbooks.js";
import type { Stored } from "../../assets/money/books.js";
import { reconcile, type Bill } from "../../assets/money/verify.js";
import { Refusal } from "./refusal.js";

export interface VerifyOptions {
  /** The chain to compare with; without it the signatures and sums alone are checked, and nothing reconciles. */
  chain?: Door | null;
  /** Own books: evidence that leaves out what they know of is refused. */
  books?: Stored[];
}

/**
 * The bill that *evidence* (or its text, as the API and `tally invoice --evidence` give it) proves. `reconciled`: every
 * channel has ended on the chain with exactly what was due for the leases shown; `unshown` was claimed for others. Broken names the rule that does not hold; BILL_INCOMPLETE;
 * CHAIN_UNREAD where the chain cannot be read.
 */
export async function verify(evidence: Evidence | string, { chain = null, books = [] }: VerifyOptions = {}): Promise<Bill> {
  const given = typeof evidence === "string" ? readEvidence(evidence) : evidence;
  const { ledger, elsewhere, trouble } = await shownOf(given, chain, given.state === "ENDED");
  const bill = await reconcile(given, ledger); // what was signed is judged before what the chain shows
  if (elsewhere) throw elsewhere;
  if (trouble) throw new Refusal("CHAIN_UNREAD", trouble, "ask again, or compare with another chain's address");
  const lacking = lackingIn(given, books);
  if (lacking.length) throw new Refusal("BILL_INCOMPLETE", lacking.join("; "), "keep the evidence and your books: they show what it lacks");
  return bill;
}
