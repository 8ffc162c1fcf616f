"""The invoice: recomputed from what was signed, rule by rule, and compared with the ledger."""
