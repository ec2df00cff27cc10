"""Numbers of measurements and energy channels in; gamma spectra of sources before a background, and the mixtures, out.

A source's spectrum is the sum over its lines of a full-energy peak, broadened as in a sodium-iodide detector (the width grows as
the root of the energy, 7 % at 662 keV), and of a continuum of Compton scattering that ends at the edge
E · 2ε / (1 + 2ε), ε = E / 511 keV. The background has a continuum that falls with the energy, the 1461 keV line of potassium-40
and the lines of the thorium and uranium series. A measurement is Poisson counts over channels, a multinomial given its total.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ISOTOPES", "Spectra", "make_spectra"]

Floats = npt.NDArray[np.float64]

# keV and photons per hundred decays, rounded; the weaker lines are left out.
ISOTOPES: dict[str, tuple[tuple[float, float], ...]] = {
    "Cs-137": ((661.7, 85.1),),
    "Co-60": ((1173.2, 99.9), (1332.5, 100.0)),
    "Ba-133": ((81.0, 32.9), (276.4, 7.2), (302.9, 18.3), (356.0, 62.1), (383.8, 8.9)),
    "Am-241": ((59.5, 35.9),),
    "I-131": ((284.3, 6.1), (364.5, 81.5), (637.0, 7.2)),
    "Eu-152": ((121.8, 28.5), (344.3, 26.6), (778.9, 12.9), (964.1, 14.5), (1112.1, 13.7), (1408.0, 20.9)),
}
NATURAL = (
    (1460.8, 40.0),  # potassium-40
    (238.6, 14.0), (583.2, 10.0), (911.2, 8.0), (2614.5, 11.0),  # thorium series
    (295.2, 5.0), (351.9, 10.0), (609.3, 12.0), (1120.3, 4.0), (1764.5, 4.0),  # uranium series
)  # fmt: skip
RESOLUTION, ELECTRON = 0.07, 511.0
FIRST, LAST = 30.0, 3000.0  # keV
CONTINUUM, FALL = 0.75, 280.0  # the part of the background without lines, and the keV over which it falls by e


class Spectra(NamedTuple):
    """Gamma spectra, and what made them.

    Attributes
    ----------
    counts : int64 [measurements, channels]
    energies : array [channels], the middle of each channel in keV
    names : "background", then the isotopes
    templates : array [1 + isotopes, channels], the spectrum of each, which sums to 1
    shares : array [measurements, 1 + isotopes], the expected part of the counts from each, which sum to 1
    """

    counts: npt.NDArray[np.int64]
    energies: Floats
    names: tuple[str, ...]
    templates: Floats
    shares: Floats


def make_spectra(
    n_spectra: int = 500,
    n_channels: int = 256,
    isotopes: tuple[str, ...] = ("Cs-137", "Co-60", "Ba-133", "Am-241"),
    *,
    counts: float = 1000.0,
    strength: tuple[float, float] = (0.05, 0.95),
    with_source: float = 0.7,
    seed: int = 0,
) -> Spectra:
    """Gamma spectra with known sources.

    Parameters
    ----------
    n_spectra, n_channels : int
    isotopes : names in `ISOTOPES`
    counts : float
        Expected counts of a measurement.
    strength : (float, float)
        The part of the counts that comes from a source is uniform between these. If all are weak, every spectrum is mostly
        background, and no method can tell from the counts alone how much of it belongs to the sources.
    with_source : float
        Chance that a measurement has a source: one isotope, or one time in four two of them; else it is background only.
    seed : int
        The same numbers give the same data.

    Examples
    --------
    >>> spectra = make_spectra(n_spectra=3, with_source=0.0)
    >>> spectra.names
    ('background', 'Cs-137', 'Co-60', 'Ba-133', 'Am-241')
    >>> spectra.shares[:, 0].tolist()
    [1.0, 1.0, 1.0]
    >>> caesium = spectra.templates[1]
    >>> bool(abs(spectra.energies[caesium.argmax()] - 661.7) < 12)
    True
    """
    if unknown := [name for name in isotopes if name not in ISOTOPES]:
        raise ValueError(f"isotopes has {unknown[0]!r}; known are {', '.join(ISOTOPES)}")
    if not counts > 0:
        raise ValueError(f"counts must be > 0, got {counts!r}")
    rng = np.random.default_rng(seed)
    edges = np.linspace(FIRST, LAST, n_channels + 1)
    energies = (edges[1:] + edges[:-1]) / 2
    templates = np.stack([_background(energies), *(_source(ISOTOPES[name], energies) for name in isotopes)])
    shares = _shares(rng, n_spectra, len(isotopes), strength, with_source)
    table = rng.poisson(counts * (shares @ templates))
    return Spectra(table.astype(np.int64), energies, ("background", *isotopes), templates, shares)


def _shares(rng: np.random.Generator, n: int, n_isotopes: int, strength: tuple[float, float], chance: float) -> Floats:
    """Background in all, and in some one or two isotopes."""
    has = (rng.random(n) < chance) & (n_isotopes > 0)
    total = np.where(has, rng.uniform(*strength, n), 0.0)
    first = np.where(rng.random(n) < 0.25, rng.uniform(0.3, 0.7, n), 1.0)  # the first isotope's part of the source
    shares = np.zeros((n, 1 + n_isotopes))
    shares[:, 0] = 1.0 - total
    for row in np.flatnonzero(has):
        chosen = 1 + rng.permutation(n_isotopes)[:2]
        parts = (first[row], 1.0 - first[row]) if len(chosen) == 2 else (1.0,)
        shares[row, chosen] = total[row] * np.array(parts)
    return shares


def _source(lines: tuple[tuple[float, float], ...], energies: Floats) -> Floats:
    spectrum = np.zeros_like(energies)
    for energy, intensity in lines:
        # Peaks are seen less and scattering more as photons get harder; the exponent is that of a small crystal, roughly.
        peak = (energy / 100.0) ** -0.7 if energy > 100.0 else 1.0
        sigma = RESOLUTION * np.sqrt(energy * 661.7) / 2.355
        bell = np.exp(-0.5 * ((energies - energy) / sigma) ** 2)
        ratio = 2.0 * energy / ELECTRON
        edge = energy * ratio / (1.0 + ratio)
        flat = (1.0 + (energies / edge) ** 2) / (1.0 + np.exp((energies - edge) / sigma))
        spectrum += intensity * (peak * bell / bell.sum() + (1.0 - peak) * 0.6 * flat / flat.sum())
    return np.asarray(spectrum / spectrum.sum(), dtype=np.float64)


def _background(energies: Floats) -> Floats:
    smooth = np.exp(-energies / FALL) + 0.02 * np.exp(-energies / (5.0 * FALL))
    return np.asarray(CONTINUUM * smooth / smooth.sum() + (1.0 - CONTINUUM) * _source(NATURAL, energies))
