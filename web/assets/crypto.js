// Ed25519 by WebCrypto. Session keys are made non-extractable: no script, ours included, can read them.

export async function verifies(verifyKey, message, signature) {
  if (verifyKey.length !== 32 || signature.length !== 64) return false;
  try {
    const key = await crypto.subtle.importKey("raw", verifyKey, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", key, signature, message);
  } catch {
    return false; // a key that is no point of the curve signs nothing
  }
}

export async function newKey() {
  const pair = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
  return { privateKey: pair.privateKey, verifyKey: new Uint8Array(raw) };
}

export const sign = async (privateKey, message) =>
  new Uint8Array(await crypto.subtle.sign("Ed25519", privateKey, message));

export const random = (size) => crypto.getRandomValues(new Uint8Array(size));
