// The market's HTTP API with the session's token, and server-sent events over fetch: a token never
// stands in a URL.

const TOKEN = "tally-token";

export class Problem extends Error {
  constructor(body, status) {
    super(body.detail || `the market answered ${status}`);
    this.code = body.code || `HTTP_${status}`;
    this.remedy = body.remedy || "";
    this.fields = body.fields || {};
    this.status = status;
  }
}

export const token = () => localStorage.getItem(TOKEN) ?? "";
export const keepToken = (value) => localStorage.setItem(TOKEN, value);
export const dropToken = () => localStorage.removeItem(TOKEN);

/** JSON of *path*; Problem for anything but success. *once* makes a POST repeatable. */
export async function call(method, path, body, { once = "", bearer = token(), signal, raw = false } = {}) {
  const headers = { Accept: "application/json" };
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (once) headers["Idempotency-Key"] = once;
  const payload = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method, headers, body: payload, signal });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  return raw ? answer.text() : answer.json();
}

export const get = (path, options) => call("GET", path, undefined, options);
/** What evidence is read from: how its text is read is for {@link ./strictjson.js} to say. */
export const getText = (path) => call("GET", path, undefined, { raw: true });
export const post = (path, body = {}, options) => call("POST", path, body, options);

/** Events of *path* until it ends: `[name, data]`. Reconnecting is the caller's: it knows from where. */
export async function* events(path, signal) {
  const headers = { Accept: "text/event-stream", Authorization: `Bearer ${token()}` };
  const answer = await fetch(path, { headers, signal });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (name) yield [name, JSON.parse(data || "null")];
    }
  }
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
