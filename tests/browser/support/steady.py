"""Chromium that does not follow this machine's network interfaces.

It fails every request under way with ``ERR_NETWORK_CHANGED`` once an interface gets an address,
as on a laptop that changes networks. On a machine of tests interfaces come and go with every
container and every router of another test. Without a netlink socket it is told of none.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path

import pyseccomp

EXECUTABLE = Path(__file__).with_name("steady-chromium")


def steady(chromium: Path) -> dict[str, str | float | bool]:
    """The environment in which ``EXECUTABLE`` is *chromium*."""
    return {**os.environ, "STEADY": f"{sys.executable} -m {__spec__.name} {chromium}"}


def main() -> None:
    """Become the command of the arguments, without netlink."""
    filter_ = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    netlink = pyseccomp.Arg(0, pyseccomp.EQ, socket.AF_NETLINK)
    filter_.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socket", netlink)
    filter_.load()
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
