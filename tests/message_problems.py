"""Small factorisations for the tests of remembered messages."""

import numpy as np

import natgrad as ng
from natgrad.inference.problem import State
from natgrad.inference.steppers.message_memory import MessageStepper
from natgrad.models.factorization.scalar_problem import RatingsProblem

ORDER = ("u", "v")


def ratings(seed=0, n_users=12, n_items=8, n=40, full=True, empty=0):
    """Distinct cells; with ``full`` every user and every item has at least one, but for the ``empty`` last of each."""
    rng = np.random.default_rng(seed)
    first = [i * n_items + i % n_items for i in range(max(n_users, n_items)) if i < n_users] if full else []
    rest = np.setdiff1d(np.arange(n_users * n_items), first)
    cells = np.concatenate([np.array(first, dtype=int), rng.choice(rest, n - len(first), replace=False)])
    values = 3.0 + rng.normal(size=n)
    return ng.Ratings(cells // n_items, cells % n_items, values, shape=(n_users + empty, n_items + empty))


def make(seed=0, size=3, prior=1.0, noise=1.0, **more):
    return RatingsProblem(ratings(seed, **more), size, prior, noise)


def stepper_of(problem, method=None, use_rotation=True):
    return MessageStepper(problem, problem.message_memory, method or ng.Children(1), ORDER, use_rotation)


def random_state(rng, problem):
    lam = {}
    for name, block in problem.blocks.items():
        precision = rng.uniform(0.5, 4.0, block.shape)
        lam[name] = (precision * rng.normal(size=block.shape), -0.5 * precision)
    return State(lam, {name: problem.moments(problem.blocks[name], part) for name, part in lam.items()}, 0)
