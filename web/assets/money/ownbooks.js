// A bill beside this browser's books: what was left out of evidence leaves no trace in it, but who answered
// the receipts has them. The rule is that of marketplace/client/payer/own_books.py.

import { fromHex } from "../crypto/bytes.js";
import { readReceipt, readTerms } from "./records.js";

/**
 * @import { Whole } from "../crypto/cbor.js"
 * @import { Stored } from "./books.js"
 * @import { Evidence } from "./evidence.js"
 */

/**
 * What *books* know of the evidence's job and it lacks, a text for each lease. The evidence was judged before.
 * @param {Evidence} evidence
 * @param {Stored[]} books
 * @returns {string[]}
 */
export function lackingIn(evidence, books) {
  /** @type {Map<string, Whole>} */
  const told = new Map();
  for (const channel of evidence.channels) {
    for (const row of channel.receipts) {
      const receipt = readReceipt(fromHex(row.body));
      told.set(`${channel.session_vk} ${receipt.lease}`, receipt.seq);
    }
  }
  /** @type {string[]} */
  const lacking = [];
  for (const book of books) {
    for (const [name, lease] of Object.entries(book.leases ?? {})) {
      if (!lease.last || readTerms(lease.terms).job !== evidence.job) continue;
      const shown = told.get(`${book.id} ${name}`) ?? 0;
      const known = readReceipt(lease.last).seq;
      if (known > shown) lacking.push(shown ? `lease ${name} ends here with receipt ${shown}, and this browser has answered ${known}` : `lease ${name} is left out, and this browser has answered its receipts up to ${known}`);
    }
  }
  return lacking;
}
