"""Measure how far q can be trusted, by Pareto-smoothed importance weights of draws from it and their k̂.

    log w_s = log p(data, z_s) − log q(z_s),   z_s ~ q

P, the expected log joint, is a polynomial in the moments that is linear in each; at the statistics of a point, φ(z), it is the
log joint density itself. So log w_s is the bound with φ(z_s) in the place of the moments, and nothing new has to be derived. Its
mean is the bound. k̂ is the shape of the generalised Pareto distribution that fits the largest weights: below 0.7 q is close
enough to be corrected by weights, above it is not.

Where all weights are of a few sizes (hidden categories alone) there is no tail to fit. And draws cannot show combinations that
q never draws: where known tables tie hidden categories, nothing follows from equal weights, and that is said.

Yao, Vehtari, Simpson and Gelman (2018), "Yes, but did it work?"; Vehtari, Simpson, Gelman, Yao and Gabry (2024).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PoorApproximation
from natgrad.families._ops import logsumexp
from natgrad.inference.problem import State
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.results.ties import ties_of
from natgrad.validation import whole_number

__all__ = ["RELIABLE", "Importance", "importance"]

Floats = npt.NDArray[np.float64]
RELIABLE = 0.7
FEWEST = 100
# Log weights below this are of draws that the model rules out; a weight so far below the largest does not count.
IMPOSSIBLE, FLOOR = -1e50, 700.0


class Importance(NamedTuple):
    """What draws from q say of it.

    Attributes
    ----------
    k_hat : float, below 0.7 for a q that weights can correct; −inf if there is no tail, inf if nothing can be said
    log_evidence : float, log p(data) as the smoothed weights estimate it; at least the bound, but for noise; −inf if no draw from
        q is possible under the model
    log_weights : array [n], log p(data, z) − log q(z) of each draw
    effective : float, how many independent draws of the posterior the weighted ones are worth
    """

    k_hat: float
    log_evidence: float
    log_weights: Floats
    effective: float


def importance(problem: NetworkProblem, state: State, n: int, seed: int) -> Importance:
    """Weights of ``n`` draws; a warning if they cannot be trusted."""
    try:
        from arviz_stats.base.array import array_stats
    except ImportError:
        raise ImportError("psis() needs arviz-stats: pip install arviz-stats") from None
    whole_number(n, "n", least=FEWEST)
    raw = _log_weights(problem, state, n, np.random.default_rng([whole_number(seed, "seed", least=0), 2]))
    possible = raw[raw > IMPOSSIBLE]
    if not len(possible):
        why = f"none of {n} draws from q is possible under the model: q and the posterior lie in different places"
        _warn(f"{why}. Start elsewhere (init=), and look at the trace")
        return Importance(np.inf, -np.inf, raw, 0.0)
    top = float(possible.max())
    smooth, k_hat = _smoothed(raw, top, array_stats)
    evidence = float(top + logsumexp(smooth) - np.log(n))
    effective = float(np.exp(2.0 * logsumexp(smooth) - logsumexp(2.0 * smooth)))
    if ties := ties_of(problem.plan):
        k_hat, names = np.inf, " and ".join(map(repr, ties[0].hidden))
        _warn(
            f"nothing follows from the weights: {names} are tied by the table of {ties[0].node!r}, and q draws only "
            f"{len(np.unique(np.round(possible, 9)))} kinds of weights. Combinations that it never draws are missing in "
            "log_evidence, which is too low by what they hold; put the nodes into one Categorical over their combinations"
        )
    elif len(possible) < n:
        k_hat = np.inf
        _warn(
            f"{n - len(possible)} of {n} draws from q are impossible under the model: q is wider than the posterior there. "
            "log_evidence counts them as zero"
        )
    elif k_hat > RELIABLE:
        _warn(
            f"k̂ = {k_hat:.2f} > {RELIABLE}: q misses too much of the posterior for weights to correct it. Means may be good, "
            "intervals are too narrow; blocks with full covariance (MultivariateNormal) in place of single numbers help"
        )
    return Importance(k_hat, evidence, raw, effective)


def _smoothed(raw: Floats, top: float, array_stats: Any) -> tuple[Floats, float]:
    """Log weights below ``top`` with the largest ones smoothed, and k̂."""
    plain = np.where(raw > IMPOSSIBLE, raw - top, -np.inf)
    largest = np.sort(raw)[-max(FEWEST // 5, int(3 * np.sqrt(len(raw)))) :]
    if len(np.unique(np.round(largest / (1.0 + abs(top)), 9))) <= FEWEST // 20:
        return plain, -np.inf  # q is the posterior, or weights are of a few sizes: there is no tail to fit
    # It takes minus the log weights, as of a leave-one-out density; all but the largest come back as they were, but scaled.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log_weights, shape = array_stats.psislw(-np.maximum(raw, top - FLOOR))
    smooth, k_hat = np.asarray(log_weights, dtype=np.float64), float(shape)
    if not np.isfinite(k_hat) or not np.isfinite(smooth).all():
        return plain, np.inf
    smooth = smooth + float(np.median(np.maximum(raw, top - FLOOR) - smooth)) - top
    return np.where(raw > IMPOSSIBLE, smooth, -np.inf), k_hat


def _warn(words: str) -> None:
    warnings.warn(words, PoorApproximation, stacklevel=4)


def _log_weights(problem: NetworkProblem, state: State, n: int, rng: np.random.Generator) -> Floats:
    blocks = problem.blocks

    def build() -> Callable[..., Any]:
        def function(lam: Any, point: Any, known: Any) -> Any:
            total = sum(problem.program.log_joint(name, point, known) for name in problem.plan.terms)
            for name, block in blocks.items():
                away = block.family.log_normalizer(lam[name]) - block.family.inner(lam[name], point[name])
                total = total + problem.program.entropy(block, away, known)
            return problem.backend.xp.asarray(total)

        return function

    weight = problem.compiled("log weight", build)
    lam = {name: tuple(np.asarray(part, dtype=np.float64) for part in state.lam[name]) for name in blocks}
    out = np.empty(n)
    for draw in range(n):
        point = {}
        for name, block in blocks.items():
            with np.errstate(divide="ignore"):  # a share that underflows has the logarithm −inf, and the weight none
                # The number of categories is asked for by families of categories alone.
                size = lam[name][0].shape[-1] if lam[name][0].ndim else None
                point[name] = block.family.stats_of(block.family.sample(lam[name], rng), size)
        out[draw] = float(weight(lam, point))
    return out
