"""Compute log weights of the states and messages for several kinds of observations at once, by windows of times.

    log b_tk = Σ_tracks log b_tk(track)                     given the state, tracks are independent
    mixture       log b_tk = log Σ_m exp(E log w_km + E log p(y_t | k, m))
    Student's t   log b_tk = log ∫ Gamma(u; ν/2, ν/2) exp(E log N(y_t | μ_k, (u Λ_k)⁻¹)) du
                  E[u_t | k] = (ν + d) / (ν + E (y_t − μ_k)ᵀ Λ_k (y_t − μ_k))

A track is an emission (`natgrad.models.hmm.emissions`) of some columns, and what it may have besides: m components in each state,
and scales that make its tails heavy. Both are local variables, summed and integrated out together with the state:
q(x_t, m_t, u_t) is one factor, and log Z less ⟨messages, moments⟩ is what a sequence adds to the bound.

The weights of a time are a row of a table that no other time has, so the kernels of codes do the rest: what they add up for a
code is then q(x_t). A state may be several states of the chain (durations, inputs), which share its emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.sequences import read_only
from natgrad.families import Dirichlet, Family
from natgrad.kernels.hmm.emissions import BY_COLUMN, TABLE
from natgrad.kernels.hmm.plain import statistics
from natgrad.models.gaussians import NO_CODES, Observed
from natgrad.models.hmm.autoregression import Autoregressions
from natgrad.models.hmm.emissions import EMISSIONS
from natgrad.models.hmm.forward_backward import Counts, Weights

if TYPE_CHECKING:
    from natgrad.models.hmm.parts import Segment, SubchainBatch, Subchains

__all__ = [
    "Moments",
    "Part",
    "Track",
    "TrackWeights",
    "Tracks",
    "Weighed",
    "copied",
    "observed",
    "observed_by",
    "own_of",
    "parts_of",
    "pieces",
    "plain_part",
    "reordered",
    "sum_of",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
# Where "log" is among the statistics of a Gaussian with its precision: the one that scales leave alone.
LOG = 3
Ints = npt.NDArray[np.int64]
# Times whose weights are made at once, where sequences end often enough.
MOST_TIMES = 500_000


@final
class Tracks:
    """Tracks that are independent given the state: an emission of several blocks."""

    kind, origin = TABLE, None

    def __init__(self, n_states: int, tracks: Sequence[Mapping[str, Any]]) -> None:
        self.n_states = n_states
        self.tracks = tuple(Track(**given) for given in tracks)
        ends = np.cumsum([track.n_values for track in self.tracks])
        self._places = [
            slice(int(end) - track.n_values, int(end)) for end, track in zip(ends, self.tracks, strict=True)
        ]

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was made of."""
        return {"n_states": self.n_states, "tracks": [track.arguments for track in self.tracks]}

    def with_states(self, n_states: int) -> Tracks:
        """The same of another number of states."""
        made = self.arguments
        for track in made["tracks"]:
            track["arguments"] = {**track["arguments"], "n_states": n_states * track["n_components"]}
        return Tracks(n_states, made["tracks"])

    @property
    def order(self) -> int:
        """How many observations before one it depends on."""
        return max(track.order for track in self.tracks)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """All blocks."""
        return {name: part for track in self.tracks for name, part in track.parts.items()}

    def observe(self, X: Array, ends: Array, held_out: bool = False) -> Observed:
        """Data [T, D], checked: the values of all tracks side by side."""
        seen = [track.observe(X, ends, held_out) for track in self.tracks]
        return Observed(NO_CODES, np.hstack([values for values, _ in seen]), None, sum(base for _, base in seen))

    def weighed(self, values: Array, mu: Moments) -> list[Weighed]:
        """Every track under its moments."""
        return [track.weighed(values[:, place], mu) for track, place in self.each()]

    def logs(self, values: Array, mu: Moments) -> Floats:
        """Log b_tk [T, K]."""
        return sum_of(self.weighed(values, mu))

    def messages(self, at: list[Weighed], states: Floats) -> dict[str, Stats]:
        """What observations with these q(x_t) [T, K] tell all blocks."""
        return self._merged(track.messages(own, states) for track, own in zip(self.tracks, at, strict=True))

    def drawn(self, values: Array, mu: Moments, states: Array, rng: np.random.Generator) -> dict[str, Stats]:
        """What they tell with all local variables drawn given states [T]."""
        at = self.weighed(values, mu)
        return self._merged(track.drawn(own, states, rng) for track, own in zip(self.tracks, at, strict=True))

    def point(self, lam: Moments) -> dict[str, Stats]:
        """Moments of a point mass at the mean of q."""
        return self._merged(track.point(lam) for track in self.tracks)

    def draw(self, lam: Moments, states: Array, rng: np.random.Generator, before: Array | None = None) -> Array:
        """An observation for each state, at the mean of q, columns in their order."""
        width = 1 + max(column for track in self.tracks for column in track.columns)
        out = np.zeros((len(states), width))
        for track in self.tracks:
            own = None if before is None else before[:, list(track.columns)]
            out[:, list(track.columns)] = track.draw(lam, states[None], rng, own)[0]
        return out

    def flat(self, told: Mapping[str, Stats]) -> Floats:
        """Messages one after the other, so that they can be added up as one array."""
        return np.concatenate([np.ravel(part) for name in self.parts for part in told[name]])

    def unflat(self, sums: Floats) -> dict[str, Stats]:
        """The messages of such an array."""
        out, at = {}, 0
        for name, part in self.parts.items():
            own = []
            for prior, n_event in zip(part.prior, part.family.stat_ndims, strict=True):
                shape = (*part.shape, *np.shape(prior)[np.ndim(prior) - n_event :])
                size = int(np.prod(shape))
                own.append(sums[at : at + size].reshape(shape))
                at += size
            out[name] = tuple(own)
        return out

    def each(self) -> Any:
        """Tracks, and where their values are."""
        return zip(self.tracks, self._places, strict=True)

    def _merged(self, found: Any) -> dict[str, Stats]:
        return {name: parts for own in found for name, parts in own.items()}


def sum_of(at: list[Weighed]) -> Floats:
    """Log b_tk [T, K] of all tracks."""
    out = at[0].logs
    for one in at[1:]:
        out = out + one.logs
    return out


def observed_by(emission: Any, X: Array, ends: Array, held_out: bool) -> Observed:
    """Data [T, D] as an emission reads them, plain or of several tracks; checked."""
    if isinstance(emission, Tracks):
        return emission.observe(X, ends, held_out)
    return observed(emission, X, ends, held_out)


def parts_of(emission: Any) -> dict[str, Part]:
    """The blocks of an emission, plain or of several tracks."""
    if isinstance(emission, Tracks):
        return emission.parts
    return {"emission": plain_part(emission)}


def own_of(emission: Any, parts: Moments) -> Any:
    """What an emission takes of natural parameters or moments of all blocks."""
    return parts if isinstance(emission, Tracks) else parts["emission"]


def reordered(part: Part, stats: Stats, order: Array) -> Stats:
    """Statistics of a block with the states in another order, or some of them."""
    return tuple(
        np.take(p, order, axis=own[0]) if own else np.asarray(p) for p, own in zip(stats, part.axes, strict=True)
    )


class Part(NamedTuple):
    """A block of global variables: its family, plates, prior, and the axes of each statistic along which states lie."""

    family: Family
    plates: tuple[str, ...]
    shape: tuple[int, ...]
    prior: Stats
    axes: tuple[tuple[int, ...], ...]
    origin: Floats | None = None


class Weighed(NamedTuple):
    """Some times under moments: log b_tk [T, K]; of mixtures the shares of components [T, K, m]; of heavy tails E[u] [T, L];
    and statistics [T, F] or codes [T].
    """  # noqa: D205

    logs: Floats
    shares: Floats | None
    scales: Floats | None
    seen: Array


@final
class Track:
    """An emission of some columns; L = K · m of its states are the components of K states.

    Parameters
    ----------
    name : str
        Of its block.
    columns : whole numbers
        Of X.
    kind, arguments : the name of the emission, and what it is made of
    n_components : int, m
    weight_prior : float
        Concentration of the components' weights.
    dof : float, optional, ν
        Degrees of freedom of Student's t.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[int],
        kind: str,
        arguments: Mapping[str, Any],
        n_components: int = 1,
        weight_prior: float = 1.0,
        dof: float | None = None,
    ) -> None:
        self.name, self.columns = name, tuple(columns)
        self.kind, self.n_components, self.weight_prior = kind, n_components, weight_prior
        self.dof = None if dof is None else float(dof)
        self.emission: Any = EMISSIONS[kind](**arguments)
        self.n_states = int(arguments["n_states"]) // n_components

    @property
    def arguments(self) -> dict[str, Any]:
        """What it is made of."""
        return {
            "name": self.name, "columns": list(self.columns), "kind": self.kind, "arguments": self.emission.arguments,
            "n_components": self.n_components, "weight_prior": self.weight_prior, "dof": self.dof,
        }  # fmt: skip

    @property
    def order(self) -> int:
        """How many observations before one it depends on."""
        return self.emission.order if isinstance(self.emission, Autoregressions) else 0

    @property
    def _width(self) -> int:
        """Entries of an observation."""
        own = self.emission
        return int(own.n_outputs if isinstance(own, Autoregressions) else own.n_columns)

    @property
    def weights_name(self) -> str:
        """Of the block of the components' weights."""
        return f"{self.name}_weights"

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Its blocks."""
        emission, m = self.emission, self.n_components
        shape, plates = emission.shape, ("state", "column")[: len(emission.shape)]
        if m == 1:
            return {self.name: plain_part(emission)}
        wide = tuple(np.broadcast_to(p, (m * self.n_states, *np.shape(p)[1:])) for p in emission.prior)
        each = Part(
            emission.family, ("state", "component", *plates[1:]), (self.n_states, m, *shape[1:]), self._apart(wide),
            emission.axes, emission.origin,
        )  # fmt: skip
        prior = Dirichlet().natural(concentration=np.full((1, m), self.weight_prior))
        return {self.name: each, self.weights_name: Part(Dirichlet(), ("state",), (self.n_states,), prior, ((0,),))}

    @property
    def n_values(self) -> int:
        """Columns of the data as it reads them."""
        return self.emission.n_values if isinstance(self.emission, Autoregressions) else len(self.columns)

    def observe(self, X: Array, ends: Array, held_out: bool) -> tuple[Floats, float]:
        """Its columns of X as numbers [T, n_values], checked, and the sum of log base measures."""
        own = np.ascontiguousarray(X[:, list(self.columns)])
        try:
            seen: Observed = observed(self.emission, own, ends, held_out)
        except ValueError as reason:
            raise ValueError(
                f"of the emission {self.name!r}, X being its columns {list(self.columns)}: {reason}"
            ) from None
        values = seen.values
        if len(seen.codes):
            values = own if seen.patterns is not None else seen.codes[:, None]
        return np.asarray(values, dtype=np.float64), seen.base

    # -- given moments --

    def weighed(self, values: Floats, mu: Moments) -> Weighed:
        """Log weights of the states at all times, and what messages are made of."""
        moments, seen = self.together(mu[self.name]), self._seen(values)
        forms = self.emission.weights(moments)
        if self.emission.kind == TABLE:
            return self._mixed(np.ascontiguousarray(forms.T)[seen], mu, None, seen)
        logs = seen @ forms.T
        if self.dof is None:
            return self._mixed(logs, mu, None, seen)
        constant = seen @ self.emission.weights((*(np.zeros_like(p) for p in moments[:LOG]), moments[LOG])).T
        # Of a square: what is negative is rounding.
        square = np.maximum((2.0 / self.dof) * (constant - logs), 0.0)
        shape = 0.5 * (self.dof + self._n_seen(seen))[:, None]
        rest = sp.gammaln(shape) - sp.gammaln(0.5 * self.dof) - (shape - 0.5 * self.dof) * np.log(0.5 * self.dof)
        heavy = constant + rest - shape * np.log1p(square)
        return self._mixed(heavy, mu, (2.0 / self.dof) * shape / (1.0 + square), seen)

    def _mixed(self, logs: Floats, mu: Moments, scales: Floats | None, seen: Array) -> Weighed:
        """Components [T, L] summed out."""
        if self.n_components == 1:
            return Weighed(logs, None, scales, seen)
        joint = logs.reshape(len(logs), self.n_states, -1) + np.asarray(mu[self.weights_name][0])
        top = joint.max(2, keepdims=True)
        shares = np.exp(joint - top)
        total = shares.sum(2, keepdims=True)
        return Weighed((top + np.log(total))[:, :, 0], shares / total, scales, seen)

    def messages(self, at: Weighed, states: Floats) -> dict[str, Stats]:
        """What observations with these q(x_t) [T, K] tell its blocks."""
        if at.shares is None:
            return self._told(at.seen, at.scales, states)
        return self._told(at.seen, at.scales, (states[:, :, None] * at.shares).reshape(len(states), -1))

    def drawn(self, at: Weighed, states: Array, rng: np.random.Generator) -> dict[str, Stats]:
        """What they tell with components and scales drawn given states [T]."""
        chosen, rows, scales = states, np.arange(len(states)), at.scales
        if at.shares is not None:
            shares = np.cumsum(at.shares[rows, states], axis=1)
            chosen = states * self.n_components + (rng.random(len(rows))[:, None] > shares[:, :-1]).sum(1)
        member = np.zeros((len(rows), self.n_states * self.n_components))
        member[rows, chosen] = 1.0
        if scales is not None and self.dof is not None:
            # u ~ Gamma((ν + d) / 2, …), whose mean is known; of what is missing nothing is told.
            shape = 0.5 * (self.dof + self._n_seen(at.seen))
            scales = scales * (rng.gamma(shape) / shape)[:, None]
        return self._told(at.seen, scales, member)

    def clustered(self, values: Floats, member: Floats) -> dict[str, Stats]:
        """What they tell if memberships of components [T, L] are known, and scales are 1."""
        return self._told(self._seen(values), None, member)

    def _told(self, seen: Array, scales: Floats | None, member: Floats) -> dict[str, Stats]:
        emission = self.emission
        if emission.kind == TABLE:
            sums = np.zeros((emission.n_categories + 2, member.shape[1]))
            np.add.at(sums, seen, member)
            told = emission.message(sums)
        elif scales is None:
            told = emission.message(seen.T @ member)
        else:
            plain = emission.message(seen.T @ member)
            told = (*emission.message(seen.T @ (member * scales))[:LOG], plain[LOG])
        if self.n_components == 1:
            return {self.name: told}
        weights = member.reshape(len(member), self.n_states, -1).sum(0)
        return {self.name: self._apart(told), self.weights_name: (weights,)}

    def _seen(self, values: Floats) -> Array:
        """Statistics [T, F], or codes [T]."""
        if self.emission.kind == TABLE:
            return values[:, 0].astype(np.int64)
        return np.asarray(statistics(self.emission.kind, values))

    def _n_seen(self, seen: Array) -> Floats:
        """Entries of each time that are there."""
        if self.emission.kind == BY_COLUMN:
            return np.asarray(seen[:, 0::3].sum(1))
        return np.asarray(seen[:, 0] * self._width)

    def _apart(self, parts: Stats) -> Stats:
        """[L, …] as [K, m, …]."""
        return tuple(np.reshape(part, (-1, self.n_components, *np.shape(part)[1:])) for part in parts)

    def together(self, parts: Stats) -> Stats:
        """[K, m, …] as [L, …]."""
        if self.n_components == 1:
            return parts
        return tuple(np.reshape(part, (-1, *np.shape(part)[2:])) for part in parts)

    # -- at the mean of q --

    def point(self, lam: Moments) -> dict[str, Stats]:
        """Moments of a point mass at the mean of q."""
        found = {self.name: self.emission.point(self.together(lam[self.name]))}
        if self.n_components > 1:
            found[self.name] = self._apart(found[self.name])
            weights = Dirichlet()
            found[self.weights_name] = weights.stats_of(weights.mean(lam[self.weights_name]))
        return found

    def leaf_shares(self, lam: Moments) -> Floats:
        """Mean weights of the components [K, m]."""
        if self.n_components == 1:
            return np.ones((self.n_states, 1))
        return np.asarray(Dirichlet().mean(lam[self.weights_name]))

    def draw(self, lam: Moments, states: Array, rng: np.random.Generator, before: Array | None = None) -> Array:
        """Observations [n, T, D] of paths of states [n, T]; ``before`` are rows that came earlier, where they matter."""
        own, leaves, scales = self.together(lam[self.name]), states, None
        if self.n_components > 1:
            shares = np.cumsum(self.leaf_shares(lam), axis=1)[states, :-1]
            leaves = states * self.n_components + (rng.random(states.shape)[..., None] > shares).sum(-1)
        if self.dof is not None:
            scales = rng.gamma(0.5 * self.dof, 2.0 / self.dof, states.shape)
        if isinstance(self.emission, Autoregressions):
            return self.emission.draw_after(own, leaves, rng, before, scales)
        drawn = np.asarray(self.emission.draw(own, leaves.ravel(), rng))
        if scales is not None:
            centre = self.emission.located(own).means[leaves.ravel()]
            drawn = centre + (drawn - centre) / np.sqrt(scales.ravel())[:, None]
        return drawn.reshape(*states.shape, -1)


def observed(emission: Any, X: Array, ends: Array, held_out: bool) -> Observed:
    """Data [T, D] as a plain emission reads them, checked."""
    if isinstance(emission, Autoregressions):  # reads what came before, too
        return emission.observe(X, ends)
    seen: Observed = emission.observe(X, unseen=held_out) if emission.kind == TABLE else emission.observe(X)
    return seen


def plain_part(emission: Any) -> Part:
    """The block of a plain emission."""
    plates, axes = ("state", "column")[: len(emission.shape)], emission.axes[: len(emission.prior)]
    return Part(emission.family, plates, emission.shape, emission.prior, axes, emission.origin)


class TrackWeights(NamedTuple):
    """What a part of a step needs: weights of the chain, and the moments of the emissions.

    ``states`` [S] are the numbers of the states that the S states of the chain stand for; None if they are all, one for one.
    ``inputs`` [S] are the categories of the input at which they are possible; that of a time is the last of its values.
    """

    initial: Floats
    transition: Floats
    tracks: Tracks
    mu: Moments
    states: Ints | None = None
    inputs: Ints | None = None

    def weighed(self, segment: Segment) -> list[Weighed]:
        """Every track at all times of a segment."""
        return self.tracks.weighed(segment.values, self.mu)

    def on(self, segment: Segment, at: list[Weighed] | None = None) -> Weights:
        """The weights of all times of a segment; ``at`` are its tracks, if they are known."""
        logs = sum_of(self.weighed(segment) if at is None else at)
        labels = segment.labels
        if self.states is not None:
            logs = logs[:, self.states]
            if len(labels):  # several states of the chain may have one label
                known = np.asarray(labels)[:, None]
                logs = np.where((known < 0) | (known == self.states), logs, -np.inf)
                labels = labels[:0]
        if self.inputs is not None:
            logs = np.where(np.asarray(segment.values[:, -1:]) == self.inputs, logs, -np.inf)
        table = np.ascontiguousarray(logs)
        peak = table.max(1)
        with np.errstate(
            invalid="ignore"
        ):  # of a time that no state can explain: the caller sees that log Z is not finite
            likelihood = np.exp(table - np.where(np.isfinite(peak), peak, 0.0)[:, None])
        codes = read_only(np.arange(len(table), dtype=np.int32))
        none = np.zeros((len(self.initial), 0))
        return Weights(
            self.initial, self.transition, TABLE, codes, table, likelihood, peak, np.zeros((0, 0)), none,
            read_only(labels), True,
        )  # fmt: skip

    def told(self, at: list[Weighed], counts: Counts) -> Counts:
        """Counts whose sums are q of the chain's states at all times [T, S], with what these tell the emissions instead."""
        return counts._replace(sums=self.tracks.flat(self.tracks.messages(at, self.whole(counts.sums))))

    def whole(self, q: Floats) -> Floats:
        """Probabilities of the chain's states [T, S] as those of the states [T, K]."""
        if self.states is None:
            return q
        out = np.zeros((len(q), self.tracks.n_states))
        for place, state in enumerate(self.states):
            out[:, state] += q[:, place]
        return out


def pieces(segment: Segment, starts: Ints, lengths: Ints) -> Iterator[tuple[Segment, Ints, Ints]]:
    """Sequences of a segment, some at a time, as segments of their own."""
    if len(starts) == 0:
        return
    number = (np.cumsum(lengths) - lengths) // MOST_TIMES
    for own in np.split(np.arange(len(starts)), np.flatnonzero(np.diff(number)) + 1):
        yield _taken(segment, starts[own], lengths[own]), np.cumsum(lengths[own]) - lengths[own], lengths[own]


def copied(segment: Segment, chosen: SubchainBatch, how: Subchains) -> tuple[Segment, SubchainBatch]:
    """The times that subchains and their buffers reach, a copy for each; where a sequence goes on, its end is out of reach."""
    first = np.maximum(chosen.low, chosen.start - how.reach)
    last = np.minimum(chosen.high, chosen.start + how.length + how.reach)
    begins, lengths = [first, chosen.short], [last - first, chosen.short_lengths]
    if chosen.head is not None:
        begins.append(np.array([chosen.head[0]]))
        lengths.append(np.array([min(chosen.head[1], how.length + 2 * how.reach)]))
    begin, length = np.concatenate(begins).astype(np.int64), np.concatenate(lengths).astype(np.int64)
    at = np.cumsum(length) - length
    n, m = len(first), len(chosen.short)
    head = None if chosen.head is None else (int(at[n + m]), int(length[n + m]))
    batch = chosen._replace(
        start=at[:n] + chosen.start - first, low=at[:n] - (first > chosen.low),
        high=at[:n] + length[:n] + (last < chosen.high), short=at[n : n + m], head=head,
    )  # fmt: skip
    return _taken(segment, begin, length), batch


def _taken(segment: Segment, starts: Ints, lengths: Ints) -> Segment:
    """Stretches of a segment one after the other."""
    total = int(lengths.sum())
    if len(starts) and np.array_equal(starts[1:], (starts + lengths)[:-1]):
        rows: Any = slice(int(starts[0]), int(starts[0]) + total)
    else:
        rows = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)
    labels = segment.labels[rows] if len(segment.labels) else segment.labels
    return segment._replace(values=np.asarray(segment.values[rows]), labels=labels)
