"""The market's relay for hosts of meshes that do not reach each other: a process of its own.

* :mod:`.table`: who is bound, and where a packet goes; pure
* :mod:`.serving`: its UDP ports
* :mod:`.process`: begun by a market, and ended with it
"""
