// A job followed to its end: each quote is answered, and when all is over its books are put in order. What is to be
// done at a look is decided by `next`; the rest does it.

import { pause } from "../../assets/net/http.js";
import { answer, mayPass, strand, type RunOptions } from "./agree.js";
import { pays, type Consumer, type JobView } from "./consumer.js";
import { Refusal } from "./refusal.js";

const LOOK_MS = 1000; // what the payer's line tells sooner
const LAST_RECEIPT_MS = 10_000; // a lease that has ended for the market may still have one on its way

type Next = "wait" | "answer" | "over";

/** What is done about a job that looks like *view*, once the quote of lease *answered* had its answer. */
export function next({ state, quote }: Pick<JobView, "state" | "quote">, answered: string): Next {
  if (state === "ENDED") return "over";
  return state === "QUOTED" && quote && quote.lease !== answered ? "answer" : "wait";
}

export class Follower {
  /** Once the job is agreed to; a refusal, or that it ended before. */
  readonly begun: Promise<void>;
  /** Its last view, once its receipts are answered and its channel was told; a refusal that ended it. */
  readonly over: Promise<JobView>;
  #answered = "";
  #refusal: unknown = null;
  #begin: (error?: unknown) => void = () => {};
  #stopped = false;
  #wake = () => {};

  constructor(
    readonly consumer: Consumer,
    readonly job: string,
    readonly options: RunOptions,
  ) {
    this.begun = new Promise((done, failed) => {
      this.#begin = (error) => (error === undefined ? done() : failed(error));
    });
    this.begun.catch(() => {}); // whoever waits hears of it; nobody has to
    this.over = this.#follow();
    this.over.catch(() => {});
  }

  /** Follow no longer: this process closes. */
  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  async #follow(): Promise<JobView> {
    const silence = this.consumer.said.add((said) => {
      if (said.what === "stage" && said.job === this.job) this.#wake();
    });
    try {
      while (!this.#stopped) {
        const view = await this.#look();
        const what = view ? next(view, this.#answered) : "wait";
        if (view && what === "over") return await this.#end(view);
        if (view && what === "answer") await this.#answer(view);
        else if (view && !["POSTED", "QUEUED", "QUOTED"].includes(view.state)) this.#begin();
        await this.#pause();
      }
      throw new Refusal("CLOSED", `${this.job} is not followed any more`, "connect again: it goes on from where it stands");
    } catch (error) {
      this.#begin(error); // nothing happens if it had begun
      throw error;
    } finally {
      silence();
    }
  }

  async #look(): Promise<JobView | null> {
    if (this.consumer.vault.fault) throw this.consumer.vault.fault;
    try {
      return (await this.consumer.market.get(`/v1/jobs/${this.job}`)) as JobView;
    } catch (error) {
      if (mayPass(error)) return null; // the market is away: it is asked again
      throw error;
    }
  }

  async #answer(view: JobView): Promise<void> {
    try {
      await answer(this.consumer, view, this.options);
      this.#answered = view.quote?.lease ?? "";
      this.#begin();
    } catch (error) {
      if (mayPass(error)) return; // the quote stands: answering again is safe
      this.#refusal = error;
      this.#answered = view.quote?.lease ?? "";
      for (const book of await this.consumer.vault.all()) if (book.job === this.job && book.begun) await strand(this.consumer, book);
      await this.consumer.market.post(`/v1/jobs/${this.job}/stop`).catch(() => {}); // the refusal is the one to say
      this.#begin(error);
    }
  }

  async #end(view: JobView): Promise<JobView> {
    const { vault, payer, purse, secrets } = this.consumer;
    const until = Date.now() + LAST_RECEIPT_MS;
    const paying = async () => (await vault.open()).some((book) => pays(book, this.job));
    while ((await paying()) && Date.now() < until && !this.#stopped) await this.#pause();
    if (await paying()) await payer.inTurn(() => payer.bury()); // its provider was lost, and will send none
    for (const book of await vault.all()) {
      if (book.job !== this.job || book.state !== "NEW") continue;
      await vault.forget(book.id);
      await purse.forgetSession(book.id);
    }
    secrets.delete(this.job);
    const ended = new Refusal("JOB_ENDED", `${this.job} ended before it began: ${view.reason} ${view.message}`.trim(), "the view of the job says why");
    this.#begin(this.#refusal ?? ended); // as above
    if (this.#refusal) throw this.#refusal;
    return view;
  }

  #pause(): Promise<void> {
    return Promise.race([pause(LOOK_MS), new Promise<void>((done) => {
      this.#wake = done;
    })]);
  }
}
