// What a form says over what it was filled in with: nothing is lost that the form has no field for.

/** @typedef {{[key: string]: unknown}} Tree */
/** @type {(value: unknown) => value is Tree} */
const isTree = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @type {(one: unknown, other: unknown) => boolean} */
const same = (one, other) => {
  if (Array.isArray(one) && Array.isArray(other)) return one.length === other.length && one.every((each, at) => same(each, other[at]));
  if (!isTree(one) || !isTree(other)) return one === other;
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].every((key) => same(one[key], other[key]));
};

/**
 * *now*, which the form says, over *base*, which it was filled in with: what the form still says as it
 * did then (*was*) is the base's, to the last word that the form has no field for.
 * @template T
 * @param {T} now
 * @param {T} was
 * @param {T} base
 * @returns {T}
 */
export function over(now, was, base) {
  return /** @type {T} */ (merged(now, was, base));
}

/** @type {(now: unknown, was: unknown, base: unknown) => unknown} */
function merged(now, was, base) {
  if (same(now, was)) return base;
  if (Array.isArray(now) && Array.isArray(was) && Array.isArray(base) && now.length === was.length && now.every(isTree)) {
    return [...now.map((one, at) => merged(one, was[at], base[at])), ...base.slice(now.length)];
  }
  if (!isTree(now) || !isTree(was) || !isTree(base)) return now;
  /** @type {Tree} */
  const made = {};
  for (const key of new Set([...Object.keys(now), ...Object.keys(base)])) {
    const value = merged(now[key], was[key], base[key]);
    if (value !== undefined) made[key] = value;
  }
  return made;
}

/**
 * The keys of *base* that the form, which reads *was*, has no field for, as `policy.idle_for_ms`.
 * @param {unknown} was
 * @param {unknown} base
 * @param {string} [at]
 * @returns {string[]}
 */
export function beyond(was, base, at = "") {
  if (same(was, base)) return [];
  const both = (Array.isArray(was) && Array.isArray(base)) || (isTree(was) && isTree(base));
  if (!both) return [at];
  const [mine, theirs] = /** @type {[Tree, Tree]} */ ([was, base]);
  return [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].flatMap((key) =>
    (same(mine[key], theirs[key]) ? [] : isTree(theirs[key]) || Array.isArray(theirs[key]) ? beyond(mine[key], theirs[key], at ? `${at}.${key}` : key) : [at ? `${at}.${key}` : key]));
}
