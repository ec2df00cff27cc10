"""Mixtures that are read in chunks find a start of their own: some rows of all chunks are a network in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import natgrad as ng

RNG = np.random.default_rng(0)
# Sorted, so that the first chunk is of one component.
CHOSEN = np.sort(RNG.integers(0, 3, 90))
TABLE = {"x": 6.0 * CHOSEN + RNG.normal(size=90), "n": RNG.poisson(1.0 + 9.0 * CHOSEN)}


def declared(*leaves: str) -> ng.Network:
    row, comp = ng.Plate("row"), ng.Plate("comp", 3)
    z = ng.Categorical("z", ng.Dirichlet("w", 1.0, size=3), plate=row)
    observed: list[Any] = []
    if "x" in leaves:
        mean, precision = ng.Normal("m", 0.0, 0.01, plate=comp), ng.Gamma("t", 1.0, 1.0, plate=comp)
        observed.append(ng.Normal("x", mean[z], precision[z], plate=row, observed=ng.Column("x")))
    if "n" in leaves:
        observed.append(ng.Poisson("n", ng.Gamma("r", 1.0, 0.1, plate=comp)[z], plate=row, observed=ng.Column("n")))
    return ng.Network(*observed)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("leaves", [pytest.param("x", marks=SLOW), pytest.param("n", marks=SLOW), "xn"])
def test_a_mixture_in_chunks_needs_no_start(leaves: str) -> None:
    """It was a SymmetricStart, where the same declaration is fitted in memory."""
    whole = declared(*leaves).fit(TABLE, verbose=False)
    chunks = declared(*leaves).fit(TABLE, chunk_rows=30, verbose=False)
    np.testing.assert_allclose(chunks.elbo, whole.elbo, rtol=1e-5)


@pytest.mark.parametrize(
    "init", ["kmeans", pytest.param({"z": "kmeans"}, marks=SLOW), pytest.param("random", marks=SLOW)]
)
def test_what_is_hidden_in_rows_may_be_clustered_or_drawn(init: Any) -> None:
    fit = declared("n").fit(TABLE, chunk_rows=30, init=init, verbose=False)
    assert fit.elbo > declared("n").fit(TABLE, verbose=False).elbo - 1.0
    again = declared("n").fit(TABLE, chunk_rows=30, init=init, verbose=False)
    assert fit.elbo == again.elbo


def test_a_start_that_was_asked_for_and_tells_nothing_apart_is_still_refused() -> None:
    with pytest.raises(ng.errors.SymmetricStart):
        declared("x").fit(TABLE, chunk_rows=30, init={"m": np.zeros(3)}, verbose=False)
    with pytest.raises(ValueError, match="'z' is hidden in every row"):
        declared("x").fit(TABLE, chunk_rows=30, init={"z": CHOSEN}, verbose=False)


def of_three(order: Any, method: Any, **options: Any) -> Any:
    table = {name: column[order] for name, column in TABLE.items()}
    return declared("x", "n").fit(
        table, method, chunk_rows=10, init={"m": np.array([-1.0, 5.0, 13.0])}, verbose=False, **options
    )


SORTED, SHUFFLED = np.arange(90), np.random.default_rng(1).permutation(90)


@pytest.mark.parametrize("size", [10, pytest.param(30, marks=SLOW)])
def test_a_sorted_table_has_the_components_of_a_shuffled_one(size: int) -> None:
    """The first batch spoke for all: two of three components were lost, at a bound 200 nats lower."""
    fits = [
        of_three(order, ng.SVI({"row": size})) for order in (SORTED, SHUFFLED, SORTED[::-1])[: 3 if size > 10 else 2]
    ]
    for fit in fits:
        np.testing.assert_allclose(fit["m"].mean(), fits[0]["m"].mean(), atol=1e-2)
        np.testing.assert_allclose(fit.elbo, fits[0].elbo, atol=1e-2)
    np.testing.assert_allclose(fits[0].elbo, declared("x", "n").fit(TABLE, verbose=False).elbo, atol=1e-2)


@pytest.mark.parametrize("step", [ng.RobbinsMonro(), ng.Constant(0.6)], ids=str)
def test_steps_that_forget_a_sorted_table_are_warned_of(step: Any) -> None:
    with pytest.warns(UserWarning, match=r"'z' a row is of follows from its place .* Leave step= out"):
        of_three(SORTED, ng.SVI({"row": 10}), step=step, max_steps=2, tol=0)
    of_three(SHUFFLED, ng.SVI({"row": 10}), step=step, max_steps=2, tol=0)  # warnings are errors


def test_short_steps_and_whole_batches_are_not_warned_of() -> None:
    of_three(SORTED, ng.SVI({"row": 10}), step=ng.Constant(0.1), max_steps=2, tol=0)
    of_three(SORTED, ng.SVI({"row": 10}), step=ng.PerNode(), max_steps=2, tol=0)
