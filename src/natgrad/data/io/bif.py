"""Bayesian networks in the interchange format BIF: a file in; variables, their states, parents and tables out."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.io.text import open_text

__all__ = ["Variable", "read_bif"]

TOKEN = re.compile(r'"[^"]*"|[{}()\[\];,|]|[^\s{}()\[\];,|"]+')
# Printed probabilities are rounded: rows that add up to 1 within this are normalised.
TOLERANCE = 1e-3


class Variable(NamedTuple):
    """A discrete variable: its states, its parents, and P(state | parents) with one axis for each parent, states last."""

    states: tuple[str, ...]
    parents: tuple[str, ...]
    table: npt.NDArray[np.float64]


class _Tokens:
    """The words of a file, one after the other, each with its line."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.words: list[tuple[str, int]] = []
        for number, line in enumerate(_without_comments(text).split("\n"), 1):
            self.words += [(word, number) for word in TOKEN.findall(line)]
        self.place = 0

    def next(self, expected: str | None = None) -> str:
        """The next word, which must be ``expected`` if that is given."""
        if self.place >= len(self.words):
            raise ValueError(
                f"{self.path}: the file ends in the middle of a block" + (f", before {expected!r}" if expected else "")
            )
        word, line = self.words[self.place]
        if expected is not None and word != expected:
            raise ValueError(f"{self.path}, line {line}: {expected!r} is expected, found {word!r}")
        self.place += 1
        return word.strip('"')

    def peek(self) -> str:
        return self.words[self.place][0] if self.place < len(self.words) else ""

    def until(self, end: str) -> list[str]:
        """The words up to ``end``, which is passed; commas are left out."""
        words = []
        while (word := self.next()) != end:
            if word != ",":
                words.append(word)
        return words

    def wrong(self, words: str) -> ValueError:
        """An error at this place."""
        return ValueError(f"{self.path}, line {self.words[max(self.place - 1, 0)][1]}: {words}")


def read_bif(path: str | os.PathLike[str]) -> dict[str, Variable]:
    """The variables of a network, parents before children.

    Raises
    ------
    ValueError
        With the line, if the file is no BIF, a table has the wrong length or does not add up to 1, or there is a cycle.
    """
    with open_text(Path(path)) as file:
        tokens = _Tokens(file.read(), str(path))
    states: dict[str, tuple[str, ...]] = {}
    variables: dict[str, Variable] = {}
    while tokens.peek():
        kind = tokens.next()
        if kind == "network":
            while tokens.next() != "{":
                pass
            _skip(tokens)
        elif kind == "variable":
            name = tokens.next()
            states[name] = _states(tokens, name)
        elif kind == "probability":
            name, variable = _probability(tokens, states)
            variables[name] = variable
        else:
            raise tokens.wrong(f"a block starts with 'network', 'variable' or 'probability', found {kind!r}")
    if missing := [name for name in states if name not in variables]:
        raise ValueError(f"{path}: there is no probability block for {missing[0]!r}")
    if not variables:
        raise ValueError(f"{path}: there is no variable in this file")
    return _parents_first(variables, str(path))


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def _skip(tokens: _Tokens) -> None:
    """To the end of a block."""
    depth = 1
    while depth:
        word = tokens.next()
        depth += (word == "{") - (word == "}")


def _states(tokens: _Tokens, name: str) -> tuple[str, ...]:
    tokens.next("{")
    states: tuple[str, ...] = ()
    while (word := tokens.next()) != "}":
        if word == "property":
            tokens.until(";")
        elif word == "type":
            if (kind := tokens.next()) != "discrete":
                raise tokens.wrong(f"{name!r} is of type {kind!r}; only discrete variables are read")
            tokens.next("[")
            size = tokens.next()
            tokens.next("]")
            tokens.next("{")
            states = tuple(tokens.until("}"))
            tokens.next(";")
            if size != str(len(states)):
                raise tokens.wrong(f"{name!r} has {size} states, but {len(states)} are listed")
        else:
            raise tokens.wrong(f"'type' or 'property' is expected in variable {name!r}, found {word!r}")
    return states


def _probability(tokens: _Tokens, states: dict[str, tuple[str, ...]]) -> tuple[str, Variable]:
    tokens.next("(")
    name, *rest = tokens.until(")")
    parents = tuple(word for word in rest if word != "|")
    for other in (name, *parents):
        if other not in states:
            raise tokens.wrong(f"there is no variable {other!r}")
    shape = [len(states[other]) for other in (*parents, name)]
    table = np.full(shape, np.nan)
    tokens.next("{")
    while (word := tokens.next()) != "}":
        if word == "table":
            values = _numbers(tokens)
            if len(values) != table.size:
                raise tokens.wrong(f"the table of {name!r} has {len(values)} numbers, and {table.size} are needed")
            table = values.reshape(shape) if not parents else _from_flat(values, shape)
        elif word == "default":
            table = np.where(np.isnan(table), _row(tokens, name, shape[-1]), table)
        elif word == "(":
            chosen = tokens.until(")")
            table[_place(tokens, parents, chosen, states)] = _row(tokens, name, shape[-1])
        elif word == "property":
            tokens.until(";")
        else:
            raise tokens.wrong(f"'table', 'default' or a row '(…)' is expected for {name!r}, found {word!r}")
    return name, Variable(states[name], parents, _checked(tokens, name, table, parents, states))


def _from_flat(values: npt.NDArray[np.float64], shape: list[int]) -> npt.NDArray[np.float64]:
    """A whole table lists the states of the child slowest: all parents' combinations for the first state come first."""
    return np.moveaxis(values.reshape([shape[-1], *shape[:-1]]), 0, -1)


def _numbers(tokens: _Tokens) -> npt.NDArray[np.float64]:
    words = tokens.until(";")
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        raise tokens.wrong(f"numbers are expected, found {' '.join(words)[:60]!r}") from None


def _row(tokens: _Tokens, name: str, size: int) -> npt.NDArray[np.float64]:
    values = _numbers(tokens)
    if len(values) != size:
        raise tokens.wrong(f"a row of {name!r} has {len(values)} numbers, and it has {size} states")
    return values


def _place(
    tokens: _Tokens, parents: tuple[str, ...], chosen: list[str], states: dict[str, tuple[str, ...]]
) -> tuple[int, ...]:
    if len(chosen) != len(parents):
        raise tokens.wrong(f"a row names {len(chosen)} states, and there are {len(parents)} parents")
    for parent, state in zip(parents, chosen, strict=True):
        if state not in states[parent]:
            raise tokens.wrong(f"{parent!r} has no state {state!r}; it has {', '.join(states[parent])}")
    return tuple(states[parent].index(state) for parent, state in zip(parents, chosen, strict=True))


def _checked(
    tokens: _Tokens,
    name: str,
    table: npt.NDArray[np.float64],
    parents: tuple[str, ...],
    states: dict[str, tuple[str, ...]],
) -> npt.NDArray[np.float64]:
    total = table.sum(-1, keepdims=True)
    for place in product(*(range(n) for n in table.shape[:-1])):
        row = ", ".join(states[parent][i] for parent, i in zip(parents, place, strict=True))
        if np.isnan(total[place]).any():
            raise tokens.wrong(f"{name!r} has no row for ({row})")
        if (table[place] < 0).any() or abs(total[place][0] - 1) > TOLERANCE:
            raise tokens.wrong(f"the row ({row}) of {name!r} adds up to {total[place][0]:g}, not to 1")
    return np.asarray(table / total)


def _parents_first(variables: dict[str, Variable], path: str) -> dict[str, Variable]:
    ordered: dict[str, Variable] = {}
    waiting = dict(variables)
    while waiting:
        ready = [name for name, variable in waiting.items() if all(parent in ordered for parent in variable.parents)]
        if not ready:
            raise ValueError(f"{path}: {' and '.join(list(waiting)[:3])} are their own ancestors")
        for name in ready:
            ordered[name] = waiting.pop(name)
    return ordered
