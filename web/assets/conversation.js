// The payer's side of the market's socket (marketplace/domain/conversation.py): hello, numbered
// messages that are kept until they are acknowledged, and nothing handled twice.

import { decode, encode } from "./cbor.js";
import { sign } from "./crypto.js";
import { Refused } from "./records.js";

const VERSION = 1;
const SOFTWARE = "tally-console/0.1";

export const frame = (kind, body) => encode([VERSION, kind, body]);

/** `{kind, body}`: fields and numbered messages that are not known here are skipped, but not those whose name says that they may not be. */
export function unframe(bytes) {
  const value = decode(bytes);
  if (!Array.isArray(value) || value.length !== 3 || value[0] !== VERSION) throw new Refused("WIRE_REFUSED", "not a frame of this version");
  const [, kind, fields] = value;
  const body = fields instanceof Map ? {} : fields;
  const critical = [kind, ...Object.keys(body)].find((name) => String(name).startsWith("!"));
  if (critical) throw new Refused("WIRE_REFUSED", `${critical} is not known here`);
  return { kind, body };
}

export class Conversation {
  /**
   * *key* from `crypto.newKey`, *session* 16 random bytes: one of each for a page's life. *origin*: the
   * market's, as this page dials it; all that is signed names it, so that no other market can use it.
   */
  constructor(key, session, magic, origin) {
    Object.assign(this, { key, session, magic, origin, sent: 0, received: 0, unacked: [], open: false, market: "", nonce: null });
    this.speakers = new Map();
  }

  hello() {
    this.open = false;
    const { key, session, received, magic, origin } = this;
    return frame("Hello", { role: "payer", key: key.verifyKey, session, received, magic, software: SOFTWARE, market: origin });
  }

  /** The next numbered frame; it is sent again after a reconnect until it is acknowledged. */
  wrap(kind, body) {
    const payload = frame(kind, body);
    this.sent += 1;
    this.unacked.push({ seq: this.sent, kind, body, payload });
    return frame("Data", { seq: this.sent, payload });
  }

  acknowledgement() {
    return frame("Ack", { seq: this.received });
  }

  /** `{answers, message, opened}` of one frame; Refused when the market does not want us. */
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
        throw new Refused("WIRE_REFUSED", `unexpected ${kind}`);
    }
  }

  /** What proves that we speak for a channel: signed over this connection's nonce. */
  async subscription({ sessionVk, privateKey }) {
    const text = encode(["tally/subscribe/v2", this.nonce, this.origin, sessionVk]);
    return { session_vk: sessionVk, signature: await sign(privateKey, text) };
  }

  /** A subscription that was never acknowledged is signed anew: an old nonce proves nothing now. */
  async renew() {
    for (const kept of this.unacked.filter(({ kind }) => kind === "Subscribe")) {
      const speaker = this.speakers.get(kept.body.session_vk.join("."));
      if (speaker) kept.payload = frame("Subscribe", await this.subscription(speaker));
    }
  }

  /** The numbered frame that subscribes to a channel; null while an earlier one is still on its way. */
  async subscribe(speaker) {
    const name = speaker.sessionVk.join(".");
    this.speakers.set(name, speaker);
    const waits = this.unacked.some(({ kind, body }) => kind === "Subscribe" && body.session_vk.join(".") === name);
    return waits ? null : this.wrap("Subscribe", await this.subscription(speaker));
  }

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

  take({ seq, payload }) {
    if (seq <= this.received) return undefined;
    if (seq !== this.received + 1) throw new Refused("HELLO_REFUSED", `message ${seq} after ${this.received}`);
    this.received = seq;
    return unframe(payload);
  }
}
