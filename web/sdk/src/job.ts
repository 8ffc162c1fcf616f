// A job of this consumer: what it prints, how it ends, what it gives back, and its bill.

import { createHash } from "node:crypto";

import { whole } from "../../assets/chain/ledger.js";
import { asked, readEvidence, type Evidence } from "../../assets/money/evidence.js";
import type { Bill } from "../../assets/money/verify.js";
import { pause } from "../../assets/net/http.js";
import type { components } from "../generated/api.js";
import { mayPass } from "./agree.js";
import type { Consumer, JobView } from "./consumer.js";
import type { Follower } from "./follow.js";
import { Refusal } from "./refusal.js";
import { verify } from "./verify.js";

const LOOK_MS = 1000;

export type Output = components["schemas"]["Output"];

export class Job {
  constructor(
    readonly id: string,
    readonly consumer: Consumer,
    /** Null for a job that another process follows. */
    readonly follower: Follower | null,
  ) {}

  /** As the market shows it now. */
  async view(): Promise<JobView> {
    return (await this.consumer.market.get(`/v1/jobs/${this.id}`)) as JobView;
  }

  /** Its last view, once it has ended and its last receipt is answered; a refusal that ended it is thrown. */
  async done(): Promise<JobView> {
    if (this.follower) return this.follower.over;
    for (;;) {
      const view = await this.view();
      if (view.state === "ENDED") return view;
      await pause(LOOK_MS);
    }
  }

  /** Ask for its end; what was delivered until then is owed. */
  async stop(): Promise<void> {
    await this.consumer.market.post(`/v1/jobs/${this.id}/stop`);
  }

  /** Lines of its output from the beginning, as they come; they outlive the lease. */
  async* logs(): AsyncGenerator<string> {
    const heard = new Map<string, number>(); // offset of the last piece by lease: a retry's log follows the first's
    let held = "";
    for (let over = false; !over; ) {
      try {
        for await (const [name, data] of this.consumer.market.events(`/v1/jobs/${this.id}/logs?follow=true`)) {
          over = name === "end";
          if (over) break;
          const { lease, offset, text } = data as components["schemas"]["LogLine"];
          if (offset <= (heard.get(lease) ?? -1)) continue; // told before the line was cut
          heard.set(lease, offset);
          const lines = (held + text).split("\n");
          held = lines.pop() ?? "";
          yield* lines;
        }
      } catch (error) {
        if (!mayPass(error)) throw error;
        await pause(LOOK_MS);
      }
    }
    if (held) yield held;
  }

  /** What it gave back. */
  async outputs(): Promise<Output[]> {
    return ((await this.consumer.market.get(`/v1/jobs/${this.id}/outputs`)) as components["schemas"]["Outputs"]).items;
  }

  /** The bytes of one, once their hash is the one that was announced. OUTPUT_REFUSED. */
  async output({ sha256, path }: Output): Promise<Uint8Array> {
    const bytes = await this.consumer.market.bytes(`/v1/jobs/${this.id}/outputs/${sha256}`);
    if (createHash("sha256").update(bytes).digest("hex") === sha256) return bytes;
    throw new Refusal("OUTPUT_REFUSED", `${path} does not hash to ${sha256}`, "ask for it again; if it stays so, the market or its disk is at fault");
  }

  /** What its bill is made of, all of it signed: for {@link verify}, or to be kept. */
  async invoice(): Promise<Evidence> {
    const { market } = this.consumer;
    const evidence = readEvidence(await market.getText(`/v1/jobs/${this.id}/invoice`));
    return whole(asked(evidence, this.id), (path) => market.getText(path));
  }

  /** Its bill, recomputed here and compared with the chain and with the own books. */
  async bill(): Promise<Bill> {
    return verify(await this.invoice(), { chain: this.consumer.door, books: await this.consumer.vault.all() });
  }

  /** Its bill once every channel of it has ended on the chain with what was due. NOT_SETTLED. A kept channel ends later. */
  async settled(withinMs = 300_000): Promise<Bill> {
    for (const until = Date.now() + withinMs; ; ) {
      const bill = await this.bill().catch((error: unknown) => {
        if (mayPass(error) || (error instanceof Refusal && error.code === "CHAIN_UNREAD")) return null;
        throw error;
      });
      if (bill?.reconciled) return bill;
      if (Date.now() > until) throw new Refusal("NOT_SETTLED", `the channel of ${this.id} has not ended yet`, "ask again; a provider that is gone is left by `Tally.closeOnChain`");
      await pause(LOOK_MS);
    }
  }
}
