// A job's specification, in the form in which it is posted and hashed into the terms.

/** @typedef {{least: number, most?: number}} Span both included; without *most* there is no upper end */
/** @typedef {{models: string[], count: Span, vram: Span, share: number}} GpuNeed memory in MiB */
/** @typedef {{cpu: Span, memory: Span, disk: Span, gpu?: GpuNeed}} Resources thousandths of a core, MiB, MiB */
/** @typedef {{dst: string, sha256: string, size: number, mode: number}} FileIn */

/**
 * What a job is in either form.
 * @typedef {object} Common
 * @property {string} name
 * @property {string} kind
 * @property {string} image
 * @property {string[]} command
 * @property {{[name: string]: string}} env
 * @property {string[]} secrets names
 * @property {string | string[]} [egress]
 * @property {{network: string, port: number, lag_ms: number}} [relay] billed only at the tip of its chain
 * @property {string[]} outputs
 * @property {{regions: string[], isolation: string, min_trust: number, labels: {[name: string]: string},
 *   providers: string[], not_providers: string[]}} placement
 * @property {{max_duration_ms: number, retry_on: string[], retry_max: number, idle_gpu_below: number,
 *   idle_for_ms: number, queue: boolean, priority: number}} policy
 */

/**
 * What is to be run, and within what limits: posted, hashed into the terms, and read by the provider
 * (marketplace/domain/work/job.py).
 * @typedef {Common & {version: 2, resources: Resources[], files: FileIn[],
 *   ports: {port: number, auth: string, direct?: true}[], gang?: {members: number},
 *   price: {max_gpu_rate: number, max_core_rate: number, budget: number, wait_rate?: number, max_disk_rate?: number}}} JobSpec
 */

/** @typedef {[least: number, most: number]} Places */

/**
 * The form of before version 2, with places for names (marketplace/domain/work/job_v1.py).
 * @typedef {Common & {
 *   resources: [cpu: Places, memory: Places, disk: Places,
 *     gpu: [models: string[], count: Places, vram: Places, share: number] | null][],
 *   files: [dst: string, sha256: string, size: number, mode: number][],
 *   ports: [port: number, auth: string][],
 *   price: [gpuRate: number, coreRate: number, budget: number]}} JobSpecV1
 */

/** @typedef {JobSpec | JobSpecV1} PostedSpec as it was posted, which is what its hash is of */

const OPEN_END = 2 ** 53;

/** @type {(places: Places) => Span} */
const span = ([least, most]) => (most === OPEN_END ? { least } : { least, most });

/**
 * A job of either form by its names, to be read; its hash is that of what was posted.
 * @param {PostedSpec} posted
 * @returns {JobSpec}
 */
export function named(posted) {
  if ("version" in posted) return posted;
  const [max_gpu_rate, max_core_rate, budget] = posted.price;
  return {
    ...posted,
    version: 2,
    resources: posted.resources.map(([cpu, memory, disk, gpu]) => ({
      cpu: span(cpu), memory: span(memory), disk: span(disk),
      ...(gpu && { gpu: { models: gpu[0], count: span(gpu[1]), vram: span(gpu[2]), share: gpu[3] } }),
    })),
    files: posted.files.map(([dst, sha256, size, mode]) => ({ dst, sha256, size, mode })),
    ports: posted.ports.map(([port, auth]) => ({ port, auth })),
    price: { max_gpu_rate, max_core_rate, budget },
  };
}
