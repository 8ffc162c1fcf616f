"""The adapter's decisions, pure: ``decide(state, event, now, own) -> Outcome``, and the values
around it.
"""
