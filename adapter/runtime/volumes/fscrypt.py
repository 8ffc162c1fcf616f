"""An encrypted folder, by the kernel's own means (fscrypt, policy version 2, since Linux 5.4).

https://docs.kernel.org/filesystems/fscrypt.html, sections "FS_IOC_ADD_ENCRYPTION_KEY" and
"FS_IOC_SET_ENCRYPTION_POLICY"; the structures are those of ``linux/fscrypt.h``. While the kernel
has the key whoever may read the files reads them in clear: what it is for is the end, when all
copies of the content, also in whatever the disk keeps of old blocks, go with 64 bytes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 64
_ADD_KEY: Final = 0xC0506617  # _IOWR('f', 23, 80 bytes)
_SET_POLICY: Final = 0x800C6613  # _IOR('f', 19, 12 bytes: the size of version 1, as for all)
_BY_IDENTIFIER: Final = 2  # FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
_IDENTIFIER: Final = slice(8, 24)
_VERSION, _AES_256_XTS, _AES_256_CTS, _PAD_32 = 2, 1, 4, 3


def add_key(mounted: Path, key: bytes) -> bytes:
    """Let the file system at *mounted* read what *key* encrypts; the kernel's name of the key, 16
    bytes. OSError where it cannot (ENOTTY, EOPNOTSUPP: no fscrypt here).
    """
    argument = bytearray(struct.pack("<II32xII32x", _BY_IDENTIFIER, 0, len(key), 0) + key)
    with _opened(mounted) as folder:
        fcntl.ioctl(folder, _ADD_KEY, argument)
    return bytes(argument[_IDENTIFIER])


def encrypt(folder: Path, identifier: bytes) -> None:
    """All that will lie in *folder*, which is empty, is encrypted by the key of that name."""
    policy = struct.pack("<BBBB4x16s", _VERSION, _AES_256_XTS, _AES_256_CTS, _PAD_32, identifier)
    with _opened(folder) as opened:
        fcntl.ioctl(opened, _SET_POLICY, policy)


class _opened:
    """A folder's descriptor for the length of a block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
