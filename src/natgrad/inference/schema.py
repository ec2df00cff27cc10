"""Check values against tables of what a file may hold, with the sizes that their arrays share.

Files come from anywhere, and kernels check nothing: whatever `load` or a resumed run takes from a file passes here first. Each
model has its tables beside it (``models/*_files.py``). A table is made of

    "whole", "natural", "real", …            a number of that kind (`KINDS`)
    "real [topic, word]"                     an array of them; "list [topic]" after the kind: a list, a tuple or an array
    "whole [rating] in [0, user)"            within an interval, whose ends may be sizes
    "size topic"                             the number that this size is
    "none", "flag", "text", "'vb'"           None; true or false (also "flag [rating]"); a text; this very word
    "names [word]", "ids [user]"             an array of names; of names that all differ
    "Dirichlet [topic; word]"                natural parameters of a family: its plates; the size of every axis of its event
    "none | natural"                         one of these
    {"t": "whole", "elbo?": "float"}         a mapping with these keys; one that ends with ? may be missing
    ("real", "flag"),  ["text"]              a tuple of these; a list or tuple of any number of those
    Trace                                    an instance of this class
    function(value, sizes, where)            whatever the function does not refuse, by raising a `Misfit`

The names of sizes mean the same all over a table: the first array that has one tells what it is. "_" is any size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from natgrad import families
from natgrad.errors import ModelFileError
from natgrad.inference.problem import State

__all__ = ["Misfit", "check", "close_to", "either", "like", "pair_of", "point_of", "record", "refuse", "state_of"]

Sizes = dict[str, int]
Rule = Any
# Kind: whether whole, the least and the largest value, and whether the least itself is left out.
KINDS: dict[str, tuple[bool, float, float, bool]] = {
    "whole": (True, 0, 2**63 - 1, False),
    "natural": (True, 1, 2**63 - 1, False),
    "real": (False, -math.inf, math.inf, True),
    "positive": (False, 0, math.inf, True),
    "nonnegative": (False, 0, math.inf, False),
    "share": (False, 0, 1, False),
    "float": (False, -math.inf, math.inf, False),  # whatever a float is, NaN too: a record of what happened
}
NUMBER = re.compile(r"(\w+)( list)?(?: \[([^\]]*)\])?(?: in ([\[(])(\S+), (\S+)([\])]))?")
FAMILY = re.compile(r"([A-Z]\w+) \[([^;\]]*)(?:; (\w+))?\]")
LONGEST_TEXT, LONGEST_LIST = 100_000, 1_000_000
# Moments are kept as they were computed, so that sums round alike; this far they may be from those of the parameters.
NEAR, ROUNDING = 1e-3, 1e-6
# Natural parameters beyond it have sums and squares that are no numbers.
LARGEST = 1e150


class Misfit(ModelFileError):
    """A value that its table does not allow."""


def refuse(where: str, why: str) -> NoReturn:
    """Say that the value at a place is not allowed."""
    raise Misfit(f"{where} {why}")


def check(value: Any, rule: Rule, sizes: Sizes | None = None, where: str = "it") -> Sizes:
    """Refuse a value that is not what its table says.

    Parameters
    ----------
    value : what was read
    rule : its table, or a part of one
    sizes : sizes that are known already; new ones are added
    where : what the value is called in errors

    Examples
    --------
    >>> check({"k": 2, "x": np.zeros((2, 3))}, {"x": "real [K, N]", "k": "size K"})
    {'K': 2, 'N': 3}
    """
    sizes = {} if sizes is None else sizes
    if isinstance(rule, str):
        parts = rule.split(" | ")
        _one_of(parts, value, sizes, where) if len(parts) > 1 else _parsed(rule)(value, sizes, where)
    elif isinstance(rule, dict):
        _mapping(value, rule, sizes, where)
    elif isinstance(rule, tuple):
        if type(value) is not tuple or len(value) != len(rule):
            refuse(where, f"is not a tuple of {len(rule)} parts")
        for place, part in enumerate(rule):
            check(value[place], part, sizes, f"{where}[{place}]")
    elif isinstance(rule, list):
        if type(value) not in (list, tuple) or len(value) > LONGEST_LIST:
            refuse(where, "is not a list")
        for place, part in enumerate(value):
            check(part, rule[0], sizes, f"{where}[{place}]")
    elif isinstance(rule, type):
        if type(value) is not rule:
            refuse(where, f"is no {rule.__name__}")
    else:
        rule(value, sizes, where)
    return sizes


def either(*rules: Rule) -> Callable[[Any, Sizes, str], None]:
    """A value that one of these tables allows."""
    return lambda value, sizes, where: _one_of(rules, value, sizes, where)


def record(cls: type, **fields: Rule) -> Callable[[Any, Sizes, str], None]:
    """An instance of a class with attributes as these tables say."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, cls, sizes, where)
        for name, rule in fields.items():
            check(getattr(value, name), rule, sizes, f"{where}.{name}")

    return of


def state_of(
    lam: Mapping[str, Rule],
    *,
    memory: Rule = None,
    hyper: Rule = None,
    moments: Callable[[str, Any], Any] | None = None,
) -> Callable[[Any, Sizes, str], None]:
    """A `State` with these blocks, each with the table of its natural parameters.

    Parameters
    ----------
    lam : {block: table}
    memory, hyper : tables of what the method remembers and the problem learns; by default nothing
    moments : (block, λ) → μ, what the kept moments must be near to; by default those of the family
    """

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, State, sizes, where)
        check((value.lam, value.mu), pair_of(lam, moments), sizes, where)
        record(State, t="whole in [0, 1e12]", memory=memory or {}, hyper=hyper or {})(value, sizes, where)

    return of


def pair_of(
    lam: Mapping[str, Rule], moments: Callable[[str, Any], Any] | None = None
) -> Callable[[Any, Sizes, str], None]:
    """(λ, μ) of all blocks."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, (dict(lam), dict.fromkeys(lam, tuple)), sizes, where)
        for name, rule in lam.items():
            own = value[0][name]
            close_to(
                value[1][name],
                _family(rule).expected_stats(own) if moments is None else moments(name, own),
                f"{where} {name}",
            )

    return of


def like(rule: str) -> tuple[str, ...]:
    """The table of arrays with the shapes of a family's natural parameters: messages, sums of statistics."""
    match = FAMILY.fullmatch(rule)
    assert match is not None
    ndims = _family(rule).stat_ndims
    return tuple(f"real [{', '.join([*_dims(match[2]), *(match[3] or '_',) * ndim])}]" for ndim in ndims)


def point_of(rule: str) -> Rule:
    """The table of a point in the coordinates of a block: the mean of a Gaussian, otherwise natural parameters."""
    return like(rule)[:1] if rule.split()[0] in ("Normal", "MultivariateNormal") else rule


def close_to(value: Any, wanted: Any, where: str) -> None:
    """Refuse arrays that are not of the shapes of others, and near them."""
    check(value, tuple(f"real {list(np.shape(part))}" for part in wanted), {}, where)
    for place, (part, other) in enumerate(zip(value, wanted, strict=True)):
        size = np.abs(other)
        if not (
            np.isfinite(size).all() and np.all(np.abs(part - other) <= NEAR * size + ROUNDING * size.max(initial=0.0))
        ):
            refuse(f"{where}[{place}]", "is not what follows from the natural parameters")


# -- one rule --


def _one_of(rules: Sequence[Rule], value: Any, sizes: Sizes, where: str) -> None:
    reasons = []
    for rule in rules:
        tried = dict(sizes)
        try:
            check(value, rule, tried, where)
        except Misfit as reason:
            reasons.append(str(reason))
            continue
        sizes.update(tried)
        return
    raise Misfit("; ".join(dict.fromkeys(reasons)))


def _mapping(value: Any, rule: Mapping[str, Rule], sizes: Sizes, where: str) -> None:
    if not isinstance(value, Mapping):
        refuse(where, "is not a mapping")
    needed = {name.rstrip("?"): part for name, part in rule.items()}
    for name in value:
        if name not in needed:
            refuse(where, f"has {_shown(name)}, which is none of {', '.join(needed) or 'nothing'}")
    for name, part in rule.items():
        if name.rstrip("?") in value:
            check(value[name.rstrip("?")], part, sizes, f"{where}[{name.rstrip('?')!r}]")
        elif not name.endswith("?"):
            refuse(where, f"has no {name!r}")


@cache
def _parsed(text: str) -> Callable[[Any, Sizes, str], Any]:
    """The rule that a text stands for."""
    if text in PLAIN:
        return PLAIN[text]
    if text.startswith("'"):
        return _is(text, lambda value: type(value) is str and value == text.strip("'"))
    if text.startswith("size "):
        return lambda value, sizes, where: _size(value, text.removeprefix("size "), sizes, where)
    if match := FAMILY.fullmatch(text):
        family, plates, event = _family(text), _dims(match[2]), match[3]
        return lambda value, sizes, where: _natural(value, family, plates, event, sizes, where)
    match = NUMBER.fullmatch(text)
    others = {"names": _names, "ids": _ids, "flag": _flags}
    if match is None or (match[1] not in KINDS and match[1] not in others):
        raise ValueError(f"{text!r} is no rule of a table")
    dims = None if match[3] is None else _dims(match[3])
    if match[1] in others:
        return lambda value, sizes, where: others[match[1]](value, dims or (), sizes, where)
    allowed = _Range(match[1], *(match.group(4, 5, 6, 7) if match[4] else (None, "", "", None)))
    if dims is None:
        return lambda value, sizes, where: _number(value, allowed, sizes, where)
    return lambda value, sizes, where: _array(value, allowed, dims, match[2] is not None, sizes, where)


def _dims(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@cache
def _family(text: str) -> families.Family:
    match = FAMILY.fullmatch(text)
    assert match is not None
    made: families.Family = getattr(families, match[1])()
    return made


class _Range(NamedTuple):
    """A kind of numbers, and an interval of them."""

    kind: str
    opening: str | None
    low: str
    high: str
    closing: str | None

    def refuse_outside(self, low: Any, high: Any, sizes: Sizes, where: str) -> None:
        """Refuse the numbers from ``low`` to ``high``; a NaN is never within."""
        _, least, most, without = KINDS[self.kind]
        fits = least < low if without else least <= low
        fits = bool(fits and (high < most if most == math.inf else high <= most))
        if self.opening is not None:
            begin, end = (float(sizes[e]) if e in sizes else float(e) for e in (self.low, self.high))
            fits = fits and bool(begin <= low if self.opening == "[" else begin < low)
            fits = fits and bool(high <= end if self.closing == "]" else high < end)
        if not fits:
            inside = f" in {self.opening}{self.low}, {self.high}{self.closing}" if self.opening else ""
            got = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
            refuse(where, f"must be {self.kind}{inside}, got {got}")


def _number(value: Any, allowed: _Range, sizes: Sizes, where: str) -> None:
    types = (int, np.integer) if KINDS[allowed.kind][0] else (int, float, np.integer, np.floating)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, types):
        refuse(where, f"must be {allowed.kind}, got {_shown(value)}")
    if allowed.kind != "float":
        if isinstance(value, int) and abs(value) >= 2**1000:  # more than any float
            refuse(where, f"must be {allowed.kind}, got a number of {value.bit_length()} bits")
        allowed.refuse_outside(value, value, sizes, where)


def _array(value: Any, allowed: _Range, dims: tuple[str, ...], listed: bool, sizes: Sizes, where: str) -> None:
    if listed and isinstance(value, (list, tuple)):
        check(value, [_number_or_row(allowed)], sizes, where)
        try:
            value = np.asarray(value, np.int64 if KINDS[allowed.kind][0] else np.float64)
        except (OverflowError, ValueError):
            refuse(where, "is not an array of numbers")
    kinds = "iu" if KINDS[allowed.kind][0] else "iuf" if listed else "f"
    if type(value) is not np.ndarray or value.dtype.kind not in kinds or value.dtype == np.float16:
        refuse(where, f"must be an array of {allowed.kind} numbers, got {_shown(value)}")
    _shape(value.shape, dims, sizes, where)
    if value.size and allowed.kind != "float":
        allowed.refuse_outside(value.min().item(), value.max().item(), sizes, where)


def _number_or_row(allowed: _Range) -> Rule:
    def of(value: Any, sizes: Sizes, where: str) -> None:
        if isinstance(value, (list, tuple)):
            check(value, [_number_or_row(allowed)], sizes, where)
        else:
            _number(value, allowed, sizes, where)

    return of


def _shape(shape: tuple[int, ...], dims: tuple[str, ...], sizes: Sizes, where: str) -> None:
    wanted = [sizes.get(dim, int(dim) if dim.isdigit() else None) for dim in dims]
    fits = len(shape) == len(dims) and all(w is None or w == n for w, n in zip(wanted, shape, strict=True))
    if fits:
        for dim, size in zip(dims, shape, strict=True):
            if not dim.isdigit() and dim != "_":
                fits = fits and size > 0 and sizes.setdefault(dim, size) == size
    if not fits:
        known = ", ".join(f"{dim}={sizes[dim]}" if dim in sizes else dim for dim in dims)
        refuse(where, f"must have the shape [{known}], got {list(shape)}")


def _natural(
    value: Any, family: families.Family, plates: tuple[str, ...], event: str | None, sizes: Sizes, where: str
) -> None:
    if type(value) is not tuple or len(value) != len(family.stat_ndims):
        refuse(where, f"is not the natural parameter of a {family.name}")
    for place, (part, ndim) in enumerate(zip(value, family.stat_ndims, strict=True)):
        here = f"{where}[{place}]"
        if type(part) is not np.ndarray or part.dtype != np.float64:
            refuse(here, f"must be an array of double precision, got {_shown(part)}")
        _shape(part.shape, (*plates, *((event or "_",) * ndim)), sizes, here)
        if not max(np.abs(part.min(initial=0.0)), np.abs(part.max(initial=0.0))) <= LARGEST:
            refuse(here, f"must hold numbers up to {LARGEST:g}")
        if family.symmetric[place] and part.size:
            largest = float(np.abs(part).max())
            if not np.abs(part - np.swapaxes(part, -1, -2)).max() <= 1e-6 * largest < math.inf:
                refuse(here, "is not symmetric")
    if not np.all(family.valid(value)):
        refuse(where, f"is outside the natural parameters of a {family.name}")


def _flags(value: Any, dims: tuple[str, ...], sizes: Sizes, where: str) -> None:
    if type(value) is not np.ndarray or value.dtype != np.bool_:
        refuse(where, f"must be an array of truth values, got {_shown(value)}")
    _shape(value.shape, dims, sizes, where)


def _ids(value: Any, dims: tuple[str, ...], sizes: Sizes, where: str) -> None:
    if _names(value, dims, sizes, where) < value.size:
        refuse(where, "has the same name twice")


def _names(value: Any, dims: tuple[str, ...], sizes: Sizes, where: str) -> int:
    if type(value) is not np.ndarray or value.dtype.kind not in "OUSbiuf":
        refuse(where, f"must be an array of names, got {_shown(value)}")
    _shape(value.shape, dims, sizes, where)
    try:
        return len(set(value.ravel().tolist()))
    except TypeError:
        refuse(where, "has an element that is no name")


def _size(value: Any, name: str, sizes: Sizes, where: str) -> None:
    _number(value, _Range("natural", None, "", "", None), sizes, where)
    if name not in sizes:
        refuse(where, f"= {value}, and no array has this size")
    if sizes[name] != value:
        refuse(where, f"= {value}, but the arrays have {name} = {sizes[name]}")


def _is(what: str, fits: Callable[[Any], bool]) -> Callable[[Any, Sizes, str], None]:
    def of(value: Any, sizes: Sizes, where: str) -> None:
        if not fits(value):
            refuse(where, f"must be {what}, got {_shown(value)}")

    return of


PLAIN = {
    "none": _is("None", lambda value: value is None),
    "flag": _is(
        "true or false", lambda value: isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1))
    ),
    "text": _is("a text", lambda value: type(value) is str and len(value) <= LONGEST_TEXT),
}


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {list(value.shape)} of {value.dtype}"
    return repr(value)[:60] if isinstance(value, (bool, float, str, type(None))) else f"a {type(value).__name__}"
