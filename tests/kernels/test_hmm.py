"""The kernels of hidden Markov chains against slow twins in logarithms, and against all paths added up."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import hmm as twin
from scipy.special import logsumexp

from natgrad.data.io.npy import RowWriter
from natgrad.data.sequences import Sequences
from natgrad.kernels.hmm.emissions import BY_COLUMN, QUADRATIC
from natgrad.kernels.hmm.paths import draw_paths
from natgrad.models.hmm.forward_backward import Windows, count, grown, viterbi, weights_of, whole_sequences

pytestmark = pytest.mark.usefixtures("loops")
NO_CODES = np.zeros(0, np.uint8)


class Forms:
    """Just enough of an emission: its linear forms are given."""

    def __init__(self, kind):
        self.kind = kind


def problem(rng, kind, n_states, lengths, spread=1.0, missing=0.0, labelled=0.0, weak=1.0):
    """Random data and weights of one kind; the log weights [T, K] that the twins take."""
    n_times = sum(lengths)
    initial, transition = rng.dirichlet(np.ones(n_states)), weak * rng.dirichlet(np.ones(n_states), n_states)
    labels = np.where(rng.random(n_times) < labelled, rng.integers(0, n_states, n_times), -1).astype(np.int32)
    labels = labels if labelled else np.zeros(0, np.int32)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if kind == "codes":
        table = spread * rng.normal(size=(5, n_states))
        table[-1] = 0.0
        data = Sequences(rng.integers(0, 5, n_times).astype(np.uint8), np.zeros((0, 0)), ends, labels=labels)
        statistics, forms = np.eye(5)[data.codes], table.T
    else:
        values = rng.normal(size=(n_times, 2))
        gone = rng.random((n_times, 2)) < missing
        values[gone if kind == BY_COLUMN else gone.any(1)] = np.nan
        statistics = (twin.column_statistics if kind == BY_COLUMN else twin.quadratic_statistics)(values)
        forms = spread * rng.normal(size=(n_states, statistics.shape[1]))
        data = Sequences(NO_CODES, values, ends, labels=labels)
    weights = weights_of(Forms(kind), data, initial, transition, forms)
    return data, weights, twin.row_weights(statistics, forms, labels if labelled else None), statistics


def assert_like_twin(data, weights, logs, statistics, rtol=1e-9):
    states = np.full((data.n_times, len(weights.initial)), np.nan)
    rows = RowWriter(states, states.shape, states.dtype)
    found = count(weights, whole_sequences(weights, data, None, 1), statistics.shape[1], 1, rows)
    parts = [
        twin.chain(logs[b:e], weights.transition, weights.initial)
        for b, e in zip(data.ends[:-1], data.ends[1:], strict=True)
    ]
    wanted = np.concatenate([part.states for part in parts])
    np.testing.assert_allclose(states, wanted, rtol=rtol, atol=1e-11)
    np.testing.assert_allclose(found.pairs, sum(part.pairs for part in parts), rtol=rtol, atol=1e-10)
    np.testing.assert_allclose(found.sums, statistics.T @ wanted, rtol=rtol, atol=1e-10)
    np.testing.assert_allclose(found.heads, sum(part.states[0] for part in parts), rtol=rtol, atol=1e-11)
    np.testing.assert_allclose(found.log_z, sum(part.log_z for part in parts), rtol=1e-11, atol=1e-13)


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["codes", QUADRATIC, BY_COLUMN]),
    n_states=st.integers(1, 9),
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=3),
)
@settings(max_examples=25)
def test_exact_chain_is_its_twin(seed, kind, n_states, lengths):
    rng = np.random.default_rng(seed)
    assert_like_twin(*problem(rng, kind, n_states, lengths, missing=0.1, labelled=0.1, weak=0.8))


@pytest.mark.parametrize("labelled", [0.0, 0.2])
@pytest.mark.parametrize("n_states", [4, 6])  # one whole quad of states, and one that is partly filled
@pytest.mark.parametrize("kind", ["codes", QUADRATIC])
def test_log_weights_a_thousand_apart(kind, n_states, labelled, rng):
    # Scaled messages cannot hold e^1000; the twin works in logarithms.
    assert_like_twin(*problem(rng, kind, n_states, [90, 70], spread=400.0, labelled=labelled), rtol=1e-7)


def test_an_outlier_that_only_a_forbidden_state_could_explain(rng):
    data, weights, _, statistics = problem(rng, "codes", 3, [80])
    table = weights.table.copy()
    table[1] = [-600.0, -620.0, 0.0]
    transition = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]])
    strict = weights_of(Forms("codes"), data, np.array([0.5, 0.5, 0.0]), transition, table.T)
    assert_like_twin(data, strict, np.eye(5)[data.codes] @ table, statistics, rtol=1e-7)


@given(seed=st.integers(0, 10**6), n_states=st.integers(1, 3))
@settings(max_examples=10)
def test_all_paths_added_up(seed, n_states):
    data, weights, logs, _ = problem(np.random.default_rng(seed), "codes", n_states, [7], weak=0.7)
    states = np.empty((7, n_states))
    found = count(weights, whole_sequences(weights, data, None, 1), 5, 1, RowWriter(states, states.shape, states.dtype))
    wanted = twin.by_enumeration(logs, weights.transition, weights.initial)
    np.testing.assert_allclose(found.log_z, wanted.log_z, rtol=1e-12)
    np.testing.assert_allclose(states, wanted.states, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.pairs, wanted.pairs, rtol=1e-9, atol=1e-12)


def test_reference_likelihood(reference):
    r = reference("exact_conjugate")["hmm_fixed_parameters"]
    codes = np.array(r["obs"], np.uint8)
    data = Sequences(codes, np.zeros((0, 0)), np.array([0, len(codes)]))
    weights = weights_of(Forms("codes"), data, np.array(r["pi"]), np.array(r["A"]), np.log(r["B"]))
    found = count(weights, whole_sequences(weights, data, None, 1), 3, 1)
    np.testing.assert_allclose(found.log_z, -7.708907245982176, rtol=1e-13)


def best_paths(weights, data):
    with RowWriter(None, (data.n_times,), np.int64) as rows:
        score = viterbi(weights, data, 2, rows)
    return rows.result, score


@given(
    seed=st.integers(0, 10**6), n_states=st.integers(1, 3), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3)
)
@example(seed=14765, n_states=2, lengths=[4, 4, 4])  # two paths of the same weight
@settings(max_examples=15)
def test_best_path_is_the_best_of_all(seed, n_states, lengths):
    data, weights, logs, _ = problem(np.random.default_rng(seed), "codes", n_states, lengths)
    found, score = best_paths(weights, data)
    best = 0.0
    for b, e in zip(data.ends[:-1], data.ends[1:], strict=True):
        chain = (logs[b:e], weights.transition, weights.initial)
        wanted = twin.best_value(*chain)
        # Values, not paths: another path may be just as good.
        assert twin.path_value(found[b:e], *chain) == pytest.approx(wanted, rel=1e-12)
        best += wanted
    assert score == pytest.approx(best, rel=1e-12)


def test_best_path_across_blocks(rng, monkeypatch):
    # With weights this clear the path is that of the codes, in every one of several blocks.
    states = np.repeat(rng.integers(0, 3, 500), 3)
    data = Sequences(states.astype(np.uint8), np.zeros((0, 0)), np.array([0, 700, 1500]))
    weights = weights_of(Forms("codes"), data, np.ones(3) / 3, np.full((3, 3), 1 / 3), np.log(0.01 + 0.97 * np.eye(3)))
    assert best_paths(weights, data)[0].tolist() == states.tolist()
    monkeypatch.setattr("natgrad.models.hmm.forward_backward.ROWS", 130)  # written a few blocks at a time
    assert best_paths(weights, data)[0].tolist() == states.tolist()


def test_threads_change_nothing(rng, loops):
    # NumPy's loops, which are slow, have one thread.
    data, weights, _, statistics = problem(rng, QUADRATIC, 3, [40_000 if loops == "compiled" else 400, 9, 2_000])
    one, two = (
        count(weights, whole_sequences(weights, data, None, jobs), statistics.shape[1], jobs) for jobs in (1, 2)
    )
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


# -- buffers --


def buffered(rng, n_states=3, length=300, sticky=0.0):
    _, weights, logs, _ = problem(rng, "codes", n_states, [length])
    transition = (1 - sticky) * weights.transition + sticky * np.eye(n_states)
    return weights._replace(transition=transition), logs


def grow(weights, begin, length, low, high, tol, unit=4, most=200):
    n = len(begin)
    typical = np.full(len(weights.initial), 1.0 / len(weights.initial))
    ends = np.full(n, low), np.full(n, high)
    return grown(weights, typical, np.asarray(begin), np.full(n, length), *ends, unit, tol, most, 1)


def test_a_buffer_to_both_ends_is_exact(rng):
    weights, logs = buffered(rng, length=60)
    found = grow(weights, [0, 20, 55], 5, 0, 60, tol=1e-300)
    wanted = twin.chain(logs, weights.transition, weights.initial)
    windows = Windows(np.array([0, 20, 55]), np.full(3, 5), found.before, found.behind, np.tile([0, 5, 4, 0], (3, 1)))
    states = np.zeros((60, 3))
    count(weights, windows, 5, 1, RowWriter(states, states.shape, states.dtype))
    for begin in (0, 20, 55):
        np.testing.assert_allclose(states[begin : begin + 5], wanted.states[begin : begin + 5], rtol=1e-9, atol=1e-12)
    assert (found.error == 0).all()


def test_operators_and_their_diameter(rng):
    weights, logs = buffered(rng)
    found = grow(weights, [100], 10, 0, 300, tol=0.05, unit=3)
    size = int(found.size[0])
    left, right = twin.transfer_operators(logs[100 - size : 100], logs[110 : 110 + size], weights.transition)
    np.testing.assert_allclose(found.before[0], left.sum(0) / left.sum(), rtol=1e-9)
    np.testing.assert_allclose(found.behind[0], right.sum(1) / right.sum(), rtol=1e-9)
    spread = twin.projective_diameter(left) + twin.projective_diameter(right.T)
    np.testing.assert_allclose(found.error[0], np.tanh(spread / 4), rtol=1e-7)


@given(seed=st.integers(0, 10**6), tol=st.sampled_from([0.3, 0.1, 1e-2, 1e-4]), sticky=st.sampled_from([0.0, 0.9]))
@settings(max_examples=8)
def test_the_stated_error_bounds_the_true_one(seed, tol, sticky):
    # Total variation of every q(x_t) in S from that of the whole chain, whatever lies beyond the buffer.
    weights, logs = buffered(np.random.default_rng(seed), sticky=sticky)
    begin = np.array([0, 37, 150, 290])
    found = grow(weights, begin, 10, 0, 300, tol)
    wanted = twin.chain(logs, weights.transition, weights.initial).states
    for n, b in enumerate(begin):
        states = twin.chain(logs[b : b + 10], weights.transition, found.before[n], found.behind[n]).states
        error = 0.5 * np.abs(states - wanted[b : b + 10]).sum(1).max()
        assert error <= found.error[n] + 1e-12
        assert found.error[n] < tol or found.size[n] >= 200


def test_successive_differences_stop_too_early_and_the_bound_does_not():
    # An uninformative stretch around S: growing by two changes nothing, yet the answer lies a little further out.
    logs = np.zeros((61, 2))
    logs[10], logs[50] = [0.0, -12.0], [0.0, -12.0]
    transition = np.array([[0.98, 0.02], [0.02, 0.98]])
    typical = np.array([0.5, 0.5])
    exact = twin.chain(logs, transition, typical).states[30]
    published, _ = twin.successive_buffer(logs, transition, typical, (30, 31), unit=2, tol=1e-3)
    assert 0.5 * np.abs(published[0] - exact).sum() > 0.1
    codes = (logs[:, 1] < 0).astype(np.uint8)
    data = Sequences(codes, np.zeros((0, 0)), np.array([0, 61]))
    weights = weights_of(Forms("codes"), data, typical, transition, np.array([[0.0, 0.0], [0.0, -12.0]]))
    found = grow(weights, [30], 1, 0, 61, tol=1e-3, unit=2)
    states = twin.chain(logs[30:31], transition, found.before[0], found.behind[0]).states[0]
    assert 0.5 * np.abs(states - exact).sum() < 1e-3


def test_drawn_paths_are_their_definition(rng):
    """The path of each uniform number by plain loops: forward sums in logarithms, then backward, state by state."""
    n_chains, n_times, n_states, n_paths = 2, 7, 3, 6
    potentials, initial = rng.normal(0, 2, (n_chains, n_times, n_states)), rng.normal(size=(n_chains, n_states))
    transition = rng.normal(size=(n_chains, n_states, n_states))
    transition[0, 1, 2] = initial[1, 0] = -np.inf
    starts = np.array([1, 0, 0, 1, 0, 0, 0], dtype=bool)
    uniforms, out = rng.random((n_paths, n_times)), np.empty((n_paths, n_times), dtype=np.int64)
    draw_paths(potentials, initial, transition, starts, uniforms, out)
    for path in range(n_paths):
        chain = path % n_chains
        forward = np.empty((n_times, n_states))
        for t in range(n_times):
            before = initial[chain] if starts[t] else logsumexp(forward[t - 1][:, None] + transition[chain], axis=0)
            forward[t] = before + potentials[chain, t]
        for t in reversed(range(n_times)):
            logits = forward[t].copy()
            if t + 1 < n_times and not starts[t + 1]:
                logits += transition[chain][:, out[path, t + 1]]
            shares = np.cumsum(np.exp(logits - logsumexp(logits)))
            assert out[path, t] == np.searchsorted(shares, uniforms[path, t])
