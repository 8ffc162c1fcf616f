// Between Python and Scalus: ledger states are kept here under small numbers, bytes cross as hex, results as JSON.
// A state is immutable from outside: applying a transaction makes a new one. Snapshots share structure and cost little.
"use strict";

const hexOf = (bytes) => {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
};
const bytesOf = (hex) => {
  const bytes = new Uint8Array(hex.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(hex.substr(2 * i, 2), 16);
  return bytes;
};

const scalus = module.exports;
const states = new Map();
let slots = null;
let last = 0;

const keep = (emulator) => {
  states.set(++last, emulator);
  return last;
};

function tallyStart(zeroTimeMs) {
  slots = new scalus.SlotConfig(zeroTimeMs, 0, 1000);
}

function stateOf(utxos, accounts, pools, dreps) {
  const stakeRegistrations = accounts.map(({ pool, ...one }) => ({
    ...one,
    rewards: BigInt(one.rewards),
    ...(pool ? { delegatedTo: pool } : {}),
  }));
  const poolRegistrations = pools.map((one) => ({ params: bytesOf(one.params) }));
  const drepRegistrations = dreps.map((one) => ({ ...one, deposit: BigInt(one.deposit) }));
  return keep(
    scalus.Emulator.withState({ utxos, stakeRegistrations, poolRegistrations, drepRegistrations, datums: [] }, slots),
  );
}

function tallyState(utxos, ...register) {
  return stateOf(bytesOf(utxos), ...register);
}

// The same outputs with another register of accounts, pools and DReps.
function tallySettled(state, ...register) {
  return stateOf(states.get(state).getUtxosCbor(), ...register);
}

function tallyApply(state, slot, tx) {
  const next = states.get(state).snapshot();
  next.setSlot(slot);
  let result;
  try {
    result = next.submitTx(bytesOf(tx));
  } catch (thrown) {
    // Scalus throws where a transaction cannot be decoded, for one with an empty witness set too.
    return { error: String((thrown && thrown.message) || thrown), logs: [] };
  }
  if (!result.isSuccess) return { error: String(result.error), logs: result.logs || [] };
  return { state: keep(next), id: result.txHash };
}

// tallyAt: the redeemer whose script is running, noted by a mend (mend.py).
function tallyEvaluate(zeroTimeMs, costModels, tx, utxos) {
  globalThis.tallyAt = null;
  const time = new scalus.SlotConfig(zeroTimeMs, 0, 1000);
  try {
    const found = scalus.Scalus.evalPlutusScripts(bytesOf(tx), bytesOf(utxos), time, costModels);
    return {
      redeemers: found.map((one) => [
        String(one.tag),
        Number(one.index),
        String(one.budget.memory),
        String(one.budget.steps),
      ]),
    };
  } catch (thrown) {
    const error = String((thrown && thrown.message) || thrown);
    return { error, logs: (thrown && thrown.logs) || [], at: globalThis.tallyAt };
  }
}

function tallyUtxos(state) {
  return hexOf(states.get(state).getUtxosCbor());
}

function tallyRelease(released) {
  for (const state of released) states.delete(state);
  return states.size;
}

// Everything of the devnet that was; the numbers go on, so that no old one can mean a new state.
function tallyForget() {
  states.clear();
  slots = null;
}
