// The payer's side of the market's socket (marketplace/domain/protocol/conversation.py): hello, numbered
// messages that are kept until they are acknowledged, and nothing handled twice.

import { decode, encode } from "../crypto/cbor.js";
import { sign } from "../crypto/ed25519.js";
import { Refused } from "../money/records.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Stage } from "../money/records.js"
 */

/**
 * Frames of the connection itself that the market sends.
 * @typedef {{kind: "Challenge", body: {nonce: Bytes}} | {kind: "Welcome", body: {received: number, session: Bytes}} |
 *   {kind: "Data", body: {seq: number, payload: Bytes}} | {kind: "Ack", body: {seq: number}}} Greeting
 */

/**
 * Messages of the market to a payer. Kinds beyond these are not for this payer, which does nothing about them.
 * @typedef {{kind: "ReceiptSent", body: {lease: string, receipt: [body: Bytes, signature: Bytes]}} |
 *   {kind: "LeaseProgress", body: {lease: string, stage: Stage, at_ms: number, detail: {reason?: string, tx?: string}}} |
 *   {kind: "Rejected", body: {code: string, message: string}}} Told
 */

/**
 * Messages of a payer to the market, and the body of each.
 * @typedef {object} Sent
 * @property {{session_vk: Bytes, signature: Bytes}} Subscribe
 * @property {{lease: string, voucher: [session: Bytes, cumulative: bigint, signature: Bytes]}} VoucherSent
 * @property {{end: [session: Bytes, cumulative: bigint, signature: Bytes]}} EndSent
 * @property {{keep: [session: Bytes, keepMs: number, signature: Bytes]}} KeepSent
 * @property {{lease: string, reason: "PROVIDER_FAULT" | "CHANNEL_TWICE"}} StopAsked
 */

/** @typedef {{sessionVk: Bytes, privateKey: CryptoKey}} Speaker who may speak for a channel */
/** @typedef {{[K in keyof Sent]: {kind: K, body: Sent[K], seq: number, payload: Bytes}}[keyof Sent]} Unacked */

const VERSION = 1;

/** @type {(kind: string, body: object) => Bytes} */
export const frame = (kind, body) => encode([VERSION, kind, body]);

/**
 * The kind and body of a frame: fields and numbered messages that are not known here are skipped, but not those
 * whose name says that they may not be.
 * @param {Bytes} bytes
 * @returns {Greeting | Told}
 */
export function unframe(bytes) {
  const value = decode(bytes);
  if (!Array.isArray(value) || value.length !== 3 || value[0] !== VERSION) throw new Refused("WIRE_REFUSED", "not a frame of this version");
  const [, kind, fields] = value;
  const body = typeof fields === "object" && fields !== null && !(fields instanceof Map) ? fields : {};
  const critical = [String(kind), ...Object.keys(body)].find((name) => name.startsWith("!"));
  if (critical) throw new Refused("WIRE_REFUSED", `${critical} is not known here`);
  // Not checked by the compiler: a market whose frame has other fields is one whose connection is cut, for
  // whoever reads the field throws. What is signed in it, a receipt, is checked bytes for bytes.
  return /** @type {Greeting | Told} */ ({ kind, body });
}

export class Conversation {
  /**
   * *key* from `newKey`, *session* 16 random bytes: one of each for a page's life. *origin*: the
   * market's, as this page dials it; all that is signed names it, so that no other market can use it.
   * @param {{privateKey: CryptoKey, verifyKey: Bytes}} key
   * @param {Bytes} session
   * @param {number} magic
   * @param {string} origin
   * @param {string} software who speaks, for the market's log
   */
  constructor(key, session, magic, origin, software) {
    this.key = key;
    this.software = software;
    this.session = session;
    this.magic = magic;
    this.origin = origin;
    this.sent = 0;
    this.received = 0;
    /** @type {Unacked[]} */
    this.unacked = [];
    this.open = false;
    this.market = "";
    /** @type {Bytes | null} */
    this.nonce = null;
    /** @type {Map<string, Speaker>} */
    this.speakers = new Map();
  }

  hello() {
    this.open = false;
    const { key, session, received, magic, origin, software } = this;
    return frame("Hello", { role: "payer", key: key.verifyKey, session, received, magic, software, market: origin });
  }

  /**
   * The next numbered frame; it is sent again after a reconnect until it is acknowledged.
   * @template {keyof Sent} K
   * @param {K} kind
   * @param {Sent[K]} body
   */
  wrap(kind, body) {
    const payload = frame(kind, body);
    this.sent += 1;
    this.unacked.push(/** @type {Unacked} */ ({ seq: this.sent, kind, body, payload })); // *kind* and *body* belong together, as this method's types say
    return frame("Data", { seq: this.sent, payload });
  }

  acknowledgement() {
    return frame("Ack", { seq: this.received });
  }

  /**
   * `{answers, message, opened}` of one frame; Refused when the market does not want us.
   * @param {Bytes} bytes
   * @returns {Promise<{answers: Bytes[], message?: Told | undefined, opened?: boolean}>}
   */
  async receive(bytes) {
    const { kind, body } = unframe(bytes);
    switch (kind) {
      case "Challenge": {
        this.nonce = body.nonce;
        await this.renew();
        const { key, session, received, magic, origin } = this;
        const text = encode(["tally/hello/v2", body.nonce, origin, "payer", key.verifyKey, session, received, magic]);
        return { answers: [frame("Proof", { signature: await sign(key.privateKey, text) })] };
      }
      case "Welcome":
        return { answers: this.welcomed(body), opened: true };
      case "Data":
        return { answers: [], message: this.take(body) };
      case "Ack":
        this.unacked = this.unacked.filter(({ seq }) => seq > body.seq);
        return { answers: [] };
      case "Rejected":
        if (!this.open) throw new Refused(body.code, body.message);
        return { answers: [], message: { kind, body } };
      default:
        throw new Refused("WIRE_REFUSED", `unexpected ${String(kind)}`);
    }
  }

  /**
   * What proves that we speak for a channel: signed over this connection's nonce.
   * @param {Speaker} speaker
   */
  async subscription({ sessionVk, privateKey }) {
    const text = encode(["tally/subscribe/v2", this.nonce, this.origin, sessionVk]);
    return { session_vk: sessionVk, signature: await sign(privateKey, text) };
  }

  /** A subscription that was never acknowledged is signed anew: an old nonce proves nothing now. */
  async renew() {
    for (const kept of this.unacked) {
      if (kept.kind !== "Subscribe") continue;
      const speaker = this.speakers.get(kept.body.session_vk.join("."));
      if (speaker) kept.payload = frame("Subscribe", await this.subscription(speaker));
    }
  }

  /**
   * The numbered frame that subscribes to a channel; null while an earlier one is still on its way.
   * @param {Speaker} speaker
   */
  async subscribe(speaker) {
    const name = speaker.sessionVk.join(".");
    this.speakers.set(name, speaker);
    const waits = this.unacked.some((kept) => kept.kind === "Subscribe" && kept.body.session_vk.join(".") === name);
    return waits ? null : this.wrap("Subscribe", await this.subscription(speaker));
  }

  /** @param {{received: number, session: Bytes}} body */
  welcomed({ received, session }) {
    const market = session.join(".");
    this.unacked = this.unacked.filter(({ seq }) => seq > received);
    if (this.market && this.market !== market) {
      this.received = 0;
      this.unacked.forEach((kept, i) => (kept.seq = i + 1));
      this.sent = this.unacked.length;
    }
    this.market = market;
    this.open = true;
    return this.unacked.map(({ seq, payload }) => frame("Data", { seq, payload }));
  }

  /**
   * @param {{seq: number, payload: Bytes}} body
   * @returns {Told | undefined}
   */
  take({ seq, payload }) {
    if (seq <= this.received) return undefined;
    if (seq !== this.received + 1) throw new Refused("HELLO_REFUSED", `message ${seq} after ${this.received}`);
    this.received = seq;
    // A numbered frame carries a message, never a frame of the connection; one that does is like an unknown kind.
    return /** @type {Told} */ (unframe(payload));
  }
}
