// Keys of a block producer, told by the forms in which Cardano's tools write them: as
// marketplace/domain/work/pool_keys.py, which says why and which, and is held against this one.

import { fromHex, utf8 } from "./bytes.js";

const MOST_WHOLE = 64 * 1024;
const OVERLAP = 8 * 1024;
const PART = 1024 * 1024;
const HINTS = ["SigningKey", "NodeOperationalCertificate", "_sk1", "_xsk1", "590260"];
const TYPE = /\btype["']?\s*[:=]\s*["']?(?:(?<kes>K(?:es|ES)SigningKey)|(?<vrf>V(?:rf|RF)SigningKey)|(?<cold>StakePool(?:Extended)?SigningKey)|(?<bls>BlsSigningKey)|(?<genesis>Genesis(?:Delegate)?(?:Extended|Vrf)?SigningKey)|(?<counter>NodeOperationalCertificateIssueCounter)|(?<certificate>NodeOperationalCertificate))/g;
const CONTENT = /\bcborHex["']?\s*[:=]\s*["']?[0-9a-fA-F]{20}/g;
const WORD = /\b(?:(?<kes>kes_sk1[02-9ac-hj-np-z]{58}|590260[0-9a-fA-F]{1216})|(?<vrf>vrf_sk1[02-9ac-hj-np-z]{58})|(?<cold>pool_x?sk1[02-9ac-hj-np-z]{58}))/;
const UINT = "(?:[\\x00-\\x17]|\\x18.|\\x19..|\\x1a.{4}|\\x1b.{8})";
const CBOR = new RegExp(
  `^(?:(?<kes>\\x59\\x02\\x60.{608})|(?<vrf>\\x58\\x40.{64})|(?<byron>\\x58\\x80.{128})|(?<counter>\\x82${UINT}\\x58\\x20.{32})`
  + `|(?<certificate>\\x82\\x84\\x58\\x20.{32}${UINT}${UINT}\\x58\\x40.{64}\\x58\\x20.{32}))$`, "s");
/** @type {{[group: string]: string}} */
const NAMES = {
  kes: "a KES signing key", vrf: "a VRF signing key", cold: "a pool's cold key", bls: "a BLS signing key",
  genesis: "a genesis key", byron: "a Byron signing key", counter: "an operational certificate's counter",
  certificate: "an operational certificate",
};

export const POOL_KEY_REFUSED = "POOL_KEY_REFUSED";
export const REMEDY = "whoever owns the host could make your pool's blocks with it: keep it on your block producer; a relay needs no key";

/**
 * What *data* holds of a block producer, for people; "": nothing.
 * @param {Uint8Array | string} data
 */
export function poolKeyIn(data) {
  const bytes = typeof data === "string" ? utf8(data) : data;
  for (let at = 0; at < bytes.length; at += PART) {
    const found = written(text(bytes.subarray(Math.max(0, at - OVERLAP), at + PART)));
    if (found) return found;
  }
  if (bytes.length > MOST_WHOLE) return "";
  const whole = text(bytes);
  return alone(whole) || alone(decoded(whole));
}

/** A character for each byte. @param {Uint8Array} bytes */
function text(bytes) {
  let out = "";
  for (let at = 0; at < bytes.length; at += OVERLAP) out += String.fromCharCode(...bytes.subarray(at, at + OVERLAP));
  return out;
}

/** @param {RegExpMatchArray | null} match */
const nameOf = (match) => NAMES[Object.entries(match?.groups ?? {}).find(([, found]) => found !== undefined)?.[0] ?? ""] ?? "";

/** What stands in *given* as an envelope or as one word. @param {string} given */
function written(given) {
  if (!HINTS.some((hint) => given.includes(hint))) return "";
  const inner = given.replaceAll("\\n", "\n").replaceAll("\\", ""); // in a string of another document
  const contents = [...inner.matchAll(CONTENT)].map((found) => found.index);
  let after = 0; // types and contents both come in their order: one pass
  for (const named of inner.matchAll(TYPE)) {
    while (after < contents.length && (contents[after] ?? 0) <= named.index) after++;
    if (contents.slice(Math.max(0, after - 1), after + 1).some((at) => Math.abs(at - named.index) < OVERLAP)) return nameOf(named);
  }
  return nameOf(inner.match(WORD));
}

/** @param {string} data */
const alone = (data) => nameOf(data.match(CBOR)) || written(data);

/** What *data* is the hex or base64 of; "": neither. @param {string} data */
function decoded(data) {
  const packed = data.replace(/\s+/g, "");
  try {
    return text(fromHex(packed));
  } catch {
    /* no hex */
  }
  try {
    return atob(packed.replaceAll("-", "+").replaceAll("_", "/").replace(/=+$/, ""));
  } catch {
    return "";
  }
}
