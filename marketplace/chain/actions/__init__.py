"""Each thing that a party does on chain, and what to read before signing what somebody else
built.
"""
