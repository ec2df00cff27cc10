"""A value and its kind in; one file that is whole or not there at all out, and back.

The file is a safetensors file: eight bytes with the length of the header, the header in JSON, the bytes of the arrays. What is
not an array is in the header's metadata:

    sha256    of every byte of the file, with these 64 digits taken as zeros; always first, so that its place is known
    format    "natgrad";  schema: the number of this layout;  version: of the library that wrote it;  kind: what it holds
    payload   how many bytes of arrays there are
    content   the tree of `natgrad.posterior.files.values`, as JSON text

Reading executes nothing. Sizes are checked before anything is read, the digest before anything is made of what was read; every
file that is not exactly what was written is refused with `ModelFileError`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors

from natgrad._version import __version__
from natgrad.errors import ModelFileError
from natgrad.posterior.files.values import Decoder, Encoder

__all__ = ["LONGEST_HEADER", "SCHEMA", "Stored", "encoded", "read_model", "write_model"]

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
    """Write a value to a file, atomically: whoever looks sees the old file, or the new one, complete.

    Parameters
    ----------
    path : where to; its folder must exist
    kind : str, what the reader must know to make sense of the value
    value : anything that `natgrad.posterior.files.values` can encode
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

    ``begin`` is told the kind of the model before anything is decoded: its records have to be known by then.
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
