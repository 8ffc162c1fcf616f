"""The network of a cluster's members, on this host: one WireGuard device and one network namespace
a lease.

* :mod:`.keys`: a WireGuard key pair for each lease, that never leaves the host
* :mod:`.netns`: the member's network namespace, which is there before its workload
* :mod:`.uapi`: what is said to a WireGuard device, and what it answers
* :mod:`.device`: wireguard-go, its packets outside and its interface inside
* :mod:`.sight`: who is heard, by a round trip inside
* :mod:`.host`: all of it for one adapter: made, found again after a crash, and removed
"""
