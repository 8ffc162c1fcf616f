// A payer's line to the market: a socket that is dialled again whenever it breaks, and one conversation over all of
// them.

import { pause } from "../net/http.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Conversation, Sent, Speaker, Told } from "../net/conversation.js"
 */

/**
 * What is used of a WebSocket, the browser's or another.
 * @typedef {object} Socket
 * @property {string} binaryType
 * @property {number} readyState
 * @property {((event: any) => void) | null} onopen
 * @property {((event: any) => void) | null} onmessage
 * @property {((event: any) => void) | null} onclose
 * @property {((event: any) => void) | null} onerror
 * @property {(bytes: Bytes) => void} send
 * @property {() => void} close
 */

/**
 * Who holds the line. *inTurn*: nothing else is done meanwhile. *broke*: with what broke it, if anything did.
 * @typedef {object} Holder
 * @property {(work: () => Promise<unknown>) => Promise<unknown>} inTurn
 * @property {() => Promise<void>} opened
 * @property {(message: Told) => Promise<void>} told
 * @property {(error: unknown) => void} broke
 */

const OPEN = 1;
const PAUSES = [200, 500, 1000, 2000];
const PAUSE_MOST = 5000;
const STEADY_MS = 10_000; // a connection that lasted so long is dialled again at once

export class Line {
  /**
   * @param {Conversation} talk
   * @param {() => Socket} dial
   * @param {() => number} now
   */
  constructor(talk, dial, now) {
    this.talk = talk;
    this.dial = dial;
    this.now = now;
    this.closed = false;
    /** @type {Socket | null} */
    this.socket = null;
  }

  /**
   * Until it is closed for good.
   * @param {Holder} holder
   */
  async hold(holder) {
    for (let attempt = 0; !this.closed; attempt++) {
      const before = this.now();
      await this.connection(holder).then(() => holder.broke(null), holder.broke);
      if (this.now() - before > STEADY_MS) attempt = 0;
      if (!this.closed) await pause(PAUSES[attempt] ?? PAUSE_MOST);
    }
  }

  close() {
    this.closed = true;
    this.socket?.close();
  }

  /** @type {(holder: Holder) => Promise<void>} */
  connection(holder) {
    return new Promise((done, failed) => {
      const socket = this.dial();
      this.socket = socket;
      socket.binaryType = "arraybuffer";
      socket.onopen = () => socket.send(this.talk.hello());
      socket.onmessage = ({ data }) => holder.inTurn(() => this.step(new Uint8Array(data), socket, holder).catch((error) => {
        socket.close();
        failed(error);
      }));
      socket.onclose = () => {
        this.talk.open = false;
        done();
      };
      socket.onerror = () => socket.close();
    });
  }

  /** @type {(bytes: Bytes, socket: Socket, holder: Holder) => Promise<void>} */
  async step(bytes, socket, holder) {
    const before = this.talk.received;
    const { answers, message, opened } = await this.talk.receive(bytes);
    answers.forEach((answer) => socket.send(answer));
    if (opened) await holder.opened();
    if (message) await holder.told(message);
    if (this.talk.received !== before) socket.send(this.talk.acknowledgement());
  }

  /**
   * Now if the line is open, else once it is.
   * @template {keyof Sent} K
   * @param {K} kind
   * @param {Sent[K]} body
   */
  send(kind, body) {
    this.put(this.talk.wrap(kind, body));
  }

  /** @param {Speaker} speaker */
  async subscribe(speaker) {
    const bytes = await this.talk.subscribe(speaker);
    if (bytes) this.put(bytes);
  }

  /** @param {Bytes} bytes */
  put(bytes) {
    if (this.talk.open && this.socket?.readyState === OPEN) this.socket.send(bytes);
  }
}
