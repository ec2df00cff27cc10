"""The kernels that remember messages are their definitions, and whatever they remember, nothing can run away."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from message_problems import ORDER, make, random_state
from reference.messages import naive_answer, naive_read, naive_sums

from natgrad.models.factorization import messages as rating_messages
from natgrad.models.factorization.messages import RatingMessages

OTHER = {"u": "v", "v": "u"}
seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 5), st.booleans())
@settings(max_examples=25)
def test_reading_edges_is_its_definition(seed, size, parallel):
    rng = np.random.default_rng(seed)
    prior, noise = rng.uniform(0.2, 3.0, 2)
    problem = make(seed % 7, size, prior, noise, full=False)
    messages: RatingMessages = problem.message_memory
    state = random_state(rng, problem)
    memory = messages.begin(state)
    few, rating_messages.FEW = rating_messages.FEW, 0 if parallel else 10**9
    try:
        for _ in range(6):
            name = str(rng.choice(["u", "v"]))
            side, mine = messages.sides[name], memory[name]
            n = len(side.values)
            positions = np.sort(rng.choice(n, rng.integers(1, n + 1), replace=False))
            over = float(rng.choice([1.0, 1.8]))
            kept, seen = mine["kept"].copy(), mine["seen"].copy()
            rows, lam = messages.read(name, state, memory, positions, over)
            other = OTHER[name]
            naive_read(positions, side.other, state.mu[other][0], -2.0 * state.lam[other][1], kept, seen, over)
            np.testing.assert_allclose(mine["kept"], kept, rtol=3e-7, atol=1e-30)
            np.testing.assert_array_equal(mine["seen"], seen)
            wanted_rows = np.unique(np.repeat(np.arange(len(side.start) - 1), np.diff(side.start))[positions])
            np.testing.assert_array_equal(rows, wanted_rows)
            for place, row in enumerate(rows):
                sums = naive_sums(row, side.start, side.values, mine["kept"], seen, mine["held"], noise)
                mean, precision = naive_answer(*sums, prior, noise)
                np.testing.assert_allclose(-2.0 * lam[1][place], precision, rtol=1e-10)
                np.testing.assert_allclose(lam[0][place] / precision, mean, rtol=1e-8, atol=1e-9)
            state = random_state(rng, problem)
    finally:
        rating_messages.FEW = few


def test_sums_after_many_reads_are_those_summed_up_anew():
    rng, problem = np.random.default_rng(0), make(full=False)
    messages, state = problem.message_memory, random_state(np.random.default_rng(1), problem)
    memory = messages.begin(state)
    for _ in range(300):
        for name in ORDER:
            positions = np.sort(rng.choice(40, 7, replace=False))
            messages.read(name, random_state(rng, problem), memory, positions, 1.8)
    before = {name: {key: part[key].copy() for key in ("cross", "spread", "pull")} for name, part in memory.items()}
    messages.rebuild(memory)
    for name, part in before.items():
        side, mine = messages.sides[name], memory[name]
        for row in range(len(side.start) - 1):
            cross, spread, pull = naive_sums(
                row, side.start, side.values, mine["kept"], mine["seen"], mine["held"], 1.0
            )
            np.testing.assert_allclose(np.tril(mine["cross"][row]), np.tril(cross), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(mine["spread"][row], spread, rtol=1e-12)
            np.testing.assert_allclose(mine["pull"][row], pull, rtol=1e-11, atol=1e-12)
        for key, sums in part.items():
            np.testing.assert_allclose(sums, mine[key], rtol=1e-5, atol=1e-9, err_msg=f"{name} {key}")


def test_nothing_read_is_the_start():
    problem = make(noise=1.7)
    state = random_state(np.random.default_rng(0), problem)
    memory = problem.message_memory.begin(state)
    before = {name: part["pull"].copy() for name, part in memory.items()}
    problem.message_memory.rebuild(memory)
    for name, part in memory.items():
        np.testing.assert_allclose(part["pull"], before[name], rtol=1e-12)
        np.testing.assert_allclose(1.7 * part["pull"], state.lam[name][0], rtol=1e-12)  # together they hold λ⁰


@given(seeds, st.integers(1, 4))
@settings(max_examples=25)
def test_means_are_bounded_by_half_the_norm_of_their_data_whatever_is_remembered(seed, size):
    """α = τ = 1: ‖(P + MᵀM)⁻¹ Mᵀ r‖ ≤ ½ ‖r‖ for every M and every P ≥ I."""
    rng, problem = np.random.default_rng(seed), make(1, size)
    messages, state = problem.message_memory, random_state(rng, problem)
    memory = messages.begin(state)
    for part in memory.values():
        scale = 10.0 ** rng.uniform(-3, 3, (*part["kept"].shape[:1], 1))
        part["kept"][:, 0] = scale * rng.normal(size=part["kept"][:, 0].shape)
        part["kept"][:, 1] = 10.0 ** rng.uniform(-3, 3, part["kept"][:, 1].shape)
        part["seen"][:] = True
    messages.rebuild(memory)
    for name, side in messages.sides.items():
        positions = np.sort(rng.choice(40, 25, replace=False))
        rows, lam = messages.read(name, state, memory, positions, 1.0)
        means = -0.5 * lam[0] / lam[1]
        norms = [np.linalg.norm(side.values[side.start[r] : side.start[r + 1]]) for r in rows]
        assert (np.linalg.norm(means, axis=1) <= 0.5 * np.array(norms) * (1 + 1e-6)).all()
        assert (-2.0 * lam[1] >= 1.0).all()
