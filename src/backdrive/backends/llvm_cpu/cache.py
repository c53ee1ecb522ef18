"""The cache of compiled kernels on disk.

There are two levels. The key of a kernel is a hash of everything that its machine code depends on: this package's own
source, the kernel's name and options, the model (of specialised kernels), the processor and LLVM's version. The file
under that key is a link: it names the hash of the kernel's LLVM IR, under which the machine code is kept. A kernel that
has a link is not traced at all. After a change of the source it is traced, but only compiled if its LLVM IR changed.

Machine code is only loaded from a directory and a file that belong to this user and that nobody else can write to;
otherwise the cache is not used, and a warning says so. Every file carries its key and a checksum and is written under a
temporary name first, so a truncated, corrupted or foreign file is detected, and the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAGIC = b"backdrive kernel 1\n"
# The part of the package's source that traced code may depend on.
_SOURCES = (
    "ir/**/*.py", "backends/**/*.py", "schema/**/*.py", "model/**/*.py", "physics/**/*.py", "piles/**/*.py",
    "control/boxqp.py", "control/formulas.py", "control/riccati.py",
)  # fmt: skip


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel."""

    code: bytes
    """An object file."""
    scratch: Any
    """Sizes of its workspaces, as expressions of the integer arguments."""
    operations: int
    """Number of SIMD instructions, approximately."""


def directory() -> Path:
    """The directory of the cache: ``$BACKDRIVE_CACHE``, or ``backdrive`` in the user's cache directory."""
    if path := os.environ.get("BACKDRIVE_CACHE"):
        return Path(path)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "backdrive"


@functools.cache
def _source_hash() -> str:
    """A hash of the package's source: a change of the physics or of the compiler makes every link stale."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(p for pattern in _SOURCES for p in root.glob(pattern)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(*parts: Any) -> str:
    """The key of a kernel that is identified by these parts."""
    import llvmlite.binding as llvm

    text = repr((_source_hash(), llvm.llvm_version_info, *parts))
    return hashlib.sha256(text.encode()).hexdigest()


def key_of_code(text: str, *parts: Any) -> str:
    """The key of machine code: of the LLVM IR that it is compiled from, and of other parts that it depends on."""
    import llvmlite.binding as llvm

    return hashlib.sha256(repr((text, llvm.llvm_version_info, *parts)).encode()).hexdigest()


def load(key: str, linked: bool = False) -> CompiledKernel | None:
    """The entry under a key, if there is an intact file for it in a trusted directory; linked: do not follow a link."""
    if not _trusted_directory(create=False):
        return None
    try:
        descriptor = os.open(directory() / key, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            if not _private(os.fstat(descriptor)):
                return None
            content = file.read()
    except OSError:
        return None
    return _parse(content, key, linked)


def _parse(content: bytes, key: str, linked: bool) -> CompiledKernel | None:
    start = len(_MAGIC) + 64
    digest = content[len(_MAGIC) : start]
    payload = content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).hexdigest().encode() != digest:
        return None
    header, _, code = payload.partition(b"\n")
    try:
        fields = json.loads(header)
        if fields["key"] != key:
            return None
        if "code" in fields:
            return None if linked else load(str(fields["code"]), linked=True)
        return CompiledKernel(code, fields["scratch"], fields["operations"])
    except (ValueError, KeyError, TypeError):
        return None


def store(key: str, entry: CompiledKernel) -> None:
    """Write an entry. It is no error if the cache cannot be written."""
    _write({"key": key, "scratch": entry.scratch, "operations": entry.operations}, entry.code)


def store_link(key: str, code: str) -> None:
    """Write a link: the kernel with this key has the machine code with the key `code`."""
    _write({"key": key, "code": code}, b"")


def _write(fields: dict[str, Any], code: bytes) -> None:
    if not _trusted_directory(create=True):
        return
    key = fields["key"]
    payload = json.dumps(fields).encode() + b"\n" + code
    content = _MAGIC + hashlib.sha256(payload).hexdigest().encode() + payload
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(dir=directory(), prefix=".writing-")
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, directory() / key)
        except OSError:
            os.unlink(name)


def _trusted_directory(create: bool) -> bool:
    path = directory()
    try:
        if create:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or not _private(status):
        _warn_once(
            f"the kernel cache {path} belongs to or can be written by another user: it is not used, and kernels are "
            "compiled anew in every process (set BACKDRIVE_CACHE to a directory of your own)"
        )
        return False
    return True


def _private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user and nobody else can write to it."""
    if not hasattr(os, "geteuid"):  # Windows: the user's profile directory is private by default
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
