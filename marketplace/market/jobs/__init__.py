"""A consumer's use cases: post, match, quote, sign, stop; gangs; preemption."""
