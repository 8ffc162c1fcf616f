"""What a device is sold as, and what it says of itself: its model in words, its memory in MiB."""

from __future__ import annotations


def model_matches(asked: str, model: str) -> bool:
    """Whether a job's ``H100`` means the device ``NVIDIA H100 80GB HBM3``: its words, in a row,
    whatever the case.
    """
    words, wanted = model.casefold().split(), asked.casefold().split()
    ends = range(len(wanted), len(words) + 1)
    return bool(wanted) and any(words[end - len(wanted) : end] == wanted for end in ends)


def nominal_least(mib: int) -> int:
    """The least that a device sold as *mib* shows: drivers and ECC keep up to 7 % for themselves.

    NVML says 23028 MiB for an A10 of 24 GB, 15360 for a T4 of 16 GB, 81559 for an H100 of 80 GB.
    """
    return mib * 93 // 100
