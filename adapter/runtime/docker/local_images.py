"""Images from this machine's own files, for hosts with no registry: ``tally/python:local``.

Packs the running Python, its standard library, a shell and the shared libraries that they need into
a tar and imports it.  About 2 s.  The image is addressed by
its content: unchanged files give the image that is already there.  Others have packages from PyPI
beside them, in the versions of a lock: ``tally/jupyter:local``, ``tally/gradio:local``.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.door import map_docker

PYTHON: Final = "tally/python"
HOLDER: Final = "tally/network-holder"
_NO_PART: Final = (
    "pip",
    "setuptools",
    "_distutils_hack",
    "pkg_resources",
    "__pycache__",
)  # of every environment
TAG: Final = "local"
_LABEL: Final = "tally.content"
_TIMED: Final = 0  # flags of a .pyc: good for a time and a size of its source,
_UNCHECKED: Final = 0b01  # or for a hash that nobody compares
_WORD: Final = 0xFFFFFFFF
_SKIPPED: Final = frozenset({
    "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
    "__pycache__", "config-3.11-x86_64-linux-gnu",
})  # fmt: skip
_TOOLS: Final = (
    "sh", "ls", "cat", "dd", "ln", "rm", "mkdir", "cp", "mv", "sleep", "true", "false", "id", "env",
    "head", "tail", "yes", "grep", "sed", "wc", "stat", "touch", "chmod", "df", "du", "echo", "seq",
    "date", "test",
)  # fmt: skip


def build_python(client: Any, repository: str = PYTHON) -> str:
    """Import the image of this Python; its id (``sha256:…``)."""
    return _import(client, repository, _python_files(), "/usr/local/bin/python3")


def kept_packages() -> Path:
    """Where a user's machine keeps what :func:`build_with` installs, for every market that is tried
    there: below the cache of the XDG Base Directory Specification.
    """
    said = os.environ.get("XDG_CACHE_HOME", "")
    top = Path(said) if os.path.isabs(said) else Path.home() / ".cache"  # a relative one is none
    return top / "tally" / "packages"


def build_with(client: Any, name: str, lock: Path, folder: Path) -> str:
    """Import image *name* of this Python with the packages of *lock*, which are installed below
    *folder* unless they are there; its id. About 20 s the first time.
    """
    return build_from(client, name, _installed(lock, folder))


def _installed(lock: Path, folder: Path) -> Path:
    """An environment of this Python with what *lock* names; of two who want it one makes it."""
    this = f"{sys.version} {sys.base_prefix}".encode()
    environment = folder / hashlib.sha256(this + lock.read_bytes()).hexdigest()[:16]
    done = environment / "installed"
    folder.mkdir(parents=True, exist_ok=True)
    with open(f"{environment}.lock", "w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(environment, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(environment))
            pip = (str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
            _run(*pip, "install", "--quiet", "--no-deps", "--requirement", str(lock))
            done.touch()
    return environment


def build_from(client: Any, name: str, environment: Path) -> str:
    """Import image *name* of this Python with what is installed in *environment*; its id."""
    repository = name.removesuffix(f":{TAG}")
    return _import(client, repository, _with_packages(environment), "/usr/local/bin/python3")


def build_holder(client: Any, program: Path) -> str:
    """Import the image that holds a member's network, *program* alone; its id."""
    return _import(client, HOLDER, [(program.name, program)], f"/{program.name}")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFault(f"{' '.join(command[:4])}: {error}") from error
    if done.returncode:
        raise RuntimeFault(
            f"{' '.join(command[:4])}: {done.stderr.decode(errors='replace')[-300:]}"
        )


def _with_packages(environment: Path) -> list[Entry]:
    """Python, and what is installed beside it, at the same places below this image's own prefix."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages, libraries = environment / "lib" / version / "site-packages", list[Path]()
    added: list[Entry] = []
    for top in (packages, environment / "share" / "jupyter", environment / "etc" / "jupyter"):
        for folder, names, files in os.walk(top):
            names[:] = sorted(n for n in names if n not in _NO_PART)
            for name in sorted(files):
                path = Path(folder) / name
                if name == "distutils-precedence.pth":  # setuptools', which is left out
                    continue
                added.append((f"usr/local/{path.relative_to(environment)}", path))
                if ".so" in path.suffixes:
                    libraries.append(path)
    return list(dict([*_shared_libraries(libraries), *_python_files(), *added]).items())


Entry = tuple[str, Path | str | bytes | None]
"""A path in the image, and its content: a file to copy, a link's target, or None for a folder."""


def _bytecode(sources: list[Entry]) -> Iterator[Entry]:
    """What this Python made of each of its *sources*, or nobody in the image could keep it: a
    container would begin by compiling all that it imports, JupyterLab for over a second.

    The file beside the source is good for its time of change here; in the image, where all times
    are 0, it goes by the name of its source alone (PEP 552, unchecked hash). One that is missing,
    or of another source, is left out.
    """
    for name, source in sources:
        if not isinstance(source, Path) or source.suffix != ".py":
            continue
        try:
            made = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        except OSError:
            continue
        seen = source.stat()
        of_it = struct.pack("<III", _TIMED, int(seen.st_mtime) & _WORD, seen.st_size & _WORD)
        if made[:16] == importlib.util.MAGIC_NUMBER + of_it:
            head = struct.pack("<I", _UNCHECKED) + importlib.util.source_hash(source.read_bytes())
            kept = importlib.util.cache_from_source(name)
            yield kept, importlib.util.MAGIC_NUMBER + head + made[16:]


def _import(client: Any, repository: str, entries: list[Entry], command: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        _pack(file, [*entries, *_bytecode(entries)])
        file.flush()
        with open(file.name, "rb") as packed:
            digest = hashlib.file_digest(packed, "sha256").hexdigest()
        with map_docker(f"import {repository}"):
            labelled = client.images.list(filters={"label": f"{_LABEL}={digest}"})
            found = [one for one in labelled if _is_import(one.attrs, digest, command)]
            if not found:
                client.api.import_image_from_file(
                    file.name,
                    repository=repository,
                    tag=TAG,
                    changes=[f"LABEL {_LABEL}={digest}", f'CMD ["{command}"]'],
                )
            elif f"{repository}:{TAG}" not in found[0].tags:
                found[0].tag(repository, TAG)
            return str(client.images.get(f"{repository}:{TAG}").id)


def _is_import(attributes: Any, digest: str, command: str) -> bool:
    """Whether an image is just what was imported. Whatever is built on it has its label as well,
    and a tenant's image may have any: its one layer and all of its configuration are looked at.
    """
    said = {name: value for name, value in attributes["Config"].items() if value}
    wanted = {"Cmd": [command], "Labels": {_LABEL: digest}}
    return attributes["RootFS"]["Layers"] == [f"sha256:{digest}"] and said == wanted


def _pack(file: Any, entries: list[Entry]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(entries, key=lambda entry: entry[0]):
            info = tarfile.TarInfo(name)
            info.mode = 0o1777 if name == "tmp" else 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            elif isinstance(content, str) and content.startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, content[2:]
                archive.addfile(info)
            elif isinstance(content, str | bytes):
                data = content.encode() if isinstance(content, str) else content
                info.size, info.mode = len(data), 0o644
                archive.addfile(info, io.BytesIO(data))
            else:
                found = content.stat()
                info.size = found.st_size
                info.mode = 0o755 if found.st_mode & 0o111 else 0o644
                with content.open("rb") as copied:
                    archive.addfile(info, copied)


def _skeleton() -> list[Entry]:
    users = "root:x:0:0:root:/:/bin/sh\ntally:x:10001:10001:tally:/workspace:/bin/sh\n"
    folders = ("bin", "dev", "etc", "proc", "sys", "tmp", "usr", "usr/bin", "usr/local",
               "usr/local/bin", "usr/local/lib", "var", "workspace")  # fmt: skip
    files: list[Entry] = [(name, None) for name in folders]
    return [*files, ("etc/passwd", users), ("etc/group", "root:x:0:\ntally:x:10001:\n")]


def _tools() -> tuple[list[Entry], list[Path]]:
    """A shell and the usual small commands: busybox where there is one, else this machine's own.
    The second list is what still needs its shared libraries."""
    busybox = shutil.which("busybox")
    if busybox is not None:
        links: list[Entry] = [(f"bin/{name}", "->busybox") for name in _TOOLS]
        return [("bin/busybox", Path(busybox).resolve()), *links], [Path(busybox).resolve()]
    found = {name: shutil.which(name) for name in _TOOLS}
    own = {name: Path(path).resolve() for name, path in found.items() if path is not None}
    return [(f"bin/{name}", path) for name, path in own.items()], list(own.values())


def _python_files() -> list[Entry]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sys.base_prefix) / "bin" / version
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    if not interpreter.exists():
        interpreter = Path(os.path.realpath(sys.executable))
    tools, binaries = _tools()
    entries = [*_skeleton(), *tools]
    entries.append((f"usr/local/bin/{version}", interpreter))
    entries += [(f"usr/local/bin/{name}", f"->{version}") for name in ("python3", "python")]
    modules: list[Path] = []
    for path in _files(library):
        entries.append((f"usr/local/lib/{version}/{path.relative_to(library)}", path))
        if path.suffix == ".so":
            modules.append(path)
    entries += _shared_libraries([interpreter, *modules, *binaries])
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        entries.append(("etc/ssl/certs/ca-certificates.crt", certificates))
        entries.append(("usr/lib/ssl/cert.pem", "->/etc/ssl/certs/ca-certificates.crt"))
    return entries


def _files(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        yield from (Path(folder) / name for name in sorted(files) if not name.endswith(".a"))


def _shared_libraries(binaries: list[Path]) -> list[Entry]:
    """What ``ldd`` names, all beside the C library where the loader looks first, and the loader at
    the path that the interpreter asks for."""
    try:
        done = subprocess.run(
            ["ldd", *map(str, binaries)], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFault(f"ldd: {error}") from error
    named = set(re.findall(r"(?:=>\s+)?(/\S+)\s+\(0x", done.stdout.decode()))
    libc = next((Path(path).parent for path in named if "libc.so" in path), Path("/lib"))
    for extra in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1"):
        for folder in (libc, Path("/usr/lib/x86_64-linux-gnu")):
            if (folder / extra).exists():
                named.add(str(folder / extra))
                break
    entries: dict[str, Path] = {}
    for path in sorted(named):
        real = Path(os.path.realpath(path))
        place = Path(path) if "/ld-linux" in path or "/ld-musl" in path else libc / Path(path).name
        entries[str(place).lstrip("/")] = real
    return list(entries.items())
