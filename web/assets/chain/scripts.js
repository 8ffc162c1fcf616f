// The scripts that a channel stands on, by their hashes (contracts/plutus.json; a test compares them).
// They are part of this page: no market is asked which they are.

/** Of channels in ADA, which is all that this page pays in. */
export const ADA_SCRIPTS = {
  stub: "b85fd8113bfd7171b04296a0a317cb9c2f469a62c526930c64fb9d90",
  settle: "2809d4d249f383c0a9f55e0c640854f0cf3ecfcee69876dbf5f5bed2",
};

/**
 * By asset, as terms name it: "" is ADA.
 * @type {{[asset: string]: {stub: string, settle: string} | undefined}}
 */
export const SCRIPTS = { "": ADA_SCRIPTS };

/**
 * Slot 0 of the public networks in seconds since 1970, as if it had always had slots of a second.
 * @type {{[magic: number]: number | undefined}}
 */
export const SLOT_ZERO_S = { 764824073: 1591566291, 1: 1655683200, 2: 1666656000 };
