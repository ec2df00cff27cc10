"""Ratings and the settings of one run in, its bounds against accesses out, kept in a file so that it is never run twice.

The model is that of Paquet (2014), section 3: r ~ N(uᵀv, 1), N(0, 1) priors, every scalar with a factor of its own, K = 5,
ρ_t = (t + τ)^(−0.6) with τ = ρ₁^(−1/0.6) − 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import natgrad as ng
from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.methods import Method, Option
from natgrad.inference.problem import State
from natgrad.network.execute.problem import NetworkProblem
from natgrad.random import Stream, generator

__all__ = ["Outcome", "Setting", "Shelf", "Trial", "compute", "declare", "fingerprint", "prior_bound"]

Floats = npt.NDArray[np.float64]
N_FACTORS, FORGETTING = 5, 0.6


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve of a figure: Alg. 1 with C children or Alg. 2 with C_global ratings; 0 is full VB."""

    algorithm: int
    option: Option = "a"
    size: int = 0

    @property
    def name(self) -> str:
        """As it is called in file names."""
        return "vb" if self.algorithm == 0 else f"alg{self.algorithm}{self.option}-{self.size}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting started with ρ₁ = 2^−halvings, and how many accesses it may have, in full sweeps."""

    setting: Setting
    halvings: int
    sweeps: float
    seed: int

    @property
    def first(self) -> float:
        """ρ₁."""
        return 2.0**-self.halvings


class Outcome(NamedTuple):
    """The exact bound against accesses, from the start (0 accesses) on, and how the run ended."""

    messages_read: Floats
    bound: Floats
    diverged: bool
    words: str
    seconds: float

    @property
    def start(self) -> float:
        """The bound before the first step."""
        return float(self.bound[0])

    @property
    def end(self) -> float:
        """The last bound; of a run that the guard stopped, the last before it left."""
        return float(self.bound[-1])


def declare(ratings: Ratings, n_factors: int = N_FACTORS) -> ng.Network:
    """Declare the fully factorised model of the paper: every u_mk and v_nk is a node of its own."""
    user, item = ng.Plate("user", ratings.n_users), ng.Plate("item", ratings.n_items)
    factor, rating = ng.Plate("factor", n_factors), ng.Plate("rating", len(ratings.values))
    u = ng.Normal("u", 0.0, 1.0, plate=(user, factor))
    v = ng.Normal("v", 0.0, 1.0, plate=(item, factor))
    r = ng.Normal("r", ng.dot(u[ratings.users], v[ratings.items]), 1.0, plate=rating, observed=ratings.values)
    return ng.Network(r)


def prior_draw(problem: NetworkProblem, seed: int, sd: float = 1.0) -> State:
    """Draw the means of u and v from the prior, ``sd`` times as wide, with its precision."""
    state = problem.prior({})
    lam, mu = dict(state.lam), dict(state.mu)
    for number, name in enumerate(("u", "v")):
        block = problem.blocks[name]
        drawn = sd * block.family.sample(state.lam[name], generator(seed, Stream.START, number))
        lam[name] = block.family.centred(drawn, state.lam[name])
        mu[name] = problem.moments(block, lam[name])
    return State(lam, mu, 0)


def compute(problem: NetworkProblem, trial: Trial) -> Outcome:
    """Run one trial."""
    setting = trial.setting
    method: Method = ng.VB()
    step: ng.inference.Constant | ng.inference.RobbinsMonro = ng.inference.Constant(1.0)
    if setting.algorithm:
        kind = ng.Children if setting.algorithm == 1 else ng.inference.GlobalBatch
        method, step = (
            kind(setting.size, setting.option),
            ng.inference.RobbinsMonro(first=trial.first, forgetting=FORGETTING),
        )
    start = prior_draw(problem, trial.seed)
    accesses = round(trial.sweeps * problem.n_messages)
    # No limit of steps but the accesses: a step has at least one.
    limits = Limits(max_steps=accesses, tol=0, max_messages=accesses)
    began = time.perf_counter()
    result = run(
        Phase(problem, method, step, ("u", "v"), bound_every="log"),
        start,
        limits=limits,
        seed=trial.seed,
        verbose=False,
    )
    seconds = time.perf_counter() - began
    seen = [(0, problem.bound(start)), *((line.messages_read, line.elbo) for line in result.trace.records)]
    if not result.stop.diverged:
        seen[-1] = (seen[-1][0], problem.bound(result.state))
    read, bound = np.array([pair for pair in seen if np.isfinite(pair[1])], dtype=np.float64).T
    return Outcome(read, bound, result.stop.diverged, str(result.stop), seconds)


def prior_bound(ratings: Ratings) -> float:
    """The bound at q = prior, where uᵀv has mean 0 and variance K: what a model is worth that has read nothing."""
    return float(-0.5 * np.sum(np.log(2 * np.pi) + ratings.values**2 + N_FACTORS))


def fingerprint(ratings: Ratings) -> str:
    """Sixteen digits that change with any rating."""
    digest = hashlib.sha256()
    for array in (ratings.users, ratings.items, ratings.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


class Shelf:
    """A folder of finished runs; what they are called depends on the data, the version and every setting.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    data : str
        The fingerprint of the ratings.
    """

    def __init__(self, folder: Path, data: str) -> None:
        self.folder, self.data = folder, data
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, trial: Trial) -> Path:
        """Where a run is kept."""
        what = json.dumps({"data": self.data, "version": ng.__version__, **asdict(trial)}, sort_keys=True)
        key = hashlib.sha256(what.encode()).hexdigest()[:12]
        return self.folder / f"{trial.setting.name}-{trial.halvings}-{key}.npz"

    def get(self, trial: Trial) -> Outcome | None:
        """A finished run; none if there is no file, or one that cannot be read."""
        try:
            with self.path(trial).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                return Outcome(
                    file["messages_read"],
                    file["bound"],
                    bool(file["diverged"]),
                    str(file["words"]),
                    float(file["seconds"]),
                )
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def put(self, trial: Trial, outcome: Outcome) -> None:
        """Keep a run. The file appears whole or not at all."""
        path = self.path(trial)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **outcome._asdict())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
