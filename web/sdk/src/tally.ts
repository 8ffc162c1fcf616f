// A market, a purse and a chain: everything that a consumer does there. The payer runs inside for as long as this is
// open; what it has agreed to is on disk before it is said, and goes on at the next `connect` after a crash.

import { join } from "node:path";

import WebSocket from "ws";

import type { Door } from "../../assets/chain/door.js";
import { toHex } from "../../assets/crypto/bytes.js";
import type { Said } from "../../assets/paying/orders.js";
import { pause } from "../../assets/net/http.js";
import type { Socket } from "../../assets/paying/line.js";
import { Payer } from "../../assets/paying/payer.js";
import { finish, reusable } from "../../assets/wallet/agree.js";
import type { Ground } from "../../assets/wallet/ground.js";
import { signedStep } from "../../assets/wallet/steps.js";
import type { components } from "../generated/api.js";
import { mayPass, strand, type RunOptions } from "./agree.js";
import { jobOf, type Consumer, type JobView } from "./consumer.js";
import { Follower } from "./follow.js";
import { Job } from "./job.js";
import { Listeners } from "./listeners.js";
import { Lock } from "./lock.js";
import { MarketApi } from "./market.js";
import type { Purse } from "./purse.js";
import { Refusal } from "./refusal.js";
import { specOf, type JobAsked } from "./spec.js";
import { FileVault } from "./vault.js";
import { balanceOf, networkOf, walletOf } from "./wallet.js";

const SOFTWARE = "tally-sdk/0.1";
const KEEP_MS = 600_000; // as every client of a consumer (marketplace/domain/money/keep.py)
const CHANNELS_MOST = 100; // as many as a job may name
const LEAVE_MS = 5000;

export interface ConnectOptions {
  /** The market's address: TALLY_MARKET without. */
  market?: string;
  purse: Purse;
  /** *Your* view of the chain, a Blockfrost-compatible address: TALLY_CHAIN_URL (and TALLY_PROJECT_ID) without. */
  chain?: Door | string;
  /** How long a channel stays open for a next job once it is idle; 0: it ends with its job. Ten minutes without. */
  keepMs?: number;
}

export class Tally {
  /** Jobs that another start of this purse began, and that go on. */
  readonly resumed: Job[] = [];
  readonly #followers = new Map<string, Follower>();

  private constructor(
    readonly consumer: Consumer,
    readonly magic: number,
    readonly lock: Lock,
  ) {}

  /**
   * Sign in, take up the purse's books, and pay from now on. WRONG_NETWORK, CHAIN_MISSING, CHANNEL_HELD where another
   * process pays from this purse, JOURNAL_DAMAGED, MARKET_AWAY.
   */
  static async connect(options: ConnectOptions): Promise<Tally> {
    const { purse } = options;
    const door = doorOf(options.chain);
    const market = new MarketApi(originOf(options.market ?? process.env.TALLY_MARKET ?? ""));
    const { magic } = await market.network();
    await sameChain(door, magic);
    const folder = join(purse.home, "sdk");
    const lock = await Lock.take(folder);
    let payer: Payer | null = null;
    try {
      const vault = await FileVault.open(folder, purse);
      const wallet = walletOf(purse, door, magic);
      await market.signIn(wallet, magic);
      const said = new Listeners();
      const read = (path: string) => market.get(path).catch((error: unknown) => {
        if (mayPass(error)) throw error;
        return null;
      });
      const paying = await Payer.of({ vault, say: (message) => said.tell(message), read, dial: () => dial(market.origin), origin: market.origin, software: SOFTWARE, now }, magic);
      payer = paying;
      const secrets = new Map<string, { [name: string]: string }>();
      const ground: Ground = {
        market, magic, vault,
        order: async (order) => {
          await paying.order(order);
          if (vault.fault) throw vault.fault;
        },
        connect: async () => wallet,
        door: async () => door,
        alone: oneAtATime(),
        secrets: async ({ job = "" }) => secrets.get(job) ?? {},
      };
      const tally = new Tally({ market, purse, vault, payer: paying, ground, door, said, keepMs: options.keepMs ?? KEEP_MS, secrets }, magic, lock);
      void paying.pay(); // it says what goes wrong, and ends with `close`
      await tally.#takeUp();
      return tally;
    } catch (error) {
      payer?.line.close();
      await lock.release();
      throw error;
    }
  }

  /**
   * Post a job, agree to its quote, and pay for it in the background; once it is agreed to. A refusal says why not:
   * NO_MATCH and the like of the market, QUOTE_REFUSED, QUOTE_DECLINED, FUNDS_SHORT, JOB_ENDED.
   */
  async run(asked: JobAsked, options: RunOptions = {}): Promise<Job> {
    const { market, purse, vault, secrets } = this.consumer;
    const made = await specOf(asked, () => this.offers());
    for (const [sha256, bytes] of made.blobs) await market.put(`/v1/blobs/${sha256}`, bytes);
    const ids: string[] = [];
    for (let count = 0; count <= made.spec.policy.retry_max; count++) {
      const { verifyKey, privateKey } = await purse.newSession();
      const id = toHex(verifyKey);
      await vault.keep({ id, privateKey, state: "NEW", made: Date.now(), account: purse.account, spec: made.spec });
      ids.push(id);
    }
    const [first = "", ...spares] = ids;
    const channels = (await reusable(vault, purse.account)).map(({ id }) => id).slice(0, CHANNELS_MOST);
    const body = { spec: made.spec, session_vk: first, consumer_vkh: purse.account, channels, spares };
    const view = (await market.post("/v1/jobs", body, { once: options.key ?? first }).catch(async (error: unknown) => {
      if (!mayPass(error)) await this.#forget(ids); // the market refused it: its keys are nobody's
      throw error;
    })) as JobView;
    secrets.set(view.id, made.secrets);
    for (const book of await vault.all()) if (ids.includes(book.id)) await vault.keep({ ...book, job: view.id });
    const job = this.#follow(view.id, options);
    await this.#followers.get(view.id)?.begun;
    return job;
  }

  /** A job that exists, by its id. */
  job(id: string): Job {
    return new Job(id, this.consumer, this.#followers.get(id) ?? null);
  }

  /** Standing supply. */
  offers(): Promise<components["schemas"]["Offer"][]> {
    return this.consumer.market.all("/v1/offers");
  }

  /** Lovelace that lie free in the purse. */
  balance(): Promise<bigint> {
    return balanceOf(this.consumer.purse, this.consumer.door, this.magic);
  }

  /** The chain that this client looks at. */
  get chain(): Door {
    return this.consumer.door;
  }

  /** Hear every tick, note and stage of the payer; the answer ends it. */
  hear(listener: (said: Said) => void): () => void {
    return this.consumer.said.add(listener);
  }

  /** Session keys of the channels that are open here. */
  async channels(): Promise<string[]> {
    return (await this.consumer.vault.open()).map(({ id }) => id);
  }

  /** Ask the provider to end a channel that is kept open: what is not owed comes home. */
  async finish(channel: string): Promise<void> {
    await this.consumer.ground.order({ do: "finish", id: channel });
  }

  /** Begin to close a channel without its provider, by a transaction of the purse's; the close period follows. Its id. */
  closeOnChain(channel: string): Promise<string> {
    return signedStep(this.consumer.ground, channel, "close", 0);
  }

  /** Pay no longer; what was said is heard by the market first, if it answers. Jobs that run are paused, and soon end. */
  async close(): Promise<void> {
    this.#followers.forEach((follower) => follower.stop());
    const { line } = this.consumer.payer;
    for (const until = Date.now() + LEAVE_MS; line.talk.unacked.length && Date.now() < until; ) await pause(20);
    line.close();
    await this.consumer.payer.turn;
    await this.lock.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #follow(id: string, options: RunOptions): Job {
    this.#followers.set(id, new Follower(this.consumer, id, options));
    return this.job(id);
  }

  async #forget(ids: string[]): Promise<void> {
    for (const id of ids) {
      await this.consumer.vault.forget(id);
      await this.consumer.purse.forgetSession(id);
    }
  }

  /**
   * What a start before this one left: what the wallet had signed is sent again, a job that was agreed to goes on,
   * and one that was not is stopped, for nothing was paid for it.
   */
  async #takeUp(): Promise<void> {
    const { vault, ground, market } = this.consumer;
    for (const book of await vault.all()) {
      if (book.begun) await finish(ground, book, book.begun).catch((error: unknown) => (mayPass(error) ? undefined : strand(this.consumer, book)));
    }
    const books = await vault.all();
    const agreed = new Set(books.filter(({ state }) => state !== "NEW").map(jobOf).filter(Boolean));
    for (const book of books.filter(({ state }) => state === "NEW")) {
      if (book.job && agreed.has(book.job)) continue;
      if (book.job) await market.post(`/v1/jobs/${book.job}/stop`).catch((error: unknown) => { if (mayPass(error)) throw error; });
      await this.#forget([book.id]);
    }
    for (const id of agreed) this.resumed.push(this.#follow(id, {}));
  }
}

/** Milliseconds, monotonic within this process's life. */
const now = (): number => performance.timeOrigin + performance.now();

/** Of `ws`, whose events are those of the browser's socket. */
const dial = (origin: string): Socket => new WebSocket(`${origin.replace(/^http/, "ws")}/v1/payer`) as unknown as Socket;

function originOf(address: string): string {
  if (!address) throw new Refusal("MARKET_MISSING", "no market was named", "pass `market`, or set TALLY_MARKET");
  return new URL(address).origin;
}

function doorOf(chain: Door | string | undefined): Door {
  const [url, project] = [process.env.TALLY_CHAIN_URL ?? "", process.env.TALLY_PROJECT_ID ?? ""];
  const given = chain ?? { url, project };
  const door: Door = typeof given === "string" ? { url: given } : given;
  if (!door.url) throw new Refusal("CHAIN_MISSING", "no chain was named: the market's word about money is not taken", "pass `chain`, or set TALLY_CHAIN_URL");
  return { ...door, url: door.url.replace(/\/+$/, "") };
}

/** WRONG_NETWORK where market and chain are not of one network. */
async function sameChain(door: Door, magic: number): Promise<void> {
  const found = await networkOf(door);
  if (found !== magic) throw new Refusal("WRONG_NETWORK", `the market is on network ${magic}, the chain is ${found}`, "point `chain` at the network of the market");
}

/** *work* of one name follows other work of that name. */
function oneAtATime(): Ground["alone"] {
  const last = new Map<string, Promise<void>>();
  return (name, work) => {
    const turn = (last.get(name) ?? Promise.resolve()).catch(() => {}).then(work);
    last.set(name, turn);
    return turn;
  };
}
