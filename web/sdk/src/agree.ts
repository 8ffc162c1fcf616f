// A quote answered: examined, agreed to and paid for as the browser does (web/assets/wallet/agree.js), or declined.

import { standing, Unreachable } from "../../assets/chain/chain.js";
import { Unread } from "../../assets/chain/descent.js";
import type { Paying, Stored } from "../../assets/money/books.js";
import type { Terms } from "../../assets/money/records.js";
import type { JobView as Quoted } from "../../assets/net/answers.js";
import { Problem } from "../../assets/net/http.js";
import { accept, acceptWarm, examine, finish, prepare, Short, type Agreed } from "../../assets/wallet/agree.js";
import type { Consumer, JobView } from "./consumer.js";
import { Refusal } from "./refusal.js";

/** What a job will cost, as its provider has signed it; money is lovelace. */
export interface Offered {
  job: string;
  lease: string;
  provider: string;
  resource: "gpu" | "core" | "disk";
  /** Thousandths of a device or core. */
  unitsMilli: bigint;
  /** Micro-lovelace for a unit-second. */
  rateMicro: bigint;
  ceiling: bigint;
  maxDurationMs: bigint;
  /** Whether it is paid from a channel that is open already. */
  warm: boolean;
}

export interface RunOptions {
  /** Asked before anything is signed, for every provider that the job goes on at; without it the job's limits decide. */
  confirm?: (offered: Offered) => boolean | Promise<boolean>;
  /**
   * Sign ahead for the whole job once it delivers, so that it outlives this process. The risk: a dishonest provider
   * could take all of its ceiling, delivered or not, and the invoice would prove it. Without it two ticks are at risk.
   */
  ahead?: boolean;
  /** Makes the posting idempotent. */
  key?: string;
}

/** Answer the quote of *view*. QUOTE_DECLINED, QUOTE_REFUSED, FUNDS_SHORT, … */
export async function answer(consumer: Consumer, view: JobView, { confirm, ahead = false }: RunOptions): Promise<void> {
  const { ground } = consumer;
  const examined = await examine(ground, quoted(view));
  if (examined.mine.begun) return finish(ground, examined.mine, examined.mine.begun);
  if (confirm && !(await confirm(offered(view.id, examined)))) throw new Refusal("QUOTE_DECLINED", `${view.id}: the quote was declined`, "nothing was signed or paid");
  const agreed: Agreed = { ...examined, aheadMs: ahead ? Number(examined.terms.max_duration_ms) : 0 };
  if (agreed.warm) return acceptWarm(ground, { ...agreed, warm: agreed.warm });
  return ground.alone("spend", async () => { // of two transactions at once one would take the other's outputs
    const ready = await prepare(ground, agreed).catch((error: unknown) => { throw shortOf(error, consumer, agreed.terms); });
    await accept(ground, agreed, ready, Math.min(agreed.keepMs, consumer.keepMs));
  });
}

/** Not checked by the compiler: of the answer only the signed bytes are believed, and `examine` reads those. */
const quoted = (view: JobView): Quoted => view as unknown as Quoted;

const offered = (job: string, { terms, warm }: Agreed): Offered => ({
  job, lease: terms.lease, provider: terms.provider, resource: terms.resource, unitsMilli: BigInt(terms.units_milli),
  rateMicro: BigInt(terms.rate_micro), ceiling: BigInt(terms.ceiling), maxDurationMs: BigInt(terms.max_duration_ms), warm: warm !== null,
});

function shortOf(error: unknown, { purse }: Consumer, { magic }: Terms): unknown {
  if (!(error instanceof Short)) return error;
  return new Refusal("FUNDS_SHORT", `the purse has ${error.holds} lovelace, and this job needs ${error.needs}`, `send ADA to ${purse.address(Number(magic))}`);
}

/** Whether asking again could help: the world failed, nobody refused. What `fetch` throws of a line is a TypeError with its cause. */
export function mayPass(error: unknown): boolean {
  if (error instanceof Problem) return error.status >= 500;
  return error instanceof Unreachable || (error instanceof TypeError && error.cause !== undefined);
}

/**
 * The wallet signed for a channel whose lease will not be: if the chain shows it, its end is asked for. If not, its
 * transaction may still come: the book waits for the next start.
 */
export async function strand(consumer: Consumer, book: Stored): Promise<void> {
  const { ground, vault, door } = consumer;
  const [lease] = Object.keys(book.leases ?? {});
  const channel = await standing(door, book.id, book.openTx ?? "").catch((error: unknown) => {
    if (error instanceof Unread) return null; // nothing is signed about what cannot be read
    throw error;
  });
  if (!lease || !channel) return;
  const { begun: _, ...rest } = book;
  const open: Stored = { ...rest, state: "OPEN", keep: false, keepMs: 0 };
  await vault.keep(open as Paying); // agreed to, so it has all that a paying book has
  await ground.order({ do: "watch", id: book.id });
  await ground.order({ do: "over", id: book.id, lease });
}
