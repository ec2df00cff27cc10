"""The bytes of a model file in; the same bytes, damaged or forged in one of many ways, out. A fit in; a digest of it out."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import numpy as np

from natgrad.inference.trace import Trace
from natgrad.posterior.files.container import DIGEST, DIGITS, Encoder

__all__ = ["bits_of", "damaged", "forged", "signed"]

Generator = np.random.Generator
HUGE = (2**63 - 1, 2**64 - 1, 2**40, 10**9, 0, 1, 7)
# What a forger may write into the places of a header: paths, sizes, wrong types, deep and long things.
STRANGE: tuple[Any, ...] = (
    "../../etc/passwd", "/dev/zero", "a\x00b", "__import__('os').system('true')", -1, 2**62, 1e308, None, True, [], {}, "", "nan",
    [2**40, 2**40], [[]] * 50, {"$record": "posix.system", "fields": {}}, {"$array": "a0"}, {"$texts": "a0"}, {"$tuple": 3},
    {"$map": [1]}, {"$float": "no"}, {"$bytes": "zz"}, {"$record": "State", "fields": {"lam": 1}},
)  # fmt: skip


def bits_of(fitted: Any) -> str:
    """A digest of all that a fitted estimator or a network's fit is, but for the time it took: equal only if every bit is."""
    if hasattr(fitted, "_saved"):  # partial_fit alone leaves no trace
        kept, trace = fitted._saved(), getattr(fitted, "trace_", Trace())
    else:
        kept, trace = {"state": fitted.state, "elbo": fitted.elbo, "stop": fitted.stop}, fitted.trace
    for part in (kept, kept.get("run", {}), kept.get("fitted", {})):
        for name in ("trace", "trace_"):
            part.pop(name, None)
    columns = {name: trace[name] for name in trace.columns if name != "seconds"}
    encoder = Encoder()
    tree = encoder.tree({"kept": kept, "columns": columns, "choice": trace.strategy}, "fit")
    digest = hashlib.sha256(json.dumps(tree).encode())
    for array in encoder.arrays.values():
        digest.update(array.tobytes())
    return digest.hexdigest()


def damaged(data: bytes, rng: Generator) -> bytes:
    """A flipped bit, a cut, an insertion, other bytes, a repeated part, a longer or a strange header; never the same."""
    kind, place = int(rng.integers(8)), int(rng.integers(len(data)))
    out = bytearray(data)
    if kind == 0:
        out[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del out[place:]
    elif kind == 2:
        out[place:place] = rng.bytes(int(rng.integers(1, 64)))
    elif kind == 3:
        length = int(rng.integers(1, 64))
        del out[place : place + length]
    elif kind == 4:
        out[:8] = HUGE[int(rng.integers(len(HUGE)))].to_bytes(8, "little")
    elif kind == 5:
        out[place : place + 16] = rng.bytes(len(out[place : place + 16]))
    elif kind == 6:
        out += out[place:]
    else:
        header, payload = _parted(data)
        if rng.random() < 0.5:
            _spoil(header, rng)
        else:  # the entries of two arrays, or of an array and all else, exchanged
            one, other = rng.choice(sorted(header), 2, replace=False)
            header[one], header[other] = header[other], header[one]
        out = _joined(header, payload)
    return bytes(out) if out != data else damaged(data, rng)


def forged(data: bytes, rng: Generator) -> bytes:
    """Strange things in the header or the tree, or changed bytes of arrays, and a digest that is right again."""
    header, payload = _parted(data)
    kind = int(rng.integers(4))
    if kind == 0 and payload:
        payload[int(rng.integers(len(payload)))] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        _spoil(header, rng)
    else:
        content = json.loads(header["__metadata__"]["content"])
        for _ in range(kind - 1):
            _spoil(content, rng)
        header["__metadata__"]["content"] = json.dumps(content)
    return signed(header, bytes(payload))


def signed(header: Any, payload: bytes) -> bytes:
    """A file with this header and payload, and the digest that belongs to them."""
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"] = {**header["__metadata__"], "sha256": "0" * DIGITS}
    data = _joined(header, payload)
    data[DIGEST] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def _parted(data: bytes) -> tuple[Any, bytearray]:
    """The header of a file, and the bytes of its arrays."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])


def _joined(header: Any, payload: bytes | bytearray) -> bytearray:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return bytearray(len(text).to_bytes(8, "little") + text + payload)


def _spoil(tree: Any, rng: Generator) -> None:
    """Put something strange into one place of a tree, or take one out."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(tree[key], (dict, list)) and tree[key] and rng.random() < 0.8:
            tree = tree[key]
            continue
        if rng.random() < 0.2:
            del tree[key]
        else:
            tree[key] = copy.deepcopy(STRANGE[int(rng.integers(len(STRANGE)))])  # a second change may go into it
        return
