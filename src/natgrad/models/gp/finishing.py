"""When a sparse Gaussian process ends with neighbours, and what is said of it: a fitted state in; a local process or none out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance, direct_of
from natgrad.data.rows import Scaling
from natgrad.inference.problem import State
from natgrad.models.gp.apart import without_rows
from natgrad.models.gp.joint import Ordinal, Softmax
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Poisson
from natgrad.models.gp.local import JUDGES, Budget, Local, Rows, psi_of, settled, sparse_without
from natgrad.models.gp.neighbours import SMOOTHEST_FIRST
from natgrad.models.gp.predictor import Predictor
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.sited import Observed, SitedLocal, settled_sites
from natgrad.models.gp.sites import Law, Sites
from natgrad.models.gp.starting import GPStarting, variance_unit
from natgrad.models.gp.weighing import Moments, Weighed, mixed, weighed, weighed_logs
from natgrad.models.scikit import check_is_fitted
from natgrad.random import Stream, generator
from natgrad.threads import one_blas_thread
from natgrad.validation import whole_number

__all__ = ["GPFinishing", "restored_local", "saved_local"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Of max_seconds, what is left to a finish.
SHARE = 0.4
# Of max_steps, steps that pay for a search of neighbours and the steps with these; the default 2,000 pays for all there are.
STEPS_A_SEARCH = 80
# Times as many searches where rows get sites: each is for fewer rows, and costs less.
SITED_SEARCHES = 2
# Where nobody has asked for neighbours: rows that are enough to tell whether they gain, and so few that to look through them for
# a prediction takes half a millisecond; inducing inputs whose steps cost as much as those of neighbours.
FEWEST, MOST, AS_COSTLY = 1_000, 100_000, 100
# Nats a row, and standard errors of them, that neighbours must gain where they are chosen by that.
GAIN, ERRORS = 0.01, 3.0
# Rows that judge at most, where fewer leave it open; divided by the number of functions, each of which costs as much.
MOST_JUDGES = 8_000


# Laws whose rows get sites: log-concave in f, so that a row never says less than nothing. Those of classes may be taken unasked,
# with so many functions at most: sites and predictions cost so many times as much, as does the fit. Beyond a few functions there
# are fewer searches.
SITED = (Bernoulli, Softmax, Ordinal, Poisson, NegativeBinomial)
UNASKED, MOST_FUNCTIONS, A_FEW = (Bernoulli, Softmax, Ordinal), 10, 3


class GPFinishing(GPStarting):
    """A finish by neighbours; abstract."""

    # Those of estimators that have them.
    finish: str | None = None
    n_neighbors: int = 1
    _predictor: Predictor
    _y_scaling: Scaling
    _likelihood: Likelihood

    @property
    def neighbour_kernel_(self) -> Covariance:
        """The kernel of the process that predicts from neighbours, as settled again; `kernel_` is that of the sparse process."""
        return self._in_units_of_data(self._neighbours("neighbour_kernel_").kernel)

    def _in_units_of_data(self, kernel: Covariance) -> Covariance:
        """A kernel of standardised inputs and outputs as one of X and y."""
        scaling = self._x_scaling
        if kernel.units(scaling.sd) is None:  # inputs are as they were
            return kernel
        unit = variance_unit(self._y_scaling, self._likelihood)
        return kernel.in_units(-scaling.mean / scaling.sd, 1.0 / scaling.sd, 1.0 / unit)

    @property
    def neighbour_weight_(self) -> float:
        """The weight of neighbours in a prediction, 1 if they alone predict; the rest is the sparse process's."""
        self._neighbours("neighbour_weight_")
        return self._predictor.weight

    @property
    def neighbour_log_density_(self) -> float:
        """The mean of log p(y_i | y_N(i)) over 1,000 rows of the fit at random, or all of fewer, each given its nearest others.

        In nats a row, in the units of y; of classes the log probability, of a fifth of the rows at most, given the others. It is
        what new rows among the old ones may expect of neighbours alone, but for the few parameters that were learned from it; it
        is no bound, and `elbo_` stays that of the sparse process.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> x = np.random.default_rng(0).uniform(0, 6, (80, 1))
        >>> model = ng.SparseGPRegressor(n_inducing=5, max_steps=50, tol=0, finish="neighbours", n_neighbors=9)
        >>> bool(model.fit(x, np.sin(3 * x[:, 0])).neighbour_log_density_ > model.elbo_ / 80)
        True
        """
        return self._neighbours("neighbour_log_density_").log_density - float(np.log(self._y_scaling.sd[0]))

    def _neighbours(self, wanted: str) -> Local | SitedLocal:
        check_is_fitted(self)
        local = self._predictor.local
        if local is None:
            raise AttributeError(f'{wanted} is of fits that end with neighbours: fit with finish="neighbours"')
        return local

    def _check_finish(self, n_outputs: int = 1) -> None:
        """Refuse a finish that cannot be."""
        whole_number(self.n_neighbors, "n_neighbors")
        law = self._own_likelihood()
        if not isinstance(law.own, (Gaussian, *SITED)):
            self._refuse_to_finish(
                f'likelihood is {law.name!r}, and neighbours need one that is log-concave in f, such as "gaussian"'
            )
        if n_outputs > 1:
            self._refuse_to_finish(
                f"y has {n_outputs} columns, and neighbours predict one: fit each with a model of its own"
            )

    def _refuse_to_finish(self, why: str) -> None:
        if self.finish == "neighbours":
            raise ValueError(f'finish="neighbours": {why}; or leave finish out')

    def _finishes(self, problem: GPProblem) -> bool:
        """Whether there may be a finish: asked for, or possible with rows that are in memory anyway."""
        law, rows = problem.likelihood, problem.data
        single = isinstance(law, Gaussian) and rows.n_outputs == 1
        if self.finish is None or not (single or isinstance(law, SITED)):
            return False
        if self.finish == "neighbours":
            return True
        usual = single or (isinstance(law, UNASKED) and problem.n_outputs <= MOST_FUNCTIONS)
        in_memory = FEWEST <= len(rows) <= MOST and not isinstance(rows.inputs, np.memmap)
        return usual and in_memory and direct_of(problem.kernel) is not None  # others are slow, one row after the other

    def _finish_share(self, problem: GPProblem) -> float:
        """Of max_seconds, what a finish has."""
        return SHARE if self._finishes(problem) else 0.0

    def _finished(self, problem: GPProblem, state: State, began: float) -> list[str]:
        """Predict from neighbours from now on, if settings or rows say so; and words on it."""
        if not self._finishes(problem):
            return []
        until = np.inf if self.max_seconds is None else began + float(self.max_seconds)
        with one_blas_thread():
            local, found = self._local(problem, state, until)
        taken = self._takes(found)
        if taken:
            self._predictor = self._predictor.given_neighbours(local, found.weight)
        part = f", with a weight of {found.weight:.2f}," if found.weight < 1.0 else ""
        how = "each without itself" if isinstance(local, Local) else "which neither has seen"
        return [
            f"{local.n_neighbors} neighbours{part} expect {len(found.gains):,} rows, {how}, {found.gain:+.3f} ± "
            f"{found.error:.3f} nats a row better than the sparse process{'' if taken else ', which predicts'}"
        ]

    def _takes(self, found: Weighed) -> bool:
        """Whether neighbours predict: asked for, or by what they gain."""
        return self.finish == "neighbours" or found.gain > max(GAIN, ERRORS * found.error)

    def _searches(self, problem: GPProblem) -> int:
        """How often neighbours may be sought while kernel and noise settle; unasked, for no more than the fit has cost.

        A sum of kernels costs as many as it has parts, of two parameters each, once for each of many small matrices.
        """
        part = min(1.0, problem.n_inducing / AS_COSTLY * 2.0 / len(problem.kernel.theta))
        part = 1.0 if self.finish == "neighbours" else part
        return max(1, int(part * whole_number(self.max_steps, "max_steps")) // STEPS_A_SEARCH)

    def _local(self, problem: GPProblem, state: State, until: float) -> tuple[Local | SitedLocal, Weighed]:
        """The settled process, its weight and what that gains."""
        rng = generator(whole_number(self.seed, "seed", least=0), Stream.START, 5)
        settings, law = state.hyper["settings"], problem.likelihood
        kernel = problem.kernel.at([np.asarray(part) for part in settings.theta])
        psi, m = np.asarray(settings.psi), whole_number(self.n_neighbors, "n_neighbors")
        x, y = problem.data.take(None)
        x, y = Rows.of(x, y, rng)
        own = isinstance(self.kernel, Covariance)
        any_kind = self.learn_kernel and not own and type(kernel) in SMOOTHEST_FIRST
        # Half a millisecond for each of them, and a few times over: a tenth of the seconds.
        most = JUDGES if self.max_seconds is None else int(min(max(50 * float(self.max_seconds), 50), JUDGES))

        def in_time() -> bool:
            return time.perf_counter() < until

        if isinstance(law, Gaussian):
            start = Local(kernel, law.noise_level(psi), Rows(x, y[:, 0]), m)
            budget = Budget(self._searches(problem), in_time, most)
            near, judges, _ = settled(start, (self.learn_kernel, self.learn_noise), any_kind, rng, budget)
            others = np.setdiff1d(np.arange(len(x)), judges)
            return near, self._weighed(problem, state, near, Rows(x, y), (judges, others), in_time)
        rows = Observed(x, y, Law(law, psi, problem.offset))
        searches = SITED_SEARCHES * self._searches(problem) * A_FEW // max(A_FEW, problem.n_outputs)
        budget = Budget(max(1, searches), in_time, most)
        sited, judges, _ = settled_sites(kernel, rows, m, self.learn_kernel, any_kind, rng, budget)
        found = self._weighed_apart(problem, state, sited, rows, judges, in_time)
        return (sited.with_all(rows, in_time) if self._takes(found) else sited), found

    def _weighed(
        self,
        problem: GPProblem,
        state: State,
        local: Local,
        rows: Rows,
        judges: tuple[Ints, Ints],
        in_time: Callable[[], bool],
    ) -> Weighed:
        """The weight of neighbours with Gaussian noise, by rows that judge, each without itself.

        Rows come as those that have judged kernels, and others that may.
        """
        law, any_weight = problem.likelihood, self.finish == "auto"
        psi = np.asarray(state.hyper["settings"].psi)
        order = np.concatenate(judges)[: max(len(judges[0]), MOST_JUDGES // problem.n_outputs)]
        near, sparse = [], []

        def log_densities(moments: Moments, weight: float) -> Floats:
            own = psi_of(mixed(local.noise, law.noise_level(psi), weight))
            return law.log_predictive_rows(own, rows.y[order[: len(moments.mean)]], *moments)

        def by(some: Ints) -> Weighed:
            near.append(local.without(some))
            sparse.append(sparse_without(problem, state, rows.x[some], rows.y[some]))
            both = [Moments(*map(np.concatenate, zip(*parts, strict=True))) for parts in (near, sparse)]
            return weighed(log_densities, both[0], both[1], any_weight)

        return self._asked(by, order, len(judges[0]), in_time)

    def _weighed_apart(
        self,
        problem: GPProblem,
        state: State,
        local: SitedLocal,
        rows: Observed,
        judges: Ints,
        in_time: Callable[[], bool],
    ) -> Weighed:
        """The weight of neighbours with sites, by rows kept apart: neither they nor the sparse process have seen these."""
        first = min(len(rows.x) - 1, len(local.x))
        order = np.concatenate([judges, np.arange(judges[-1] + 1, len(rows.x))])
        order = order[: max(len(judges), MOST_JUDGES // problem.n_outputs)]
        apart = without_rows(problem, state, rows.x, rows.y, first) if len(rows.x) > 1 else self._predictor
        near: list[Floats] = []
        sparse: list[Floats] = []

        def by(some: Ints) -> Weighed:
            pairs = ((near, local.expected(rows.x, some), local.unit), (sparse, apart.latent(rows.x[some]), 1.0))
            for logs, (mean, var), unit in pairs:
                law = rows.law._replace(unit=unit)
                logs.append(law.in_columns(rows.y[some], (mean - problem.offset).T, var.T))
            return weighed_logs(np.hstack(near), np.hstack(sparse), self.finish == "auto")

        return self._asked(by, order, len(judges), in_time)

    def _asked(self, by: Callable[[Ints], Weighed], order: Ints, few: int, in_time: Callable[[], bool]) -> Weighed:
        """What few rows that judge say; more of them, as long as they leave it open and where it matters."""
        begin, end = 0, few
        while True:
            found = by(order[begin:end])
            open_ = not self._takes(found) and found.gain + ERRORS * found.error > GAIN
            begin, end = end, 2 * end
            if not (open_ and self.finish == "auto" and begin < len(order) and in_time()):
                return found


def saved_local(local: Local | SitedLocal, weight: float) -> dict[str, Any]:
    """What a file keeps of a local process, and its weight beside the sparse one, if that has any."""
    both = {"weight": weight} if weight < 1.0 else {}
    if isinstance(local, SitedLocal):
        own = {name: value for name, value in local._asdict().items() if name not in ("sites", "offset")}
        return {**own, **both, "z": local.sites.z, "s": local.sites.s}
    own = {name: value for name, value in local._asdict().items() if name != "rows"}
    return {**own, **both, "x": local.rows.x, "y": local.rows.y}


def restored_local(saved: Mapping[str, Any], offset: Floats) -> tuple[Local | SitedLocal, float]:
    """`saved_local` undone; ``offset``: of f."""
    own = {name: value for name, value in saved.items() if name not in ("x", "y", "z", "s", "weight")}
    weight = float(saved.get("weight", 1.0))
    if "z" in saved:
        return SitedLocal(x=saved["x"], sites=Sites(saved["z"], saved["s"]), offset=offset, **own), weight
    return Local(rows=Rows(saved["x"], saved["y"]), **own), weight
