// A job's specification, as it is posted and hashed into the terms: types alone.

/** @typedef {[least: number, most: number]} Span both included */
/** @typedef {[models: string[], count: Span, vramMib: Span, share: number]} GpuNeed */

/**
 * What is to be run, and within what limits: posted, hashed into the terms, and read by the provider
 * (marketplace/domain/work/job.py).
 * @typedef {object} JobSpec
 * @property {string} name
 * @property {string} kind
 * @property {string} image
 * @property {string[]} command
 * @property {[cpuMilli: Span, memoryMib: Span, diskMib: Span, gpu: GpuNeed | null][]} resources one of these will do
 * @property {{[name: string]: string}} env
 * @property {string[]} secrets names
 * @property {FileRow[]} files
 * @property {unknown[]} ports
 * @property {string | string[]} [egress]
 * @property {string[]} outputs
 * @property {{regions: string[], isolation: string, min_trust: number, labels: {[name: string]: string},
 *   providers: string[], not_providers: string[]}} placement
 * @property {[gpuRate: number, coreRate: number, budget: number]} price micro-lovelace a unit-second, 0 for none; lovelace
 * @property {{max_duration_ms: number, retry_on: string[], retry_max: number, idle_gpu_below: number,
 *   idle_for_ms: number, queue: boolean, priority: number}} policy
 */

/** @typedef {[path: string, sha256: string, bytes: number, mode: number]} FileRow */

export {}; // what makes it a module
