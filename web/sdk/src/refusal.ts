// What this client refuses by itself. What the market refuses is a `Problem`, what a signed thing lacks a `Refused`,
// and a bill that does not hold is `Broken`: each has a stable code.

/** The rules say no: *code* is stable, *remedy* says what helps. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly remedy: string,
  ) {
    super(message);
  }
}

/** What a system call threw, by its code: ENOENT and the like; "" for anything else. */
export const codeOf = (thrown: unknown): string =>
  thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
