// A market's HTTP API, and server-sent events over fetch: a token never stands in a URL.

/** @typedef {{code?: string, detail?: string, remedy?: string, fields?: {[field: string]: string}}} ProblemBody */
/** @typedef {{once?: string, bearer?: string, signal?: AbortSignal, raw?: boolean}} CallOptions */

/** What the API refused, and what helps. */
export class Problem extends Error {
  /**
   * @param {ProblemBody} body
   * @param {number} status
   */
  constructor(body, status) {
    super(body.detail || `the market answered ${status}`);
    this.code = body.code || `HTTP_${status}`;
    this.remedy = body.remedy || "";
    this.fields = body.fields || {};
    this.status = status;
  }
}

export class Api {
  /**
   * *origin*: what paths are relative to; "" where the market serves the page itself. *bearer*: the session's token.
   * @param {string} origin
   * @param {() => string} bearer
   */
  constructor(origin, bearer) {
    this.origin = origin;
    this.bearer = bearer;
  }

  /**
   * JSON of *path*; Problem for anything but success. *once* makes a POST repeatable.
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {CallOptions} [options]
   * @returns {Promise<any>} of the type that its caller states: one of answers.js
   */
  async call(method, path, body, { once = "", bearer = this.bearer(), signal, raw = false } = {}) {
    /** @type {{[name: string]: string}} */
    const headers = { Accept: "application/json" };
    if (bearer) headers.Authorization = `Bearer ${bearer}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (once) headers["Idempotency-Key"] = once;
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(this.origin + path, { method, headers, body: payload ?? null, signal: signal ?? null });
    if (!answer.ok) throw await problemOf(answer);
    return raw ? answer.text() : answer.json();
  }

  /** @type {(path: string, options?: CallOptions) => Promise<any>} */
  get(path, options) {
    return this.call("GET", path, undefined, options);
  }

  /**
   * What evidence is read from: how its text is read is for crypto/strictjson.js to say.
   * @type {(path: string) => Promise<string>}
   */
  getText(path) {
    return this.call("GET", path, undefined, { raw: true });
  }

  /** @type {(path: string, body?: unknown, options?: CallOptions) => Promise<any>} */
  post(path, body = {}, options = {}) {
    return this.call("POST", path, body, options);
  }

  /**
   * Events of *path* until it ends: `[name, data]`. Reconnecting is the caller's: it knows from where.
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {AsyncGenerator<[name: string, data: any]>}
   */
  async* events(path, signal) {
    const headers = { Accept: "text/event-stream", Authorization: `Bearer ${this.bearer()}` };
    const answer = await fetch(this.origin + path, { headers, signal: signal ?? null });
    if (!answer.ok) throw await problemOf(answer);
    if (!answer.body) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      const blocks = held.split("\n\n");
      held = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split("\n");
        const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
        const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        if (name) yield [name, JSON.parse(data || "null")];
      }
    }
  }
}

/** What *answer*, which is no success, says. */
export const problemOf = async (/** @type {Response} */ answer) => new Problem(await answer.json().catch(() => ({})), answer.status);

/** @type {(ms: number) => Promise<void>} */
export const pause = (ms) => new Promise((done) => {
  setTimeout(done, ms);
});
