"""Values of a fitted model in; a JSON tree and plain arrays out, and back. Nothing is imported or called by a name in a file.

A tree holds null, booleans, numbers, strings, lists and objects. Everything else is an object with one key that starts with "$":

    {"$array": name, "axes": [...]}     an array; its bytes are kept apart under that name, with the order of its axes in memory
    {"$sparse": name, "mask": name, …}  an array that is mostly zeros: the others, and a bit for each element
    {"$texts": name, "kind": ...}       an array of strings or of other hashable things (a vocabulary, ids)
    {"$tuple": [...]}, {"$map": [[key, value], …]}, {"$float": "nan"}, {"$bytes": "hex"}
    {"$record": name, "fields": {...}}  an instance of a class that is registered under that name

An array that occurs twice is kept once, and is one array again when it comes back.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Decoder", "Encoder", "register"]

Array = npt.NDArray[Any]
Fields = dict[str, Any]
# One element of an array of objects: an id, not a document.
LONGEST_PIECE = 1_000_000
# A string array takes its longest string for every element; more than so many bytes for one in the file was never saved by us.
WIDEST = 64
# Smaller arrays, or those with more that is not zero, are kept as they are.
SPARSE_SIZE, SPARSE_SHARE = 4096, 0.6


class Codec(NamedTuple):
    """A class that files may hold: its name there, its fields, and how it is made of them."""

    name: str
    fields: Callable[[Any], Fields]
    make: Callable[[Fields], Any]


_by_class: dict[type, Codec] = {}
_by_name: dict[str, Codec] = {}


def register(
    cls: type,
    name: str | None = None,
    fields: Callable[[Any], Fields] | None = None,
    make: Callable[[Fields], Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Let model files hold instances of a class.

    Parameters
    ----------
    cls : a NamedTuple, a dataclass, or any class if ``fields`` and ``make`` are given
    name : what it is called in files, for good; by default the name of the class
    fields : a function from an instance to a dict of what is kept
    make : a function from that dict to an instance; a field that an older file does not have is not in it
    renamed : {name in older files: name now} of fields
    """
    new, build = renamed or {}, make or (lambda kept: cls(**kept))
    codec = Codec(
        name or cls.__name__,
        fields or _own_fields,
        lambda kept: build({new.get(field, field): value for field, value in kept.items()}),
    )
    if codec.name in _by_name and _by_name[codec.name] is not _by_class.get(cls):
        raise ValueError(f"{codec.name!r} is the name of another class in model files: give name=")
    _by_class[cls] = _by_name[codec.name] = codec


def _own_fields(value: Any) -> Fields:
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


class Encoder:
    """Makes trees of values; ``arrays`` collects what is kept apart."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        # The value itself is held, too: the number of a thing that is gone may be that of another one.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def tree(self, value: Any, where: str) -> Any:
        """The tree of a value; ``where`` names it in errors."""
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        if (codec := _by_class.get(type(value))) is not None:
            kept = codec.fields(value)
            return {"$record": codec.name, "fields": {k: self.tree(v, f"{where}.{k}") for k, v in kept.items()}}
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        if type(value) in (list, tuple):
            parts = [self.tree(part, f"{where}[{place}]") for place, part in enumerate(value)]
            return parts if isinstance(value, list) else {"$tuple": parts}
        if hasattr(value, "__array__") and hasattr(value, "dtype") and not hasattr(value, "columns"):
            return self._array(value, where)
        raise TypeError(
            f"{where} = {value!r} cannot be kept in a model file: a {type(value).__name__} is not a number, a string, an array, "
            "a list of these or a class of natgrad. Replace it before saving (a function by the number it gives), or register "
            "its class"
        )

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.tree(part, f"{where}[{key!r}]") for key, part in value.items()}
        pairs = [[self.tree(k, f"a key of {where}"), self.tree(v, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"$map": pairs}

    def _array(self, value: Any, where: str) -> Any:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        array = np.asarray(value)
        tree = self._texts(array, where) if array.dtype.kind in "OUS" else self._numbers(array, where)
        if isinstance(value, np.generic):
            tree = {**tree, "scalar": True}
        self._seen[id(value)] = (value, tree)
        return tree

    def _numbers(self, array: Array, where: str) -> Fields:
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise TypeError(
                f"{where} is an array of {array.dtype}, which a model file cannot keep: convert it to numbers"
            )
        axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        plain = np.asarray(array.transpose(axes), order="C")
        if plain.size < SPARSE_SIZE:
            return {"$array": self._kept(plain), "axes": axes}
        # By their bits: −0.0 is not the zero that is left out.
        mask = plain.reshape(-1).view(f"u{plain.dtype.itemsize}") != 0
        if np.count_nonzero(mask) > SPARSE_SHARE * plain.size:
            return {"$array": self._kept(plain), "axes": axes}
        values, bits = self._kept(plain.reshape(-1)[mask]), self._kept(np.packbits(mask))
        return {"$sparse": values, "mask": bits, "shape": list(plain.shape), "axes": axes}

    def _texts(self, array: Array, where: str) -> Fields:
        """Pieces of UTF-8 one after the other, and their lengths; what is not a string is written as JSON."""
        values = array.ravel().tolist()
        plain = all(type(value) is str for value in values)
        pieces = [
            (value if plain else _as_json(value, f"{where}[{place}]")).encode("utf-8", "surrogatepass")
            for place, value in enumerate(values)
        ]
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        return {
            "$texts": self._kept(np.frombuffer(b"".join(pieces), dtype=np.uint8)),
            "lengths": self._kept(lengths),
            "shape": list(array.shape),
            "kind": array.dtype.kind,
            "json": not plain,
        }

    def _kept(self, array: Array) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return name


class Decoder:
    """Makes values of trees and the arrays they name. What does not fit raises one of the usual errors of Python."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._made: dict[str, Array] = {}

    def value(self, tree: Any) -> Any:
        """The value of a tree."""
        if isinstance(tree, list):
            return [self.value(part) for part in tree]
        if not isinstance(tree, dict):
            return tree
        for key, read in (
            ("$array", self._array),
            ("$sparse", self._sparse),
            ("$texts", self._texts),
            ("$record", self._record),
        ):
            if key in tree:
                return read(tree)
        if "$tuple" in tree:
            return tuple(self.value(part) for part in tree["$tuple"])
        if "$map" in tree:
            return {self.value(key): self.value(part) for key, part in tree["$map"]}
        if "$float" in tree:
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[tree["$float"]]
        if "$bytes" in tree:
            return bytes.fromhex(tree["$bytes"])
        return {key: self.value(part) for key, part in tree.items()}

    def _record(self, tree: Fields) -> Any:
        codec = _by_name.get(tree["$record"])
        if codec is None:
            raise ValueError(f"it holds a {tree['$record']!r}, which this natgrad does not know")
        return codec.make({name: self.value(part) for name, part in tree["fields"].items()})

    def _array(self, tree: Fields) -> Any:
        name = tree["$array"]
        if name not in self._made:
            axes = [int(axis) for axis in tree["axes"]]
            self._made[name] = self._arrays[name].transpose(np.argsort(axes) if axes else None)
        return self._made[name][()] if tree.get("scalar") else self._made[name]

    def _sparse(self, tree: Fields) -> Array:
        name = tree["$sparse"]
        if name not in self._made:
            bits, shape = self._arrays[tree["mask"]], [int(size) for size in tree["shape"]]
            size = math.prod(shape)
            # Before anything is allocated: a mask has one bit for each element, so that an array is at most 64 times its mask.
            if bits.dtype != np.uint8 or bits.ndim != 1 or min(shape, default=1) < 0 or len(bits) != -(-size // 8):
                raise ValueError("the mask of a sparse array does not fit its shape")
            array = np.zeros(size, dtype=self._arrays[name].dtype)
            array[np.unpackbits(bits, count=size).view(bool)] = self._arrays[name]
            axes = [int(axis) for axis in tree["axes"]]
            self._made[name] = array.reshape(shape).transpose(np.argsort(axes))
        return self._made[name]

    def _texts(self, tree: Fields) -> Array:
        name = tree["$texts"]
        if name in self._made:
            return self._made[name]
        raw, lengths = self._arrays[name].tobytes(), self._arrays[tree["lengths"]]
        ends = np.cumsum(lengths, dtype=np.int64)
        if (lengths < 0).any() or (ends[-1] if len(ends) else 0) != len(raw):
            raise ValueError("the lengths of its strings do not fit")
        pieces = [
            raw[end - size : end].decode("utf-8", "surrogatepass")
            for end, size in zip(ends.tolist(), lengths.tolist(), strict=True)
        ]
        values = [self._from_json(piece) for piece in pieces] if tree["json"] else pieces
        self._made[name] = _array_of(values, tree["kind"], len(raw) + lengths.nbytes).reshape(tree["shape"])
        return self._made[name]

    def _from_json(self, piece: str) -> Any:
        if len(piece) > LONGEST_PIECE:
            raise ValueError(f"an element of {len(piece)} characters")
        return self.value(json.loads(piece))


def _as_json(value: Any, where: str) -> str:
    encoder = Encoder()
    text = json.dumps(encoder.tree(value, where), separators=(",", ":"))
    if encoder.arrays or len(text) > LONGEST_PIECE:
        raise TypeError(
            f"{where} = {value!r} cannot be kept in a model file: use a string, a number or a tuple of them"
        )
    return text


def _array_of(values: list[Any], kind: str, n_bytes: int) -> Array:
    if kind == "O":
        out = np.empty(len(values), dtype=object)
        for place, value in enumerate(values):
            out[place] = value
        return out
    expected, width = {"U": (str, 4), "S": (bytes, 1)}[kind]
    if not all(isinstance(value, expected) for value in values):
        raise ValueError("an element of another type than its array")
    if len(values) * width * max(map(len, values), default=0) > WIDEST * n_bytes + 1_000_000:
        raise ValueError("an array of strings that is much larger than its file")
    return np.array(values, dtype=kind)
