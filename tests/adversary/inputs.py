"""The bytes of a data file, or a batch of numbers, in; the same, damaged as in the wild, out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["garbage", "mutated"]

# Tokens that numbers, names and separators turn into: too large, negative, not finite, not a number, not text, empty.
STRANGE = (
    b"nan", b"inf", b"-inf", b"-1", b"0", b"-0.0", b"1e400", b"1e-400", b"99999999999999999999", b"2147483648", b"1000000000000",
    b"9223372036854775808", b"0x10", b"1_000", b"1.5", b"", b" ", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"caf\xe9", b'"',
    b'"a,b"', b":", b"1:", b":1", b"1:2:3", b"::", b",", b"\t", b"#", b"%", b"\r", b"\r\n", b"\n\n", b"{", b"[", b"null", b"true",
    b"\xe2\x80\xa8", b"a" * 300,
)  # fmt: skip


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three changes: a flipped bit, a cut, a part gone, doubled or strange, two lines swapped."""
    out = data
    for _ in range(int(rng.integers(1, 4))):
        out = _changed(out, rng)
    return out


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    if not data:
        return STRANGE[int(rng.integers(len(STRANGE)))]
    kind, place = int(rng.integers(8)), int(rng.integers(len(data)))
    size = int(rng.integers(1, 16))
    if kind == 0:
        return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[:place] + data[place + size :]
    if kind == 3:
        return data[: place + size] + data[place:]
    if kind == 4:
        return data[:place] + rng.bytes(size) + data[place:]
    if kind == 5:
        lines = data.split(b"\n")
        first, second = rng.integers(len(lines), size=2)
        lines[first], lines[second] = lines[second], lines[first]
        return b"\n".join(lines)
    strange = STRANGE[int(rng.integers(len(STRANGE)))]
    if kind == 6:
        return data[:place] + strange + data[place:]
    # A whole token gives way.
    begin, end = place, place
    while begin > 0 and data[begin - 1 : begin].isalnum():
        begin -= 1
    while end < len(data) and data[end : end + 1].isalnum():
        end += 1
    return data[:begin] + strange + data[end:]


def garbage(batch: npt.NDArray[np.float64], rng: np.random.Generator, how: str) -> npt.NDArray[np.generic]:
    """A batch [rows, columns] that nobody can use; where there is nothing to do for ``how``, one with an infinite number."""
    out = batch.copy()
    place = int(rng.integers(len(batch))), int(rng.integers(batch.shape[1]))
    if how == "width":
        return np.hstack([out, out])
    if how == "empty":
        return out[:0]
    if how == "shape":
        return out[None]
    if how == "text":
        words = out.astype(object)
        words[place] = "rubbish"
        return words
    out[place] = {"nan": np.nan, "negative": -1.0}.get(how, np.inf)
    return out
