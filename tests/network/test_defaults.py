"""What the arguments of a fit do: each default can be written down, and none is without effect in silence."""

import inspect
from typing import Any

import numpy as np
import pytest

import natgrad as ng


def mixture() -> ng.Network:
    """Two components that no prior tells apart: starts are compared, and other runs are made to their ends."""
    x = np.random.default_rng(0).normal(size=40) + np.repeat([-3.0, 3.0], 20)
    row, part = ng.Plate("row", 40), ng.Plate("part", 2)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=row)
    mu = ng.Normal("mu", 0.0, 0.1, plate=part)
    return ng.Network(ng.Normal("x", mu[z], 1.0, plate=row, observed=x))


DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(ng.Network.fit).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
# What stands behind a default that is None, where the user can write it down.
SPELLED: dict[str, Any] = {
    "step": ng.Auto(), "order": ["z", "mu", "share"], "backend": "numpy", "verbose": False, "resume": False,
}  # fmt: skip


@pytest.mark.parametrize("name", [*DEFAULTS, *(f"{name} spelled" for name in SPELLED)])
def test_a_default_that_is_written_down_changes_no_bit(name: str) -> None:
    plain = mixture().fit(verbose=False)
    key = name.removesuffix(" spelled")
    value = SPELLED[key] if name != key else DEFAULTS[key]
    fit = mixture().fit(**{"verbose": False, key: value})
    assert fit.inference == plain.inference
    assert len(fit.trace.starts) == len(plain.trace.starts)
    for node in plain:
        assert all(np.array_equal(a, b) for a, b in zip(fit.state.lam[node], plain.state.lam[node], strict=True))


@pytest.mark.parametrize("option", [{"max_steps": 1001}, {"tol": 1.001e-3}, {"seed": 1}])
def test_moving_a_number_a_little_keeps_the_inference(option: dict[str, Any]) -> None:
    fit, moved = mixture().fit(verbose=False), mixture().fit(verbose=False, **option)
    assert moved.inference.split(",")[:-1] == fit.inference.split(",")[:-1]
    assert moved.elbo == pytest.approx(fit.elbo, abs=2e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bound_every": 5}, "bound_every=5 is for methods that sample"),
        ({"bound_every": "log", "method": ng.VB()}, "bound_every='log' is for methods that sample"),
        ({"chunk_rows": 5}, "chunk_rows= is for networks declared with Column"),
        ({"every": 5}, "every=5 needs checkpoint="),
        ({"resume": True}, "resume=True needs checkpoint="),
        ({"executor": "tcp://nowhere"}, "no plate has enough groups"),
    ],
)
def test_arguments_that_would_do_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words.replace("(", r"\(")):
        mixture().fit(verbose=False, **options)


def test_moves_need_components() -> None:
    y = ng.Normal("y", ng.Normal("m", 0.0, 1.0), 1.0, plate=ng.Plate("row", 3), observed=[0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="needs components"):
        ng.Network(y).fit(moves="keep")


def test_a_fit_says_which_inference_it_is(tmp_path: Any) -> None:
    fit = mixture().fit(verbose=False, backend="numpy")
    assert fit.inference == f"VB, {fit.trace.last.t} sweeps in NumPy"
    assert fit.inference in repr(fit)
    fit.save(tmp_path / "fit.natgrad")
    assert fit.inference.startswith(ng.load(tmp_path / "fit.natgrad").inference)
    sampled = mixture().fit(ng.Children(1), init="kmeans", max_steps=20, tol=0, step=ng.PerNode(), verbose=False)
    assert sampled.inference.startswith("VB, sampled, 20 steps in ")
    batches = mixture().fit(ng.SVI({"row": 10}), init="kmeans", max_passes=3, tol=0, verbose=False)
    assert batches.inference.startswith("VB, memoised, ")
