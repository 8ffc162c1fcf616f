"""The consumer's money: the purse, and the transactions that it makes on chain."""
