"""Write and read model files: values and registered records in one safetensors container, without code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors

from natgrad import covariance, families
from natgrad._version import __version__
from natgrad.data.ratings import Ratings
from natgrad.errors import ModelFileError
from natgrad.inference import auto, methods, step_sizes
from natgrad.inference.options import LocalOptions
from natgrad.inference.problem import State
from natgrad.inference.schema import check
from natgrad.inference.steppers import groups, sweep
from natgrad.inference.trace import ProposalRecord, Reason, StepRecord, Stop, Trace
from natgrad.posterior.factor import Factor

__all__ = [
    "LONGEST_HEADER",
    "SCHEMA",
    "Decoder",
    "Encoder",
    "Stored",
    "encoded",
    "read_model",
    "register",
    "write_model",
]

# A tree holds null, booleans, numbers, strings, lists and objects. Everything else is an object with one key that starts with
# "$":
#
#     {"$array": name, "axes": [...]}     an array; its bytes are kept apart under that name, with the order of its axes in memory
#     {"$sparse": name, "mask": name, …}  an array that is mostly zeros: the others, and a bit for each element
#     {"$texts": name, "kind": ...}       an array of strings or of other hashable things (a vocabulary, ids)
#     {"$tuple": [...]}, {"$map": [[key, value], …]}, {"$float": "nan"}, {"$bytes": "hex"}
#     {"$record": name, "fields": {...}}  an instance of a class that is registered under that name
#
# An array that occurs twice is kept once, and is one array again when it comes back.

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
) -> None:
    """Let model files hold instances of a class.

    Parameters
    ----------
    cls : a NamedTuple, a dataclass, or any class if ``fields`` and ``make`` are given
    name : what it is called in files, for good; by default the name of the class
    fields : a function from an instance to a dict of what is kept
    make : a function from that dict to an instance
    """
    codec = Codec(name or cls.__name__, fields or _own_fields, make or (lambda kept: cls(**kept)))
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


# The classes of natgrad that model files may hold, each under a name that stays for good.
#
# A class that is not here is refused when a model is saved, so a file can never ask for anything else when it is loaded.

INTEGERS = ("t", "messages_read")


def _trace_fields(trace: Trace) -> dict[str, Any]:
    columns = {name: trace[name].astype(np.int64 if name in INTEGERS else np.float64) for name in Trace.columns}
    return {
        "columns": columns, "strategy": trace.strategy, "schedule": trace.schedule,
        "first_sizes": list(trace.first_sizes.items()),
        "proposals": [dataclasses.astuple(record) for record in trace.proposals],
    }  # fmt: skip


def _trace_of(kept: Mapping[str, Any]) -> Trace:
    _check_trace(kept)
    columns = [kept["columns"][name].tolist() for name in Trace.columns]
    trace = Trace([StepRecord(**dict(zip(Trace.columns, row, strict=True))) for row in zip(*columns, strict=True)])
    trace.strategy, trace.schedule = kept["strategy"], kept["schedule"]
    trace.proposals = [ProposalRecord(*record) for record in kept["proposals"]]
    trace.first_sizes = dict(kept["first_sizes"])
    return trace


def _check_trace(kept: Mapping[str, Any]) -> None:
    """One number for each step and column."""
    columns = {name: f"{'whole' if name in INTEGERS else 'float'} [_]" for name in Trace.columns}
    record = (
        "whole", "text", "text", "float", "whole", "float", "float", "float", "flag", ["whole"], "whole", "float",
    )  # fmt: skip
    table: dict[str, Any] = {"columns": columns, "strategy": "text", "schedule": ("text", "whole in [1, 1e9]")}
    check(kept, {**table, "proposals": [record], "first_sizes": [("text", "whole")]}, where="the trace")


def _stop_of(kept: Mapping[str, Any]) -> Stop:
    check(kept, {"reason": " | ".join(f"'{reason.name}'" for reason in Reason), "message": "text"}, where="the stop")
    return Stop(Reason[kept["reason"]], kept["message"])


def _svi_fields(method: methods.SVI) -> dict[str, Any]:
    return {
        "batch": {method.plate: method.size},
        "local_tol": method.local_tol,
        "local_steps": method.local_steps,
    }


def _ratings_fields(ratings: Ratings) -> dict[str, Any]:
    names = ("users", "items", "values", "user_ids", "item_ids")
    return {name: getattr(ratings, name) for name in names}


def _register_all(group: str, module: Any, base: type, *codec: Any) -> None:
    """Register the public classes of a module that are of some kind, each as ``group.Name``."""
    for name in module.__all__:
        cls = getattr(module, name)
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base:
            register(cls, f"{group}.{name}", *codec)


_register_all("family", families, families.Family)
for _class in (methods.VB, methods.Children, methods.GlobalBatch, LocalOptions):
    register(_class, f"method.{_class.__name__}")
for _step in (step_sizes.RobbinsMonro, step_sizes.Constant, step_sizes.HoldThenDecay, step_sizes.PerNode):
    register(_step, f"step.{_step.__name__}")
register(methods.SVI, "method.SVI", _svi_fields)
register(auto.Auto, "step.Auto")
# What methods remember.
register(sweep.History, "memory.History")
register(sweep.Snapshot, "memory.Snapshot")
register(groups.BatchMemory, "memory.Kept")
register(groups.GroupMemory, "memory.Remembered")
register(State)
# What elements are called is kept once, with the declaration.
register(
    Factor,
    None,
    lambda f: {name: getattr(f, name) for name in ("name", "family", "plates", "lam", "origin", "seen", "values")},
)
register(Trace, None, _trace_fields, _trace_of)
register(Stop, None, lambda stop: {"reason": stop.reason.name, "message": stop.message}, _stop_of)
register(Ratings, None, _ratings_fields, lambda kept: Ratings.numbered(**kept))
# The expression as data; a Function of the user's own is code, and refuses.
_register_all(
    "covariance", covariance, covariance.Covariance,
    lambda kernel: {"data": kernel.to_data()}, lambda kept: covariance.covariance_from_data(kept["data"]),
)  # fmt: skip


# The file is a safetensors file: eight bytes with the length of the header, the header in JSON, the bytes of the arrays. What is
# not an array is in the header's metadata:
#
#     sha256    of every byte of the file, with these 64 digits taken as zeros; always first, so that its place is known
#     format    "natgrad";  schema: the number of this layout;  version: of the library that wrote it;  kind: what it holds
#     payload   how many bytes of arrays there are
#     content   the tree of `natgrad.posterior.files.container`, as JSON text
#
# Reading executes nothing. Sizes are checked before anything is read, the digest before anything is made of what was read; every
# file that is not exactly what was written is refused with `ModelFileError`.

SCHEMA = 1
PREFIX = b'{"__metadata__":{"sha256":"'
DIGITS = 64
DIGEST = slice(8 + len(PREFIX), 8 + len(PREFIX) + DIGITS)
# Trees are small, because arrays and strings are kept apart; parsed JSON takes up to 25 times its text.
LONGEST_HEADER = 2_000_000
NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
TYPES = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in NAMES.items()}


class Stored(NamedTuple):
    """What a file holds: the kind, the value, and the schema and library version it was written with."""

    kind: str
    value: Any
    schema: int
    version: str


def write_model(path: str | os.PathLike[str], kind: str, value: Any, *, overwrite: bool = False) -> None:
    """Write a value to a file, atomically: a reader sees the old file, or the new one, complete.

    Parameters
    ----------
    path : where to; its folder must exist
    kind : str, what the reader must know to make sense of the value
    value : anything that `natgrad.posterior.files.container` can encode
    overwrite : bool
        Whether a file that is there may be replaced.
    """
    place = Path(path)
    if not overwrite and os.path.lexists(place):
        raise FileExistsError(f"{str(place)!r} is there already: give overwrite=True to replace it")
    header, arrays = encoded(kind, value)
    with _replacing(place, overwrite) as file:
        digest = hashlib.sha256()
        parts: tuple[Any, ...] = tuple(array.reshape(-1).view(np.uint8) for array in arrays.values())
        for part in (len(header).to_bytes(8, "little"), header, *parts):
            file.write(part)
            digest.update(part)
        file.seek(DIGEST.start)
        file.write(digest.hexdigest().encode())


def encoded(kind: str, value: Any) -> tuple[bytes, dict[str, npt.NDArray[Any]]]:
    """The header of a value's file and its arrays in order; TypeError or ValueError if a file cannot hold it."""
    encoder = Encoder()
    try:
        content = json.dumps(encoder.tree(value, kind), separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ValueError(f"this {kind} is nested too deeply for a model file, or holds itself") from None
    # Large items first: then each array begins at a multiple of its item's size.
    arrays = dict(sorted(encoder.arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    return _header(kind, content, arrays), arrays


def _header(kind: str, content: str, arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    payload = sum(array.nbytes for array in arrays.values())
    metadata = {
        "sha256": "0" * DIGITS, "format": "natgrad", "schema": str(SCHEMA), "version": __version__, "kind": kind,
        "payload": str(payload), "content": content,
    }  # fmt: skip
    entries: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name, array in arrays.items():
        end = begin + array.nbytes
        entries[name] = {"dtype": NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    header = json.dumps(entries, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(header) > LONGEST_HEADER:
        raise ValueError(
            f"the settings and facts of this {kind} take {len(header):,} bytes as text, a model file holds {LONGEST_HEADER:,}: "
            "keep long lists as arrays"
        )
    return header + b" " * (-len(header) % 8)


@contextmanager
def _replacing(place: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """A file beside ``place`` that takes its name when everything is on the disk, and vanishes if anything fails."""
    beside = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(beside, place)
        else:
            _named(beside, place)
    finally:
        beside.unlink(missing_ok=True)
    if os.name != "nt":  # there a folder cannot be opened
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _named(beside: Path, place: Path) -> None:
    """Give the file its name unless another one came to have it meanwhile."""
    try:
        os.link(beside, place)
    except FileExistsError:
        raise FileExistsError(f"{str(place)!r} is there already: give overwrite=True to replace it") from None
    except OSError:  # a file system without links
        os.replace(beside, place)


def read_model(path: str | os.PathLike[str], begin: Callable[[str], None] | None = None) -> Stored:
    """Read what `write_model` wrote; any other file is a `ModelFileError`.

    ``begin`` is called with the kind of the model before anything is decoded: its records have to be known by then.
    Needs memory for the file and the arrays made of it: twice the file's size.
    """
    place = Path(path)
    data, metadata = _checked_bytes(place)
    if begin is not None:
        begin(metadata["kind"])
    try:
        arrays = {
            name: np.frombuffer(entry["data"], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        }
        del data
        value = Decoder(arrays).value(json.loads(metadata["content"]))
    except (safetensors.SafetensorError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as reason:
        raise _refused(place, f"it holds what natgrad never writes ({reason})") from None
    except RecursionError:
        raise _refused(place, "it is nested too deeply") from None
    return Stored(metadata["kind"], value, int(metadata["schema"]), metadata["version"])


def _checked_bytes(place: Path) -> tuple[bytes, dict[str, str]]:
    """The bytes of a file whose sizes and digest are right, and its metadata."""
    if not stat.S_ISREG(os.stat(place).st_mode):
        raise _refused(place, "it is not a regular file")
    with open(place, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(DIGEST.stop)
        if len(start) < DIGEST.stop or start[8 : DIGEST.start] != PREFIX:
            raise _refused(place, "it is not a model file of natgrad")
        length = int.from_bytes(start[:8], "little")
        if not DIGEST.stop - 8 <= length <= min(LONGEST_HEADER + 8, size - 8):
            raise _refused(place, f"its header is said to have {length:,} bytes; the file was changed or cut off")
        metadata = _metadata(place, start[8:] + file.read(length + 8 - len(start)))
        if str(size - 8 - length) != metadata["payload"]:
            raise _refused(
                place,
                f"it has {size - 8 - length:,} bytes of arrays and should have {metadata['payload'][:20]}; it was cut or changed",
            )
        file.seek(0)
        data = file.read(size)
    digest = hashlib.sha256(data[: DIGEST.start])
    digest.update(b"0" * DIGITS)
    digest.update(memoryview(data)[DIGEST.stop :])
    if digest.hexdigest().encode() != data[DIGEST]:
        raise _refused(place, "its checksum is not that of its contents; it was damaged or changed")
    return data, metadata


def _metadata(place: Path, header: bytes) -> dict[str, str]:
    try:
        metadata = json.loads(header)["__metadata__"]
        fields = {key: metadata[key] for key in ("format", "schema", "version", "kind", "payload", "content")}
        if not all(isinstance(part, str) for part in fields.values()) or fields["format"] != "natgrad":
            raise ValueError("not ours")
        schema = int(fields["schema"])
    except (LookupError, TypeError, ValueError, RecursionError):
        raise _refused(place, "its header cannot be read; it was damaged or changed") from None
    if not 1 <= schema <= SCHEMA:
        raise _refused(
            place,
            f"it has schema {schema}, written by natgrad {fields['version'][:20]}, and this natgrad {__version__} reads up to "
            f"{SCHEMA}: install a newer natgrad",
        )
    return fields


def _refused(place: Path, why: str) -> ModelFileError:
    return ModelFileError(f"cannot load {str(place)!r}: {why}")
