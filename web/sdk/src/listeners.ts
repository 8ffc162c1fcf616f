// Whoever wants to hear what the payer does.

import type { Said } from "../../assets/paying/orders.js";

export class Listeners {
  readonly #all = new Set<(said: Said) => void>();

  /** Hear everything; the answer ends it. */
  add(listener: (said: Said) => void): () => void {
    this.#all.add(listener);
    return () => void this.#all.delete(listener);
  }

  tell(said: Said): void {
    this.#all.forEach((listener) => listener(said));
  }
}
