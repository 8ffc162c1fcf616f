// What a router, its two hops and the provider sign for a routed lease: docs/invoice.md, "Routed leases". The
// bytes are those of marketplace/domain/money/route/.

import { blake2b } from "../crypto/blake2b.js";
import { concat, fromHex, same, toHex, utf8 } from "../crypto/bytes.js";
import { encode } from "../crypto/cbor.js";
import { verifies } from "../crypto/ed25519.js";
import { fields, MOST_INT } from "./records.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { LeafPart, RoutePart, SignedPart } from "./evidence.js"
 * @import { AnyTerms, Fault } from "./records.js"
 */

/**
 * @typedef {object} Route
 * @property {Whole} magic
 * @property {Bytes} router_vk
 * @property {string} lease
 * @property {Bytes} lease_vk
 * @property {Bytes} in_commit
 * @property {Bytes} out_commit
 * @property {Whole} route_bps
 * @property {Whole} hop_ms
 */

/**
 * @typedef {object} RouterOffer
 * @property {Whole} magic
 * @property {Bytes} router_vk
 * @property {Bytes} adapter_vkh
 * @property {Bytes} payout
 * @property {Whole} close_period_ms
 * @property {Whole} hop_fee
 */

/** @typedef {{session_vk: Bytes, n: Whole, total: Whole, count: Whole, root: Bytes, previous: Bytes}} Statement */

/**
 * A routed lease of the evidence.
 * @typedef {object} Passage
 * @property {AnyTerms} terms
 * @property {string} hash of the terms, hex
 * @property {Route} route
 * @property {RoutePart} shown
 */

const ROUTE = ["magic", "router_vk", "lease", "lease_vk", "in_commit", "out_commit", "route_bps", "hop_ms", "reserve", "expires_at_ms"];
const ROUTER = ["magic", "router_vk", "adapter_vkh", "payout", "close_period_ms", "route_bps", "hop_fee", "hop_ms", "hop_cap", "lease_cap"];
const STATEMENT = ["session_vk", "n", "total", "count", "root", "previous"];

// Not checked by the compiler: `fields` has just checked every one of them.
/** @type {(bytes: Bytes) => Route} */
const readRoute = (bytes) => /** @type {Route} */ (/** @type {unknown} */ (fields(bytes, "tally/route/v1", ROUTE, "route", 200)));
/** @type {(bytes: Bytes) => RouterOffer} */
const readOffer = (bytes) => /** @type {RouterOffer} */ (/** @type {unknown} */ (fields(bytes, "tally/router/v1", ROUTER, "router's offer", 0)));
/** @type {(bytes: Bytes) => Statement} */
export const readStatement = (bytes) => /** @type {Statement} */ (/** @type {unknown} */ (fields(bytes, "tally/hop/v1", STATEMENT, "statement", 0)));

/** @type {(vk: Bytes, signed: SignedPart) => Promise<boolean>} */
export const signs = (vk, { body, signature }) => verifies(vk, fromHex(body), fromHex(signature));

/**
 * The router's offer, if it is one and signed; null if not.
 * @param {SignedPart} signed
 */
export async function offerOf(signed) {
  try {
    const offer = readOffer(fromHex(signed.body));
    return (await signs(offer.router_vk, signed)) ? offer : null;
  } catch {
    return null; // the rule that asks refuses it
  }
}

/**
 * The passage of a lease (null for a direct one), or the first fault of rule I11.
 * @param {AnyTerms} terms
 * @param {Bytes} body of the terms
 * @param {RoutePart | null} shown
 * @returns {Promise<{passage: Passage | null, fault: Fault | null}>}
 */
export async function passageOf(terms, body, shown) {
  const { route: named } = terms;
  const broken = (/** @type {string} */ way, /** @type {string} */ why) => ({ passage: null, fault: { way, why } });
  if (!named) return shown ? broken("route", "direct terms, and a route beside them") : { passage: null, fault: null };
  if (!shown) return broken("route", "routed terms without their route");
  let route;
  try {
    route = readRoute(fromHex(shown.body));
  } catch {
    return broken("route", "the route is malformed");
  }
  if (!(await signs(route.router_vk, shown))) return broken("router", "the router did not sign this route");
  const ways = /** @type {[string, boolean, string][]} */ ([
    ["hash", same(blake2b(fromHex(shown.body)), named), "the terms name another route"],
    ["lease", BigInt(route.magic) === BigInt(terms.magic) && route.lease === terms.lease && same(route.lease_vk, terms.session_vk), "the route is for another lease, key or network"],
    ["consumer", same(terms.consumer_vkh, blake2b(terms.session_vk, 28)), "the terms' consumer is not the lease's own key"],
    ["pace", BigInt(terms.tick_ms) >= 4n * BigInt(route.hop_ms), "a tick is too short for its hops"],
    ["commit", opens(shown, route), "the hops that are shown are not those of the route"],
  ]);
  const [way, , why] = ways.find(([, holds]) => !holds) ?? [];
  if (way && why) return broken(way, why);
  return { passage: { terms, hash: toHex(blake2b(body)), route, shown }, fault: null };
}

/** @type {(shown: RoutePart, route: Route) => boolean} */
function opens(shown, route) {
  const pairs = /** @type {const} */ ([[shown.in, route.in_commit], [shown.out, route.out_commit]]);
  const told = pairs.flatMap(([one, sealed]) => (one ? [same(blake2b(concat(utf8("tally/commit/v1"), fromHex(one.hop), fromHex(one.salt))), sealed)] : []));
  return told.length > 0 && told.every(Boolean);
}

/** @type {(vk: Bytes, lease: string, amount: Whole) => Bytes} */
export const paidMessage = (vk, lease, amount) => encode(["tally/paid/v1", vk, lease, BigInt(amount)]);

/**
 * ceil(owed x bps / 10000).
 * @type {(owed: bigint, bps: Whole) => bigint}
 */
export const feeOf = (owed, bps) => (owed * BigInt(bps) + 9999n) / 10_000n;

/** @type {(amount: bigint) => Bytes} */
function u64(amount) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, amount);
  return new Uint8Array(view.buffer);
}

/**
 * Sum and root (hex) of *leaves*; null if there is none, or their sum is too large.
 * @param {LeafPart[]} leaves
 */
export function treeOf(leaves) {
  let level = leaves.map(({ terms, amount }) => ({ hash: blake2b(concat(Uint8Array.of(0), fromHex(terms), u64(BigInt(amount)))), sum: BigInt(amount) }));
  while (level.length > 1) {
    /** @type {{hash: Bytes, sum: bigint}[]} */
    const above = [];
    for (let i = 0; i < level.length; i += 2) {
      const [left, right] = level.slice(i, i + 2);
      if (!left) continue;
      if (!right) above.push(left); // an odd one goes up as it is
      else if (left.sum + right.sum > MOST_INT) return null;
      else above.push({ hash: blake2b(concat(Uint8Array.of(1), left.hash, u64(left.sum), right.hash, u64(right.sum))), sum: left.sum + right.sum });
    }
    level = above;
  }
  const [top] = level;
  return top ? { sum: top.sum, root: toHex(top.hash) } : null;
}
