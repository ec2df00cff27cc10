"""Components that come later in a stream: how often they are found, whether others are born, and what looking for them costs.

    python benchmarks/components_streams.py                      all of it: 100 sets of each kind, an hour or two
    python benchmarks/components_streams.py mixture-2 --sets 10  some kinds, some sets
    python benchmarks/components_streams.py --first 100          100 other sets
    python benchmarks/components_streams.py --table              the table of what was measured so far

Every set is read as two streams. *Later*: the second half of the chunks has twice the components of the first; a set counts if K
is the truth or one beside it. *Same*: all chunks, five times as many, have all of them; a set counts if none is born after
the first chunk, and beside it stands whether K is that of a fit to the first fifth in memory. Seconds are of this stream, of
its first chunk, in which K is found, and of the same stream with that K given; the goal is that chunks after the first take at
most 1.5 times what they take then. Every set is a line of ``benchmarks/results/components-streams.jsonl`` as soon as it is
measured, and is not measured again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from components import timed
from components_files import Lines, markdown

import natgrad as ng

Floats = npt.NDArray[Any]
# So many rows, documents or times, of the first so many components.
Draw = Callable[[int, int], Floats]
LINES = Lines("components-streams")
# Chunks of a stream without anything new, for each of one that has.
LONGER = 5


class Kind(NamedTuple):
    """Generated streams: the truth, what draws chunks, how large and how many they are, and the model for a given K or "auto"."""

    truth: int
    make: Callable[[np.random.Generator], Draw]
    size: int
    n_chunks: int
    model: Callable[[Any], Any]
    found: str


def mixture(width: int, k: int = 8) -> Callable[[np.random.Generator], Draw]:
    """Gaussians with covariances of their own, centres at least four apart."""

    def make(rng: np.random.Generator) -> Draw:
        while True:
            centres = rng.uniform(-10, 10, (k, width)) if width == 2 else rng.normal(0, 3, (k, width))
            if (np.linalg.norm(centres[:, None] - centres, axis=-1) + 1e9 * np.eye(k)).min() > 4.0:
                break
        noise = [np.cov(rng.normal(size=(3 * width, width)).T) + 0.2 * np.eye(width) for _ in range(k)]
        factors, shares = np.linalg.cholesky(noise), rng.dirichlet(np.full(k, 10.0))

        def draw(n: int, used: int) -> Floats:
            z = rng.choice(used, n, p=shares[:used] / shares[:used].sum())
            return centres[z] + np.einsum("nij,nj->ni", factors[z], rng.normal(size=(n, width)))

        return draw

    return make


def bars(rng: np.random.Generator, k: int = 10, length: int = 80) -> Draw:
    """Rows and columns of a square as topics, in a random order."""
    side = k // 2
    square = np.zeros((k, side, side))
    for i in range(side):
        square[i, i, :] = square[side + i, :, i] = 1.0 / side
    phi = square.reshape(k, -1)[rng.permutation(k)]

    def draw(n: int, used: int) -> Floats:
        return np.array([
            rng.multinomial(length, share @ phi[:used]) for share in rng.dirichlet(np.full(used, 1 / used), n)
        ])  # fmt: skip

    return draw


def chain(categories: bool, k: int = 6, stay: float = 0.9) -> Callable[[np.random.Generator], Draw]:
    """States that last ten times in the mean; Gaussians in the plane, or twelve symbols."""

    def make(rng: np.random.Generator) -> Draw:
        means = 3.0 * rng.permutation(k)[:, None] + rng.normal(size=(k, 2))
        chance = rng.dirichlet(np.full(12, 0.3), k)

        def draw(n: int, used: int) -> Floats:
            states = np.zeros(n, int)
            states[0] = rng.integers(used)
            for t in range(1, n):
                away = (states[t - 1] + rng.integers(1, used)) % used
                states[t] = states[t - 1] if rng.random() < stay else away
            if categories:
                return (rng.random((n, 1)) > np.cumsum(chance, 1)[states, :-1]).sum(1)[:, None]
            return means[states] + rng.normal(size=(n, 2))

        return draw

    return make


def of(estimator: Any, **options: Any) -> Callable[[Any], Any]:
    """The model for K or "auto"; the most that may be found is no setting of a given K."""
    given = {name: value for name, value in options.items() if not name.startswith("max_")}
    return lambda k: estimator(k, verbose=False, **(options if k == "auto" else given))


GAUSSIANS = of(ng.GaussianMixture, max_components=20)
KINDS = {
    "mixture-2": Kind(8, mixture(2), 500, 20, GAUSSIANS, "n_components_"),
    "mixture-10": Kind(8, mixture(10), 500, 20, GAUSSIANS, "n_components_"),
    "topics-bars": Kind(10, bars, 250, 8, of(ng.LDA, max_topics=20, learn_priors=True), "n_topics_"),
    "hmm-gaussian": Kind(6, chain(False), 500, 20, of(ng.GaussianHMM, max_states=12), "n_states_"),
    "hmm-categorical": Kind(6, chain(True), 1000, 20, of(ng.CategoricalHMM, max_states=12), "n_states_"),
}


def _whole(name: str, chunks: list[Floats]) -> Any:
    """A fit to all data in memory: parts of a stream of sequences are sequences."""
    whole = KINDS[name].model("auto")
    return whole.fit(chunks if name.startswith("hmm") else np.concatenate(chunks))


def measure(name: str, numbers: range, whole: int) -> None:
    """A line for every set and part that has none yet."""
    kind = KINDS[name]
    half, warm = kind.n_chunks // 2, False
    for place, number in enumerate(numbers):
        about = {"kind": name, "set": number}
        draw = kind.make(np.random.default_rng([number, 11]))
        later = [draw(kind.size, kind.truth // 2 if c < half else kind.truth) for c in range(kind.n_chunks)]
        same = [draw(kind.size, kind.truth) for _ in range(LONGER * kind.n_chunks)]
        if not warm:  # kernels are compiled, or read
            kind.model("auto").fit(iter(later[half - 1 : half + 1]))
            kind.model(2).fit(iter(later[:2]))
            warm = True
        if not LINES.has(**about, part="later"):
            model, seconds = timed(lambda later=later: kind.model("auto").fit(iter(later)))
            active = model.trace_.n_active()
            LINES.add(
                **about, part="later", k=int(getattr(model, kind.found)), first=int(active[0]),
                seconds=round(seconds, 3),
            )  # fmt: skip
        if not LINES.has(**about, part="same"):
            model, seconds = timed(lambda same=same: kind.model("auto").fit(iter(same)))
            k, after = int(getattr(model, kind.found)), [move for move in model.trace_.moves if move.t > 0]
            _, given = timed(lambda k=k, same=same: kind.model(k).fit(iter(same)))
            firsts = [timed(lambda k=k, same=same: kind.model(k).fit(iter(same[:1])))[1] for k in ("auto", k)]
            born = sum(move.accepted and move.kind in ("birth", "births", "anew") for move in after)
            LINES.add(
                **about, part="same", k=k, born=born, proposed=len(after), seconds=round(seconds, 3),
                given=round(given, 3), first=round(firsts[0], 3), given_first=round(firsts[1], 3),
            )  # fmt: skip
        if place < whole and not LINES.has(**about, part="whole"):
            model = _whole(name, same[: kind.n_chunks])
            LINES.add(**about, part="whole", k=int(getattr(model, kind.found)))


def row(name: str) -> list[str]:
    """A line of the table."""
    truth = KINDS[name].truth
    later, same, whole = (LINES.all(kind=name, part=part) for part in ("later", "same", "whole"))
    if not later or not same:
        return [name, str(truth), *[""] * 10]

    def counted(good: int, lines: list[Any]) -> str:
        return f"{good} of {len(lines)}" + ("" if good >= 0.95 * len(lines) else " MISSED")

    near = sum(abs(line["k"] - truth) <= 1 for line in later)
    names = ("seconds", "given", "first", "given_first")
    seconds, given, first, given_first = (np.mean([line[part] for line in same]) for part in names)
    found = {line["set"]: line["k"] for line in same}
    ratio = (seconds - first) / (given - given_first)
    alike = counted(sum(line["k"] == found.get(line["set"]) for line in whole), whole) if whole else ""
    return [
        name, str(truth), f"{np.median([line['first'] for line in later]):.0f}", counted(near, later),
        str(sum(line["k"] == truth for line in later)), counted(sum(line["born"] == 0 for line in same), same), alike,
        f"{seconds:.2f}", f"{first:.2f}", f"{given:.2f}", f"{given_first:.2f}",
        f"{ratio:.2f}" + ("" if ratio <= 1.5 else " MISSED"),
    ]  # fmt: skip


HEADINGS = [
    "streams",
    "truth",
    "first half",
    "found within 1",
    "exact",
    "nothing new: no births",
    "K of all in memory",
    "cpu s",
    "first chunk",
    "K given cpu s",
    "first chunk",
    "ratio of the others",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)}; all by default")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first set: others than those looked at")
    parser.add_argument("--whole", type=int, default=20, help="sets that are also fitted in memory, as a whole")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of fits that have not converged
    for name in () if given.table else given.kinds or KINDS:
        measure(name, range(given.first, given.first + given.sets), given.whole)
    LINES.write(markdown(HEADINGS, [row(name) for name in KINDS]))


if __name__ == "__main__":
    main()
