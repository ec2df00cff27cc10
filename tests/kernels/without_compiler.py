"""Every kernel as plain Python on tiny data: a script that `test_without_compiler` starts with NUMBA_DISABLE_JIT=1.

Compiled code reads and writes past the end of an array without a word; NumPy raises. So each kernel runs here once uncompiled,
against its slow twin, and in tiny fits, against the arrays that compiled kernels gave (a file, the argument of the script). A
kernel that nothing calls is an error, too.

With ``--half 0`` and ``--half 1`` the script compiles what users' first fits compile, once: `make test` does so in two processes
before the tests, so that no two workers compile the same.
"""

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numba
import numpy as np
from kernels import test_factorization as factorization
from kernels import test_hmm as hmm
from kernels import test_lda as lda
from kernels import test_network as network
from kernels import test_state_space as state_space
from models.factorization import test_problem as full_ratings
from models.factorization import test_recommend as recommend
from models.hmm import test_live as live
from models.lda import test_gibbs as gibbs
from network import test_compiled_draws as compiled_draws

import natgrad as ng
import natgrad.kernels
from natgrad import threads
from natgrad.threads import at_most

FOLDER = Path(natgrad.kernels.__file__).parent
# How kernels are compiled and shared out, which is no kernel.
AROUND = {"_njit.py", "plain.py"}


@contextmanager
def never_plain() -> Iterator[None]:
    """Little data go to the kernels, too."""
    before, threads.MOST = threads.MOST, -1.0
    try:
        yield
    finally:
        threads.MOST = before


def twins() -> Iterator[Callable[[], object]]:
    """Comparisons of kernels with their slow twins, each on a few tiny inputs."""

    def inner(test, *arguments):
        return lambda: test.hypothesis.inner_test(*arguments)

    for kind in ("codes", hmm.QUADRATIC, hmm.BY_COLUMN):
        yield inner(hmm.test_exact_chain_is_its_twin, 1, kind, 1, [1, 9, 4])
        yield inner(hmm.test_exact_chain_is_its_twin, 2, kind, 5, [70, 2])  # the first is cut into two windows
    for seed in range(2):
        yield inner(hmm.test_best_path_is_the_best_of_all, seed, 2, [4, 1])
        yield inner(factorization.test_sweep_and_targets_of_vectors, seed, 3, 1, 1)
        yield inner(factorization.test_sweep_and_targets_of_vectors, seed, 5, 2**20, 2**20)
        yield inner(lda.test_documents_equal_their_twin, seed, 5, 30)
        yield inner(lda.test_sparse_documents_equal_their_twin, 17, (4, 70)[seed], 300)  # topics drop out one by one
        yield inner(lda.test_single_precision_and_skipped_topics_stay_near_and_below, seed, 3)
        yield inner(lda.test_tangents_equal_their_twin_and_the_derivative_of_solutions, seed, 2)
    rng = np.random.default_rng(0)
    yield lambda: hmm.test_log_weights_a_thousand_apart("codes", 6, 0.2, rng)
    yield lambda: hmm.test_an_outlier_that_only_a_forbidden_state_could_explain(rng)
    yield lambda: hmm.test_operators_and_their_diameter(rng)
    yield lambda: hmm.test_drawn_paths_are_their_definition(rng)
    yield lambda: gibbs.check_shares(sweeps=400, within=0.1)
    yield lambda: state_space.test_the_compiled_smoother_is_its_twin((2,), 5, 2)
    yield state_space.test_covariances_that_settle_are_those_of_the_twin
    yield lambda: live.test_the_kernel_is_its_slow_twin_for_ordinary_and_for_extreme_weights(live.filter_rows)
    yield paths_are_drawn_with_their_probabilities
    yield lambda: lda.test_exp_digamma(np.float64, 1e-13)
    yield lambda: lda.test_exp_digamma(np.float32, 1e-5)
    yield lda.test_digamma_and_lgamma
    yield lambda: gibbs.check_sampler(2, n_samples=1000, within=0.3)
    yield lambda: gibbs.test_counts_are_those_of_the_tokens(3)
    yield lambda: network.check_variates(400)
    yield lambda: network.check_factor(5)
    yield lambda: network.check_assignment(20)
    yield network.test_rows_add_up
    yield lambda: recommend.test_the_kernel_of_the_best_is_its_definition(rng, False)
    yield lambda: full_ratings.test_what_is_packed_is_unpacked_and_rows_are_summed(rng)
    for biases in (True, False):
        yield lambda biases=biases: full_ratings.test_kernels_are_their_definitions(biases)


def paths_are_drawn_with_their_probabilities() -> None:
    """Forward filtering, backward sampling of two states at three times, against all eight paths."""
    rng, n = np.random.default_rng(0), 4000
    lam = (rng.normal(size=(3, 2)), np.log([0.3, 0.7]), np.log([[0.8, 0.2], [0.4, 0.6]]))
    found = np.bincount(ng.families.MarkovChain().sample(lam, rng, n) @ [4, 2, 1], minlength=8) / n
    paths = [(a, b, c) for a in range(2) for b in range(2) for c in range(2)]
    logs = [lam[1][a] + lam[2][a, b] + lam[2][b, c] + lam[0][0, a] + lam[0][1, b] + lam[0][2, c] for a, b, c in paths]
    wanted = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(found, wanted, atol=4 * np.sqrt(0.25 / n))


def fits() -> dict[str, np.ndarray]:
    """Tiny fits of all ready models that have kernels: whatever is compiled takes part in one of them."""
    found = {**fits_of_tables(), **fits_of_sequences(), **draws_of_networks()}
    return {name: np.asarray(array, dtype=np.float64) for name, array in found.items()}


def fits_of_tables() -> dict[str, object]:
    """Factorisations, and topics of documents."""
    rng, quiet, found = np.random.default_rng(0), {"seed": 0, "verbose": False}, {}
    table = np.where(rng.random((7, 6)) < 0.8, rng.integers(0, 4, (7, 6)).astype(float), np.nan)
    counts = rng.poisson(0.7, (8, 9))
    for likelihood in ("gaussian", "bernoulli", "poisson"):
        values = np.where(np.isnan(table), np.nan, 1.0) if likelihood == "bernoulli" else table
        # The first sweeps are plain: rotations come after them.
        model = ng.MatrixFactorization(2, likelihood=likelihood, max_steps=10, **quiet).fit(values)
        found[likelihood] = model.predict([0, 3], [1, 2])
        found[f"{likelihood}, recommended"] = model.recommend([0, 3], 2).scores
    likes = np.where(np.isnan(table), np.nan, 1.0)
    mixed = ng.MatrixFactorization(
        2, likelihood="bernoulli", priors=ng.recommenders.FactorPriors(n_negatives=0), max_steps=2, **quiet
    ).fit((table > 1) * likes)
    found["bernoulli, logistic"] = mixed.predict([0, 3], [1, 2])
    drawn = ng.MatrixFactorization(2, max_steps=2, inference="gibbs", n_sweeps=3, **quiet).fit(table)
    found["gaussian, drawn"] = drawn.predict([0, 3], [1, 2])
    found["lda"] = (
        ng.LDA(3, inference="vb", max_passes=2, doc_prior="learn", topic_prior="learn", **quiet).fit(counts).components_
    )
    drawn = ng.LDA(3, max_passes=2, gibbs_sweeps=4, doc_prior="learn", topic_prior="learn", **quiet).fit(counts)
    found["lda, gibbs"], found["lda, shares"] = drawn.components_, drawn.transform(counts)
    return found


def fits_of_sequences() -> dict[str, object]:
    """Hidden Markov models, and a process along time."""
    rng, quiet, found = np.random.default_rng(1), {"seed": 0, "verbose": False}, {}
    series = rng.normal(size=(25, 2)) + np.repeat([0, 3, 0, 3, 0], 5)[:, None]
    found["hmm"] = ng.GaussianHMM(2, n_init=1, max_passes=3, **quiet).fit(series).means_
    found["hmm, codes"] = (
        ng.CategoricalHMM(2, n_init=1, max_passes=3, **quiet).fit(series[:, :1] > 1).predict(series[:, :1] > 1)
    )
    kinds = ng.covariance.Matern12(), ng.covariance.Matern32(0.5, 2.0), ng.covariance.Matern52(0.2, 4.0)
    process = ng.StateSpaceGP(kinds[0] + kinds[1] + kinds[2], max_steps=2, tol=0.0, **quiet)
    times = np.cumsum([0, 1, 1, 1, 1, 1, 1, 0, 2, 0.3])
    process.fit(times, series[:10, 0])
    found["process"] = [*process.predict(times + 0.2, return_std=True), *process.sample(times, 1)]
    return found


def draws_of_networks() -> dict[str, object]:
    """Networks with every operation of the loop that draws them."""
    options = {"chains": 1, "warmup": 0, "verbose": False, "starts": "q"}
    found = {}
    warnings.simplefilter("ignore")
    for declared in (
        compiled_draws.regression,
        compiled_draws.vectors,
        compiled_draws.shares,
        compiled_draws.components,
    ):
        draws = compiled_draws.fitted(declared).draws(250, **options)
        for name, factor in draws.items():
            found[f"{declared.__name__}, {name}"] = factor.values[:, :5]
    return found


def kernel_functions() -> set[tuple[str, str]]:
    """The file and name of every function of the kernels."""
    files = [file for file in FOLDER.rglob("*.py") if file.name not in AROUND]
    return {
        (str(file), node.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_plain_")  # what NumPy does for short arrays
    }


def main(compiled: str) -> None:
    """Run everything; the first difference, error or kernel that was not called ends the process."""
    assert numba.config.DISABLE_JIT
    called: set[tuple[str, str]] = set()

    def note(frame, event, _):
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    # Uncompiled, x / 0 and what overflows on purpose (the generator of random bits) warn; compiled they do not.
    warnings.simplefilter("ignore", RuntimeWarning)
    sys.setprofile(note)
    with at_most(1), never_plain():
        for compare in twins():
            compare()
        found = fits()
    sys.setprofile(None)
    for name, wanted in np.load(compiled).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, atol=1e-9, err_msg=name)
    missing = sorted(f"{Path(file).relative_to(FOLDER)}: {name}" for file, name in kernel_functions() - called)
    assert not missing, f"no comparison calls {', '.join(missing)}"


def compile_half(half: int) -> None:
    """Have on disk what the tests call: whatever takes part in fits, subchains and single documents."""
    rng, quiet = np.random.default_rng(0), {"seed": 0, "verbose": False}
    with never_plain():
        if half == 0:
            fits_of_tables()
            ratings = ng.data.make_ratings(12, 10, 60).ratings
            bare = {
                "noise": 1.0,
                "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
                "max_steps": 1,
            }
            ng.MatrixFactorization(2, **bare, **quiet).fit(ratings)
            likes = ng.Ratings(ratings.users, ratings.items, (ratings.values > np.median(ratings.values)) * 1.0)
            ng.MatrixFactorization(
                2, likelihood="bernoulli", priors=ng.recommenders.FactorPriors(n_negatives=0), max_steps=1, **quiet
            ).fit(likes)
            model, counts = ng.LDA(3, inference="vb", max_passes=2, **quiet), rng.poisson(0.7, (8, 9))
            model.fit(counts).transform(counts)
            model.infer(counts[0])
            model.linear_response(counts)
            state_space.test_the_compiled_smoother_is_its_twin((2,), 5, 2)
            return
        fits_of_sequences()
        draws_of_networks()
        series = rng.normal(size=(300, 1))
        for buffer in ("grow", None):
            method = ng.models.hmm.Subchains(3, length=16, buffer=buffer)
            ng.GaussianHMM(2, method=method, max_passes=1, n_init=1, **quiet).fit(series).predict(series)
        by_table = {"n_states": 2, "emissions": {0: ng.models.hmm.Gaussian()}, "n_init": 1, "max_passes": 2, **quiet}
        ng.models.hmm.HMM(**by_table).fit(series).predict(series)


if __name__ == "__main__":
    compile_half(int(sys.argv[2])) if sys.argv[1] == "--half" else main(sys.argv[1])
