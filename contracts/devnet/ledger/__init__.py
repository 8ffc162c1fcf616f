"""The devnet's ledger: the engine, the rules beside it, evaluation and refusals."""
