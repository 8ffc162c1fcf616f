// Rent compute on Cardano from Node: `README.md` begins it, docs/developer.md says the rest.

export { Tally, type ConnectOptions } from "./tally.js";
export { Purse, type PurseOptions } from "./purse.js";
export { Job, type Output } from "./job.js";
export { verify, type VerifyOptions } from "./verify.js";
export { Refusal } from "./refusal.js";
export type { Offered, RunOptions } from "./agree.js";
export type { JobView } from "./consumer.js";
export type { GpusAsked, JobAsked } from "./spec.js";
/** Every shape of the API, as its OpenAPI document has them. */
export type { components, paths } from "../generated/api.js";

export type { Door } from "../../assets/chain/door.js";
export { networkFees } from "../../assets/chain/ledger.js";
export { Broken, readEvidence, type Evidence, type Facts } from "../../assets/money/evidence.js";
export { write as evidenceText } from "../../assets/crypto/strictjson.js";
export { Refused } from "../../assets/money/records.js";
export { ada } from "../../assets/money/units.js";
export { reconcile, type Bill } from "../../assets/money/verify.js";
export { Problem } from "../../assets/net/http.js";
export type { Said } from "../../assets/paying/orders.js";
