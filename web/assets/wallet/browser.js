// This browser, as what agreeing and a channel's steps stand on.

import { door } from "../chain/chosen.js";
import { unlock } from "../crypto/seal.js";
import * as vault from "../money/vault.js";
import { market } from "../net/api.js";
import { order } from "../paying/paying.js";
import { connect } from "./wallet.js";

/** @import { Ground } from "./ground.js" */

/** @type {(magic: number) => Ground} */
export const here = (magic) => ({
  market, magic, vault, order, door,
  connect: () => connect(),
  alone: async (name, work) => { await navigator.locks.request(`tally-${name}`, work); },
  secrets: async ({ locked }) => (locked ? unlock(locked) : {}),
});
