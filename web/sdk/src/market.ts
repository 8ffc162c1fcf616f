// The market's API for a purse: signed in, and signed in again when a session is over.

import { Api, pause, Problem, problemOf, type CallOptions } from "../../assets/net/http.js";
import { messageOf } from "../../assets/crypto/bytes.js";
import type { WalletApi } from "../../assets/wallet/cip30.js";
import { signInBy } from "../../assets/wallet/signin.js";
import type { components } from "../generated/api.js";
import { Refusal } from "./refusal.js";

const SPENT = 401;
const TOO_MANY = 429;
const WAITS_MS = [1000, 2000, 4000, 8000];
const PAGE = 100; // rows of one answer

export class MarketApi extends Api {
  #token = "";

  /** *key*: an API key instead of signing in. */
  constructor(origin: string, readonly key = "") {
    super(origin, () => this.#token || key);
  }

  /** Facts of the market; nobody has signed in yet. MARKET_AWAY. */
  async network(): Promise<components["schemas"]["Network"]> {
    return (await this.get("/v1/network").catch((error: unknown) => {
      if (error instanceof Problem) throw error;
      throw new Refusal("MARKET_AWAY", `${this.origin} cannot be reached: ${messageOf(error)}`, "check the market's address");
    })) as components["schemas"]["Network"];
  }

  /** Sign *wallet*'s account in; what it signs is read before. */
  async signIn(wallet: WalletApi, magic: number): Promise<void> {
    const renew = async () => {
      this.#token = (await signInBy(wallet, this, this.origin, magic)).token;
    };
    await renew();
    this.#renew = renew;
  }

  #renew: (() => Promise<void>) | null = null;

  override async call(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<unknown> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await super.call(method, path, body, options);
      } catch (error) {
        const status = error instanceof Problem ? error.status : 0;
        if (status === SPENT && this.#renew && options.bearer === undefined && attempt === 0) await this.#renew();
        else if (status === TOO_MANY && attempt < WAITS_MS.length) await pause(WAITS_MS[attempt] ?? 0);
        else throw error;
      }
    }
  }

  /** Every item of a list. */
  async all<Item>(path: string): Promise<Item[]> {
    const found: Item[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const query = new URLSearchParams({ limit: String(PAGE), ...(cursor && { cursor }) });
      const page = (await this.get(`${path}?${query}`)) as { items: Item[]; next: string | null };
      found.push(...page.items);
      cursor = page.next;
    }
    return found;
  }

  /** Bytes to the market, named by their hash. */
  async put(path: string, bytes: Uint8Array): Promise<void> {
    const headers = { Authorization: `Bearer ${this.bearer()}`, "Content-Type": "application/octet-stream" };
    const answer = await fetch(this.origin + path, { method: "PUT", headers, body: new Uint8Array(bytes) });
    if (!answer.ok) throw await problemOf(answer);
  }

  /** Bytes from it. */
  async bytes(path: string): Promise<Uint8Array> {
    const answer = await fetch(this.origin + path, { headers: { Authorization: `Bearer ${this.bearer()}` } });
    if (!answer.ok) throw await problemOf(answer);
    return new Uint8Array(await answer.arrayBuffer());
  }
}
