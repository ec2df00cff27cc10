"""Several kinds of observations at once: moments of all their q in, log weights of states and messages out.

log b_tk = Σ_tracks log b_tk(track)                     given the state, tracks are independent
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.kernels.hmm.emissions import TABLE
from natgrad.models.gaussians import NO_CODES, Observed
from natgrad.models.hmm.track import Moments, Part, Track, Weighed, observed, plain_part

__all__ = ["Moments", "Part", "Track", "Tracks", "Weighed", "observed_by", "own_of", "parts_of", "reordered", "sum_of"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]


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
