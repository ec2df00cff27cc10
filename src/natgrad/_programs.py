"""Functions for JAX in; what it compiled out: once for each program and shape, shared by all who need it, kept across processes.

A program is known by its text, as JAX hands it to its compiler (StableHLO, with every constant), and by the versions and the
processor it is for: whatever a function depends on is in there, so that what is found can never be that of another function.
Numbers are arguments: the same network with other data has the same text. Tracing a function to its text takes a tenth of
compiling it, and is left out where whoever asks can say what the function is made of, to the last number (`Source`): then the
program of an earlier process with the same source, sources of natgrad, versions and settings of JAX is found at once.

Nothing of the user's process is changed: `jax.config` has a persistent cache of its own, which belongs to the process' owner.

    NATGRAD_CACHE=off            nothing is kept on disk
    NATGRAD_CACHE_DIR=folder     where; by default "natgrad" in the user's cache folder (XDG_CACHE_HOME, ~/.cache, …)
    NATGRAD_CACHE_SIZE=MB        at most so much, 512 by default; what was used least recently goes first
    NATGRAD_CACHE_SOURCE=off     programs are looked for by their text alone

A folder that cannot be written, or that others may write, is not used. Files appear as a whole, so that processes may share them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
import re
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from natgrad._jax import prepare_lapack
from natgrad._version import __version__
from natgrad.compiling import compiling

__all__ = ["Programs", "Source", "cache_folder", "compiled"]

# Says what a function is made of, in a few bytes that nothing else has; None if that cannot be told.
Source = Callable[[], str | None]

# Programs that stay in memory although nobody may need them any more: those of a few networks, a megabyte or two each.
KEPT = 64
MEGABYTE, USUAL_SIZE = 2**20, 512
# Modules whose functions are traced.
_TRACED = ("natgrad.network.compile.", "natgrad.network.execute.", "natgrad.families.")
# What results are called, which is in a program's text and changes nothing.
_NAMES = re.compile(r'jax\.result_info = "[^"]*"')


def compiled(
    function: Callable[..., Any], static: tuple[int, ...] = (), source: Source | None = None
) -> Callable[..., Any]:
    """The function compiled when it is first called, and again when it is called with other shapes; as ``jax.jit``."""
    return _Compiled(function, static, source)


class _Compiled:
    """One function, with what was compiled for the shapes that it was called with."""

    def __init__(self, function: Callable[..., Any], static: tuple[int, ...], source: Source | None) -> None:
        import jax

        self._traced = jax.jit(function, static_argnums=static or None)
        self._static, self._source = static, source
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
            made_of = None if self._source is None or _is_off("NATGRAD_CACHE_SOURCE") else self._source()
            name = None if made_of is None else _hash(f"{made_of}\n{_settings()}\n{key}")
            self._found[key] = PROGRAMS.of(lambda: self._traced.trace(*arguments).lower(), name)
        return self._found[key]


class Programs:
    """What was compiled, in memory and on disk."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, lower: Callable[[], Any], name: str | None = None) -> Callable[..., Any]:
        """What a function compiles to: from memory, from disk, or now.

        ``lower`` traces and lowers it; ``name`` stands for its source, if that is known.
        """
        program = None if name is None else self._in_memory(name) or _load_by_source(name, lower)
        if program is not None:
            return self._keep(name, program)
        lowered = lower()
        import jax

        # Arguments that a function does not read are not in its text, but it must be called with them.
        types = [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(lowered.args_info)]
        program_text = _NAMES.sub("", lowered.as_text())
        text = _hash(f"{_surroundings()}\n{types}\n{program_text}")
        key = text, lowered.in_tree, lowered.out_tree
        program = self._in_memory(key)
        if program is None:
            loaded = _load(text, lowered.in_tree, lowered.out_tree)
            if loaded is not None:
                program = _Loaded(loaded, lambda: lowered)
            else:
                with compiling():
                    program = lowered.compile()
                _save(text, program)
        if name is not None:
            _save_source(name, Known(text, lowered.in_tree, lowered.out_tree, "lapack_" in program_text))
            self._keep(name, program)
        return self._keep(key, program)

    def _in_memory(self, key: Any) -> Callable[..., Any] | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: Any, program: Callable[..., Any]) -> Callable[..., Any]:
        with self._lock:
            self._kept[key] = program
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return program


class _Loaded:
    """A program of an earlier process; its first call shows whether it runs, and if not it is compiled after all."""

    def __init__(self, program: Callable[..., Any], lower: Callable[[], Any]) -> None:
        self._program = program
        self._lower: Callable[[], Any] | None = lower

    def __call__(self, *arguments: Any) -> Any:
        if self._lower is None:
            return self._program(*arguments)
        import jax

        try:
            outputs = self._program(*arguments)
        except jax.errors.JaxRuntimeError:
            with compiling():
                self._program = self._lower().compile()
            outputs = self._program(*arguments)
        self._lower = None
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


@functools.cache
def _code() -> str:
    """The files of natgrad, by size and time: what a function that is not traced would be traced from."""
    root = Path(__file__).parent
    files = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    return repr([(name, status.st_size, status.st_mtime_ns) for name, status in files])


def _settings() -> str:
    """What tracing depends on besides the function: the code, its constants, which somebody may have set, and JAX's settings."""
    import jax
    import numpy as np

    modules = [(name, vars(module)) for name, module in sorted(sys.modules.items()) if name.startswith(_TRACED)]
    constants = [
        (name, key, value)
        for name, entries in modules
        for key, value in entries.items()
        if key.isupper() and isinstance(value, (int, float, str, tuple))
    ]
    settings: Any = jax.config
    jax_settings = sorted(settings.values.items(), key=repr)
    return f"{_code()}\n{constants}\n{_surroundings()}\n{sys.version}\n{np.__version__}\n{jax_settings}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    if _is_off("NATGRAD_CACHE"):
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


def _is_off(setting: str) -> bool:
    return os.environ.get(setting, "").lower() in ("off", "0", "no", "false")


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


class Known(NamedTuple):
    """What is kept for a source: the name of its program, the structures of arguments and results, whether it calls LAPACK."""

    text: str
    in_tree: Any
    out_tree: Any
    calls_lapack: bool


def _load_by_source(name: str, lower: Callable[[], Any]) -> Callable[..., Any] | None:
    """The program of an earlier process with this source; None if there is none."""
    if (folder := cache_folder()) is None:
        return None
    try:
        digest, payload = (content := (folder / name).read_bytes())[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        known = Known(*pickle.loads(payload))
        if known.calls_lapack:
            prepare_lapack()
        program = _load(known.text, known.in_tree, known.out_tree)
    except Exception:  # no file, a damaged one, or a JAX that is built otherwise
        return None
    return None if program is None else _Loaded(program, lower)


def _save_source(name: str, known: Known) -> None:
    """Remember which program a source has."""
    if cache_folder() is not None and not _jax_keeps():
        with suppress(Exception):  # structures that cannot be written down
            _write(name, pickle.dumps(tuple(known)))


def _save(name: str, program: Any) -> None:
    """Keep a program for later processes, if that is possible."""
    # What JAX itself had from its own cache cannot be written down once more: it would lack its functions.
    if _jax_keeps() or cache_folder() is None:
        return
    from jax.experimental import serialize_executable

    with suppress(Exception):  # a program that JAX cannot write down
        _write(name, serialize_executable.serialize(program)[0])


def _write(name: str, payload: bytes) -> None:
    """A file of the cache, as a whole or not at all."""
    folder = cache_folder()
    assert folder is not None
    part = folder / f".{name[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        part.write_bytes(hashlib.sha256(payload).digest() + payload)
        os.replace(part, folder / name)
        _shrink(folder)
    except Exception:  # a full disk
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
