"""Model files with one field forged and a digest that is right, out; what loading and using them does, in a process of its own.

A forger knows the format. Whatever the file says, `natgrad.load` gives a model that can be used, or raises `ModelFileError`: no
process dies, allocates without bound, or fails later. `outcomes` tries forgeries of a case in a process of its own, so that the
death of one is seen.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from adversary.files import signed

from natgrad.errors import ModelFileError, SymmetricStart
from natgrad.posterior.files.container import NAMES, TYPES

__all__ = ["Outcomes", "forged_field", "outcomes", "parts_of", "together", "tried", "work"]

Array = npt.NDArray[Any]
Generator = np.random.Generator
# Bytes of addresses that a process may have beyond those of its start, and seconds that one forgery may take.
ROOM, SECONDS = 6 * 2**30, 60
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 50, 10**6, 10**12, 2**31, 2**63, 2**70, 10**400, 0.0, -0.5, 0.5, 1.5, 1e-300, 1e308,
    {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}, "", "x", "tcp://192.0.2.1:8786", "/etc/passwd", [], {}, [1, 2],
    {"$tuple": []}, {"$tuple": [1, 2]}, {"$map": [[1, 2]]}, {"$bytes": "00"}, [[[]]],
    {"$record": "step.Constant", "fields": {"rho": 0.5}}, {"$record": "method.VB", "fields": {}},
    {"$record": "family.Normal", "fields": {}}, {"$record": "State", "fields": {"lam": {}, "mu": {}, "t": 0}},
    {"$record": "step.RobbinsMonro", "fields": {"delay": 1e300}}, {"$record": "method.GlobalBatch", "fields": {"size": 10**12}},
    {"$record": "method.Children", "fields": {"C": {"$record": "covariance.RBF", "fields": {"data": {
        "type": "RBF", "parameters": {"variance": 1.0, "lengthscale": 1.0}, "active": None}}}}},
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 1e308, -1e308, 1e-300, 1e15, 0.5, 37.0)


# -- forging --


def parts_of(data: bytes) -> tuple[Any, Any, dict[str, Array]]:
    """The header of a file, the tree in it, and the arrays."""
    length = int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8 : 8 + length]), data[8 + length :]
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(payload[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return header, json.loads(header["__metadata__"]["content"]), arrays


def together(header: Any, content: Any, arrays: dict[str, Array]) -> bytes:
    """A file of these parts with a right digest."""
    metadata = {**header["__metadata__"], "content": json.dumps(content)}
    metadata["payload"] = str(sum(array.nbytes for array in arrays.values()))
    made: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        end = begin + array.nbytes
        made[name] = {"dtype": NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    return signed(made, b"".join(arrays[name].tobytes() for name in made if name != "__metadata__"))


def forged_field(data: bytes, rng: Generator) -> bytes:
    """The file with one array, one scalar or one branch of its tree replaced, taken out, added or exchanged."""
    header, content, arrays = parts_of(data)
    if arrays and rng.random() < 0.5:
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        if rng.random() < 0.15:
            other = sorted(arrays)[int(rng.integers(len(arrays)))]
            arrays[name], arrays[other] = arrays[other], arrays[name]
        else:
            arrays[name] = np.ascontiguousarray(forged_array(arrays[name], rng))
    else:
        _forge_tree(content, rng)
    return together(header, content, arrays)


def forged_array(array: Array, rng: Generator) -> Array:
    """Another shape, another type or other numbers."""
    ways: list[Callable[[], Array]] = [
        lambda: np.concatenate([array] * 50) if array.ndim else np.full(50, array),
        lambda: np.repeat(array, 2, axis=-1) if array.ndim else array[None],
        lambda: array[: len(array) // 2] if array.ndim else array[None, None],
        lambda: array[..., :-1] if array.ndim else array.reshape(1, 1, 1),
        lambda: array[:0] if array.ndim else np.zeros(0, array.dtype),
        lambda: array.T,
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array[..., None],
        lambda: array.astype(("f4", "f2", "i8", "u1", "?", "f8", "i4")[int(rng.integers(7))]),
        lambda: rng.permutation(array.reshape(-1)).reshape(array.shape),
        lambda: -array if array.dtype.kind in "if" else array,
        lambda: np.zeros_like(array),
        lambda: (array * 1e6).astype(array.dtype) if array.dtype.kind in "iuf" else ~array,
    ]
    with np.errstate(all="ignore"):
        if rng.random() < 0.5 or not array.size:
            return ways[int(rng.integers(len(ways)))]()
        out = array.copy().reshape(-1)
        if array.dtype.kind == "f":
            value = NUMBERS[int(rng.integers(len(NUMBERS)))]
        else:
            value = (0, 1, 2**31 - 1, len(out), 200, 1000)[int(rng.integers(6))] * (
                1 if array.dtype.kind in "u?" else -1
            )
        if rng.random() < 0.3:
            out[:] = np.asarray(value).astype(array.dtype)
        else:
            out[int(rng.integers(len(out)))] = np.asarray(value).astype(array.dtype)
        return out.reshape(array.shape)


def _forge_tree(tree: Any, rng: Generator) -> None:
    """One place of a tree, every place as likely as any other."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        here = stack.pop()
        for key in list(here) if isinstance(here, dict) else range(len(here)):
            places.append((here, key))
            if isinstance(here[key], (dict, list)):
                stack.append(here[key])
    parent, key = places[int(rng.integers(len(places)))]
    way = rng.random()
    if way < 0.1:
        del parent[key]
    elif way < 0.15 and isinstance(parent, dict):
        parent["another"] = copy.deepcopy(parent[key])
    elif way < 0.25:
        other, place = places[int(rng.integers(len(places)))]
        parent[key] = copy.deepcopy(other[place])
    elif way < 0.35 and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        parent[key] = parent[key] * (2, 50, -1, 0.5)[int(rng.integers(4))]
    else:
        parent[key] = copy.deepcopy(SCALARS[int(rng.integers(len(SCALARS)))])


# -- trying --


class Outcomes(NamedTuple):
    """How many forgeries were refused, and used after they loaded; what went wrong, with the seed that makes it again."""

    refused: int
    used: int
    wrong: list[tuple[int, str]]


def outcomes(case: str, seeds: range, script: Path, most_wrong: int = 20) -> Outcomes:
    """Try forgeries of a case, seed by seed, in processes that run ``script --worker case first last``.

    The worker, a call of `work`, says before each forgery which it is, and after it what it did. If it dies, another goes on.
    """
    refused = used = 0
    wrong: list[tuple[int, str]] = []
    at = seeds.start
    while at < seeds.stop and len(wrong) < most_wrong:
        words = [sys.executable, str(script), "--worker", case, str(at), str(seeds.stop)]
        paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        worker = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        lines = [line.split(" ", 2) for line in worker.stdout.splitlines() if line.startswith(("try ", "did "))]
        for kind, number, *rest in lines:
            at = int(number) + 1
            what = rest[0] if rest else ""
            if kind == "did":
                refused, used = refused + (what == "refused"), used + (what == "used")
                if what not in ("refused", "used"):
                    wrong.append((int(number), what))
        if worker.returncode or not lines:
            said = worker.stderr.strip().splitlines()[-1:] or [""]
            wrong.append((at - 1, f"the process ended with {worker.returncode}: {said[0]}"))
            if not lines:
                break
    return Outcomes(refused, used, wrong)


def work(make: Callable[[], bytes], use: Callable[[Path], None], first: int, last: int, folder: Path) -> None:
    """Make the file of a case, then forge, load and use it once for each seed; one line before and one after each."""
    import resource
    import signal

    data = make()
    target = folder / "forged.natgrad"
    target.write_bytes(data)
    use(target)  # the file itself is right, and everything is compiled
    start = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (start + ROOM, start + ROOM))
    for seed in range(first, last):
        target.write_bytes(forged_field(data, np.random.default_rng(seed)))
        print(f"try {seed}", flush=True)
        signal.alarm(SECONDS)  # ends the process, which is seen
        print(f"did {seed} {tried(use, target)}", flush=True)
        signal.alarm(0)


def tried(use: Callable[[Path], None], target: Path) -> str:
    """What a file did: "refused" and "used" are fine, anything else is an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(target)
    except (
        ModelFileError,
        SymmetricStart,
    ):  # a checkpoint whose components are all equal is refused as such a start is
        return "refused"
    except Exception as error:  # whatever it is, it is what this looks for
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})".replace("\n", " ")
    return "used"
