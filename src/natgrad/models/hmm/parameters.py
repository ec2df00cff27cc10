"""What states emit, by the names of the field: λ in; means, rates or probabilities, and how many are free, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.tracks import Track, Tracks

__all__ = ["n_free", "named_parameters"]

Array = npt.NDArray[Any]
NAMES = {"Gamma": "rates", "Beta": "probabilities", "Dirichlet": "probabilities"}


def named_parameters(emission: Any, lam: Any) -> dict[str, Any]:
    """Expectations under q: {"means", "covariances"}, {"rates"} or {"probabilities"}; of several tracks such a dict of each."""
    if isinstance(emission, Tracks):
        return {track.name: _of_track(track, lam) for track in emission.tracks}
    name = NAMES.get(emission.family.name)
    if name is not None:
        return {name: np.asarray(emission.family.mean(lam))}
    return dict(emission.named(lam)) if hasattr(emission, "named") else _gaussian(emission, lam)


def n_free(emission: Any, lam: Any) -> int:
    """Free numbers of the emissions: shares that sum to one have one less, matrices are symmetric."""
    if isinstance(emission, Tracks):
        chances = sum(track.n_states * (track.n_components - 1) for track in emission.tracks)
        return chances + sum(n_free(track.emission, track.together(lam[track.name])) for track in emission.tracks)
    named = named_parameters(emission, lam)
    total = 0
    for name, values in named.items():
        if name == "covariances" and not emission.by_column:
            d = values.shape[-1]
            total += values.size // d**2 * d * (d + 1) // 2
        else:
            total += values.size - (len(values) if emission.family.name == "Dirichlet" else 0)
    return int(total)


def _gaussian(emission: Any, lam: Any) -> dict[str, Array]:
    means, covariances, _ = emission.located(lam)
    return {"means": np.asarray(means), "covariances": np.asarray(covariances)}


def _of_track(track: Track, lam: Any) -> dict[str, Array]:
    named = named_parameters(track.emission, track.together(lam[track.name]))
    if track.n_components == 1:
        return named
    apart = {name: values.reshape(-1, track.n_components, *values.shape[1:]) for name, values in named.items()}
    return {"weights": track.leaf_shares(lam), **apart}
