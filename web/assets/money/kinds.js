// What can be rented, kind by kind, as marketplace/domain/metering/kinds.py has it: a test compares both.

/**
 * @typedef {keyof typeof KINDS} Resource
 */

export const KINDS = {
  gpu: { word: "GPU", words: "GPUs", devices: true, cap: /** @type {const} */ ("max_gpu_rate") },
  core: { word: "core", words: "cores", devices: false, cap: /** @type {const} */ ("max_core_rate") },
  disk: { word: "GB", words: "GB", devices: false, cap: /** @type {const} */ ("max_disk_rate") },
};

/** @type {(value: unknown) => value is Resource} */
export const isResource = (value) => typeof value === "string" && Object.hasOwn(KINDS, value);

/**
 * `2 GPUs`, `0.5 GPU`, `1.5 cores`: what a rate is multiplied by.
 * @type {(unitsMilli: number, resource: Resource) => string}
 */
export function units(unitsMilli, resource) {
  const { word, words } = KINDS[resource];
  return `${unitsMilli / 1000} ${unitsMilli <= 1000 ? word : words}`;
}
