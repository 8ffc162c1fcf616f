"""What time alone brings about, the operator's use cases, and the other processes of this
market.
"""
