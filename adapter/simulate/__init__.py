"""A host with GPUs, where there are none: simulated NVML and CUDA below the real bindings.

Names itself SIMULATED everywhere; such a host may be listed on a devnet only.
"""
