// The market's HTTP API with the session's token, and server-sent events over fetch: a token never
// stands in a URL.

const TOKEN = "tally-token";

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

export const token = () => localStorage.getItem(TOKEN) ?? "";
/** @type {(value: string) => void} */
export const keepToken = (value) => localStorage.setItem(TOKEN, value);
export const dropToken = () => localStorage.removeItem(TOKEN);

/**
 * JSON of *path*; Problem for anything but success. *once* makes a POST repeatable.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {CallOptions} [options]
 * @returns {Promise<any>} of the type that its caller states: one of answers.js
 */
export async function call(method, path, body, { once = "", bearer = token(), signal, raw = false } = {}) {
  /** @type {{[name: string]: string}} */
  const headers = { Accept: "application/json" };
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (once) headers["Idempotency-Key"] = once;
  const payload = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method, headers, body: payload ?? null, signal: signal ?? null });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  return raw ? answer.text() : answer.json();
}

/** @type {(path: string, options?: CallOptions) => Promise<any>} */
export const get = (path, options) => call("GET", path, undefined, options);
/**
 * What evidence is read from: how its text is read is for crypto/strictjson.js to say.
 * @type {(path: string) => Promise<string>}
 */
export const getText = (path) => call("GET", path, undefined, { raw: true });
/** @type {(path: string, body?: unknown, options?: CallOptions) => Promise<any>} */
export const post = (path, body = {}, options) => call("POST", path, body, options);

/**
 * Events of *path* until it ends: `[name, data]`. Reconnecting is the caller's: it knows from where.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<[name: string, data: any]>}
 */
export async function* events(path, signal) {
  const headers = { Accept: "text/event-stream", Authorization: `Bearer ${token()}` };
  const answer = await fetch(path, { headers, signal: signal ?? null });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
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

/** @type {(ms: number) => Promise<void>} */
export const pause = (ms) => new Promise((done) => {
  setTimeout(done, ms);
});
