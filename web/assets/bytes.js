// Bytes and hex.

export const concat = (...parts) => {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
};

export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/** Bytes of a hex text; throws for anything else. */
export const fromHex = (text) => {
  if (typeof text !== "string" || text.length % 2 || /[^0-9a-fA-F]/.test(text)) throw new Error("not hex");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
};

export const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

export const utf8 = (text) => new TextEncoder().encode(text);
