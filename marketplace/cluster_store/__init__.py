"""The market's own stores: what clusters' members leave there outlives them.

WsgiDAV serves them, a folder each, in a process of its own (:mod:`.serving`); :mod:`.gate` stands
before it and says who may reach which, and :mod:`.folders` how much fits. :mod:`.process` keeps
that process, and tells it which leases live.
"""
