// One consumer at one market: what every part of this client stands on.

import type { Door } from "../../assets/chain/door.js";
import type { Paying, Stored } from "../../assets/money/books.js";
import { unfinished } from "../../assets/money/payer.js";
import { readTerms } from "../../assets/money/records.js";
import type { Payer } from "../../assets/paying/payer.js";
import type { Ground } from "../../assets/wallet/ground.js";
import type { components } from "../generated/api.js";
import type { Listeners } from "./listeners.js";
import type { MarketApi } from "./market.js";
import type { Purse } from "./purse.js";
import type { FileVault } from "./vault.js";

/** A job as the market shows it. */
export type JobView = components["schemas"]["Job"];

export interface Consumer {
  market: MarketApi;
  purse: Purse;
  vault: FileVault;
  payer: Payer;
  ground: Ground;
  door: Door;
  said: Listeners;
  /** How long a channel stays open for a next job once it is idle; 0: it ends with its job. */
  keepMs: number;
  /** Values of secrets by job, for as long as this process lives. */
  secrets: Map<string, { [name: string]: string }>;
}

/** Whether a lease of *job* is in *book*, and may still have receipts. */
export const pays = (book: Paying, job: string): boolean =>
  unfinished(book).some(([, lease]) => readTerms(lease.terms).job === job);

/** The job that *book* was posted with or agreed to and is not done with; "" if it is with none. */
export function jobOf(book: Stored): string {
  if (book.state === "OPEN" && book.leases) return unfinished({ leases: book.leases }).map(([, lease]) => readTerms(lease.terms).job)[0] ?? "";
  return book.state === "ENDED" ? "" : book.job ?? "";
}
