"""The devnet's index: blocks and outputs on disk, and the chain as an indexer shows it."""
