// A payment channel by hand, from contracts/README.md alone: datum, redeemer, voucher and the order of outputs.
// Nothing here is Tally's code. A client (lucid.mjs, mesh.mjs, evolution.mjs) reads outputs and builds, signs and sends what
// `life` describes; scripts are evaluated by the provider.

import { createHash, createPrivateKey, createPublicKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { blake2b } from "@noble/hashes/blake2.js";

const ADA = 1_000_000n;
const CLOSE_PERIOD_MS = 60_000n;
const hex = (bytes) => Buffer.from(bytes).toString("hex");

// ---- CBOR and Plutus data, as hex

function head(major, n) {
  n = BigInt(n);
  const top = major << 5;
  const sized = (low, bytes) => hex([top | low]) + n.toString(16).padStart(bytes * 2, "0");
  if (n < 24n) return hex([top | Number(n)]);
  if (n < 1n << 8n) return sized(24, 1);
  if (n < 1n << 16n) return sized(25, 2);
  if (n < 1n << 32n) return sized(26, 4);
  return sized(27, 8);
}
export const int = (n) => head(0, n);
export const bytes = (text) => head(2, text.length / 2) + text;
export const list = (items) => (items.length ? "9f" + items.join("") + "ff" : "80");
export const constr = (n, fields) => head(6, 121 + n) + list(fields);

// ---- keys

// A key from a name: test money only.
export function key(name) {
  const seed = createHash("sha256").update(name).digest();
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  const secret = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const open = createPublicKey(secret).export({ format: "der", type: "spki" }).subarray(-32);
  return { seed: hex(seed), vk: hex(open), vkh: hash28(hex(open)), sign: (m) => hex(sign(null, m, secret)) };
}
export const hash28 = (text) => hex(blake2b(Buffer.from(text, "hex"), { dkLen: 28 }));

// "tally/v1" and the sum as eight bytes, signed by the session's key.
function voucher(session, cum) {
  const sum = Buffer.alloc(8);
  sum.writeBigUInt64BE(cum);
  return session.sign(Buffer.concat([Buffer.from("tally/v1"), sum]));
}

// ---- addresses: header byte and credentials, in bech32

const LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

function checksum(values) {
  const turns = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
  let sum = 1;
  for (const value of values) {
    const top = sum >>> 25;
    sum = ((sum & 0x1ffffff) << 5) ^ value;
    turns.forEach((turn, bit) => { if ((top >>> bit) & 1) sum ^= turn; });
  }
  return sum;
}

export function bech32(prefix, text) {
  const five = [];
  let held = 0, bits = 0;
  for (const byte of Buffer.from(text, "hex")) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 5; ) five.push((held >>> (bits -= 5)) & 31);
    held &= (1 << bits) - 1;
  }
  if (bits) five.push((held << (5 - bits)) & 31);
  const letters = [...prefix].map((one) => one.charCodeAt(0));
  const spread = [...letters.map((c) => c >>> 5), 0, ...letters.map((c) => c & 31)];
  const sum = checksum([...spread, ...five, 0, 0, 0, 0, 0, 0]) ^ 1;
  const tail = [0, 1, 2, 3, 4, 5].map((at) => (sum >>> (5 * (5 - at))) & 31);
  return prefix + "1" + [...five, ...tail].map((value) => LETTERS[value]).join("");
}
export const enterprise = (vkh) => bech32("addr_test", "60" + vkh);

// ---- the devnet's own controls

async function control(origin, path, body) {
  const asked = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const answer = await fetch(`${origin}/devnet/${path}`, asked);
  if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
  return answer.json();
}

// ---- a channel's life

function report(step, facts) {
  const shown = (_, value) => (typeof value === "bigint" ? value.toString() : value);
  console.log(JSON.stringify({ step, ...facts }, shown));
}

// make(setup) gives a client: address; outputs(address): [{tx, index, lovelace, datum, script}]; send(tx): hash once it is in a block.
export async function life(name, make) {
  const [url, plutus] = process.argv.slice(2);
  const origin = new URL(url).origin;
  const { system_start } = await control(origin, "status");
  const consumer = key(`${name} consumer`), session = key(`${name} session ${Date.now()}`);
  const payoutKey = key(`${name} payout`), adapter = key(`${name} adapter`), stake = key(`${name} stake`);
  const client = await make({ url, startMs: system_start * 1000, consumer });
  for (let coin = 0; coin < 3; coin++) {
    await control(origin, "faucet", { address: client.address, lovelace: 100_000_000 });
  }
  // Blocks come by themselves: what the faucet sent is there with one of the next.
  for (let look = 0; (await client.outputs(client.address)).length < 3; look++) {
    if (look === 100) throw new Error(`the faucet's coins did not come to ${client.address}`);
    await new Promise((done) => setTimeout(done, 100));
  }

  const { settle, stub } = hashes(plutus);
  const home = bech32("addr_test", "70" + settle);
  const references = (await client.outputs(home)).filter((one) => [settle, stub].includes(one.script));
  if (references.length !== 2) throw new Error("no deployment");
  report("deployed", { references: references.map((one) => `${one.tx}#${one.index}`) });

  const at = bech32("addr_test", "10" + stub + stake.vkh);
  const payout = enterprise(payoutKey.vkh);
  const payoutHash = hash28(constr(0, [constr(0, [bytes(payoutKey.vkh)]), constr(1, [])]));
  const consts = list([bytes(session.vk), bytes(adapter.vkh), bytes(payoutHash), bytes(consumer.vkh), int(CLOSE_PERIOD_MS), int(0)]);
  const open = (claimed) => constr(0, [consts, int(claimed)]);
  const refund = bech32("addr_test", "00" + consumer.vkh + stake.vkh);

  async function channel(lovelace, datum) {
    for (let look = 0; look < 100; look++) {
      const found = (await client.outputs(at)).find((one) => one.lovelace === lovelace && one.datum === datum);
      if (found) return found;
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`no channel of ${lovelace} with ${datum} at ${at}`);
  }
  async function step(what, input, steps, rest) {
    const sent = await client.send({
      spend: input && { ...input, address: at, redeemer: int(0), reference: references.find((one) => one.script === stub) },
      withdraw: input && { address: bech32("stake_test", "f0" + settle), hash: settle, redeemer: list(steps), reference: references.find((one) => one.script === settle) },
      ...rest,
    });
    report(what, { tx: sent });
    return sent;
  }

  const opened = await step("open", null, null, { outputs: [{ address: at, lovelace: 20n * ADA, datum: open(0n) }] });
  report("channel", { session: session.vk, origin: `${opened}#0`, address: at });
  let now = await channel(20n * ADA, open(0n));

  const claim = constr(0, [int(3n * ADA), int(2n * ADA), bytes(voucher(session, 3n * ADA))]);
  await step("claim", now, [claim], {
    outputs: [{ address: at, lovelace: 18n * ADA, datum: open(2n * ADA) }, { address: payout, lovelace: 2n * ADA }],
  });
  now = await channel(18n * ADA, open(2n * ADA));

  await step("top-up", now, [constr(3, [int(5n * ADA)])], {
    outputs: [{ address: at, lovelace: 23n * ADA, datum: open(2n * ADA) }], signer: consumer.vkh,
  });
  now = await channel(23n * ADA, open(2n * ADA));

  const { now_ms } = await control(origin, "status");
  const upper = BigInt(Math.ceil(now_ms / 1000) * 1000 + 600_000);
  const closing = constr(1, [consts, int(2n * ADA), int(upper + CLOSE_PERIOD_MS)]);
  await step("close", now, [constr(4, [])], {
    outputs: [{ address: at, lovelace: 23n * ADA, datum: closing }], signer: consumer.vkh, validTo: Number(upper),
  });
  now = await channel(23n * ADA, closing);

  const early = { outputs: [{ address: refund, lovelace: 23n * ADA }], validFrom: now_ms - (now_ms % 1000) };
  try {
    await step("finish too early", now, [constr(2, [])], early);
  } catch (refused) {
    report("refused", { why: said(refused).slice(0, 2000) });
  }
  await control(origin, "time", { advance_ms: 660_000 + 2_000 });
  await step("finish", now, [constr(2, [])], {
    outputs: [{ address: refund, lovelace: 23n * ADA }], validFrom: Number(upper + CLOSE_PERIOD_MS),
  });
  report("done", {});
}

// Whatever a library throws, as text.
function said(problem) {
  const parts = [problem?.message, problem?.info, problem?.cause && said(problem.cause), problem?.data && JSON.stringify(problem.data)];
  return parts.filter(Boolean).join(" ") || String(typeof problem === "object" ? JSON.stringify(problem) : problem);
}

// Hashes of both scripts, from the blueprint (CIP-57).
function hashes(path) {
  const found = {};
  for (const one of JSON.parse(readFileSync(path)).validators) {
    for (const name of ["settle", "stub"]) if (one.title === `ada.${name}`) found[name] = one.hash;
  }
  return found;
}
