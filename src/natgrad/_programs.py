"""Functions for JAX in; what it compiled out: once for each program and shape, shared by all who need it, kept across processes.

A program is known by its text, as JAX hands it to its compiler (StableHLO, with every constant), and by the versions and the
processor it is for: whatever a function depends on is in there, so that what is found can never be that of another function.
Numbers are arguments: the same network with other data has the same text. Tracing a function to its text takes a tenth of
compiling it.

Nothing of the user's process is changed: `jax.config` has a persistent cache of its own, which belongs to the process' owner.

    NATGRAD_CACHE=off            nothing is kept on disk
    NATGRAD_CACHE_DIR=folder     where; by default "natgrad" in the user's cache folder (XDG_CACHE_HOME, ~/.cache, …)
    NATGRAD_CACHE_SIZE=MB        at most so much, 512 by default; what was used least recently goes first

A folder that cannot be written, or that others may write, is not used. Files appear as a whole, so that processes may share them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from natgrad._version import __version__
from natgrad.compiling import compiling

__all__ = ["Programs", "cache_folder", "compiled"]

# Programs that stay in memory although nobody may need them any more: those of a few networks, a megabyte or two each.
KEPT = 32
MEGABYTE, USUAL_SIZE = 2**20, 512
# What results are called, which is in a program's text and changes nothing.
_NAMES = re.compile(r'jax\.result_info = "[^"]*"')


def compiled(function: Callable[..., Any], static: tuple[int, ...] = ()) -> Callable[..., Any]:
    """The function compiled when it is first called, and again when it is called with other shapes; as ``jax.jit``."""
    return _Compiled(function, static)


class _Compiled:
    """One function, with what was compiled for the shapes that it was called with."""

    def __init__(self, function: Callable[..., Any], static: tuple[int, ...]) -> None:
        import jax

        self._traced = jax.jit(function, static_argnums=static or None)
        self._static = static
        self._found: dict[Any, Callable[..., Any]] = {}
        self._last: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._static:
            return self._for(arguments)(*(a for n, a in enumerate(arguments) if n not in self._static))
        if self._last is not None:
            try:
                return self._last(*arguments)
            except TypeError:  # other shapes, types or structure than those it was compiled for
                pass
        self._last = self._for(arguments)
        return self._last(*arguments)

    def _for(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        import jax

        leaves, structure = jax.tree.flatten(arguments)
        key = (structure, tuple(jax.typeof(leaf) if hasattr(leaf, "dtype") else type(leaf) for leaf in leaves))
        if self._static:
            key = (key, tuple(arguments[n] for n in self._static))
        if key not in self._found:
            self._found[key] = PROGRAMS.of(self._traced.trace(*arguments).lower())
        return self._found[key]


class Programs:
    """What was compiled, in memory and on disk."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, lowered: Any) -> Callable[..., Any]:
        """What a lowered function compiles to: from memory, from disk, or now."""
        import jax

        # Arguments that a function does not read are not in its text, but it must be called with them.
        types = [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(lowered.args_info)]
        program_text = _NAMES.sub("", lowered.as_text())
        text = hashlib.sha256(f"{_surroundings()}\n{types}\n{program_text}".encode()).hexdigest()
        key = text, lowered.in_tree, lowered.out_tree
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        loaded = _load(text, lowered.in_tree, lowered.out_tree)
        if loaded is not None:
            program: Callable[..., Any] = _Loaded(loaded, lowered)
        else:
            with compiling():
                program = lowered.compile()
            _save(text, program)
        with self._lock:
            self._kept[key] = program
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return program


class _Loaded:
    """A program of an earlier process; its first call shows whether it runs, and if not it is compiled after all."""

    def __init__(self, program: Callable[..., Any], lowered: Any) -> None:
        self._program, self._lowered = program, lowered

    def __call__(self, *arguments: Any) -> Any:
        if self._lowered is None:
            return self._program(*arguments)
        import jax

        try:
            outputs = self._program(*arguments)
        except jax.errors.JaxRuntimeError:
            with compiling():
                self._program = self._lowered.compile()
            outputs = self._program(*arguments)
        self._lowered = None
        return outputs


PROGRAMS = Programs()


@functools.cache
def _surroundings() -> str:
    """What a compiled program depends on besides its text."""
    from importlib.metadata import version

    import jax

    settings: Any = jax.config
    # How hard the compiler tries.
    effort = sorted((name, value) for name, value in settings.values.items() if "optimiz" in name or "effort" in name)
    return repr(
        (
            __version__,
            jax.__version__,
            version("jaxlib"),
            platform.machine(),
            _processor(),
            os.environ.get("XLA_FLAGS"),
            effort,
        )
    ) + repr([(d.platform, d.device_kind) for d in jax.local_devices()])


def _processor() -> str:
    """What this processor can do: a home may be shared by machines of several kinds."""
    with suppress(OSError, StopIteration), open("/proc/cpuinfo", encoding="utf-8") as file:
        return next(line for line in file if line.startswith(("flags", "Features")))
    return f"{platform.processor()} {platform.node()}"


# -- on disk --


@functools.cache
def cache_folder() -> Path | None:
    """Where programs are kept, made if need be; None if there is no place, or none is wanted.

    A file there is run as it is, so the folder must be the user's own.
    """
    if os.environ.get("NATGRAD_CACHE", "").lower() in ("off", "0", "no", "false"):
        return None
    try:
        folder = _chosen_folder() / "programs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
            return None
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):
        return None


def _chosen_folder() -> Path:
    if given := os.environ.get("NATGRAD_CACHE_DIR"):
        return Path(given).expanduser()
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "natgrad"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "natgrad" / "Cache"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "natgrad"


def _load(name: str, in_tree: Any, out_tree: Any) -> Callable[..., Any] | None:
    """A program of an earlier process; None if there is none, or its file is of no use."""
    if (folder := cache_folder()) is None:
        return None
    from jax.experimental import serialize_executable

    path = folder / name
    try:
        payload = path.read_bytes()
        digest, payload = payload[:32], payload[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        program: Callable[..., Any] = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    except Exception:  # no file, a damaged one, or one that this JAX cannot read: any error at all
        return None
    with suppress(OSError):
        os.utime(path)  # was used just now
    return program


def _save(name: str, program: Any) -> None:
    """Keep a program for later processes, if that is possible."""
    # What JAX itself had from its own cache cannot be written down once more: it would lack its functions.
    if _jax_keeps() or (folder := cache_folder()) is None:
        return
    from jax.experimental import serialize_executable

    part = folder / f".{name[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        payload = serialize_executable.serialize(program)[0]
        part.write_bytes(hashlib.sha256(payload).digest() + payload)
        os.replace(part, folder / name)
        _shrink(folder)
    except Exception:  # a full disk, or a program that JAX cannot write down
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _jax_keeps() -> bool:
    """Whether the owner of this process has JAX keep what it compiles."""
    import jax

    settings: Any = jax.config
    return settings.jax_compilation_cache_dir is not None


def _shrink(folder: Path) -> None:
    """Delete what was used least recently until the folder is small enough; others may be deleting, too."""
    given = os.environ.get("NATGRAD_CACHE_SIZE", "")
    most = (int(given) if given.isdecimal() else USUAL_SIZE) * MEGABYTE
    files = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            status = entry.stat()
            files.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size
