"""Numbers of individuals, loci and populations in; genotypes 0/1/2 of admixed individuals, and their ancestry, out.

The allele frequencies follow Balding and Nichols (1995): at each locus p_l ~ U(0.05, 0.95) before the populations parted, then

    f_kl ~ Beta(p_l (1 − F) / F, (1 − p_l) (1 − F) / F),   with mean p_l and variance F p_l (1 − p_l)

where F is Wright's fixation index. An individual has shares θ_i ~ Dir(α), and each of its two copies of a locus comes from a
population drawn from them (Pritchard, Stephens and Donnelly, 2000): g_il ~ Binomial(2, Σ_k θ_ik f_kl). Loci are independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Ancestry", "make_ancestry"]

Floats = npt.NDArray[np.float64]
MISSING = -1


class Ancestry(NamedTuple):
    """Genotypes of admixed individuals, and what made them.

    Attributes
    ----------
    genotypes : int8 [individuals, loci], copies of the counted allele: 0, 1 or 2; −1 where missing
    ancestry : array [individuals, K], θ: the shares of the ancestral populations, which sum to 1
    frequencies : array [K, loci], f: the counted allele's frequency in each population
    ancestral : array [loci], p: its frequency before the populations parted
    """

    genotypes: npt.NDArray[np.int8]
    ancestry: Floats
    frequencies: Floats
    ancestral: Floats


def make_ancestry(
    n_individuals: int = 300,
    n_loci: int = 2000,
    n_populations: int = 3,
    *,
    fst: float = 0.1,
    concentration: float = 0.3,
    missing: float = 0.0,
    seed: int = 0,
) -> Ancestry:
    """Genotypes of admixed individuals with known ancestry.

    Parameters
    ----------
    n_individuals, n_loci, n_populations : int
    fst : float in (0, 1)
        F: how far apart the populations are; 0.1 is about that of continents.
    concentration : float
        α of every population: small values give individuals of one population, large ones even mixtures.
    missing : float
        Chance that a genotype is missing.
    seed : int
        The same numbers give the same data.

    Examples
    --------
    >>> data = make_ancestry(n_individuals=5, n_loci=40, n_populations=2)
    >>> data.genotypes.shape, sorted(set(data.genotypes.ravel().tolist()))
    ((5, 40), [0, 1, 2])
    >>> data.ancestry.sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if not concentration > 0:
        raise ValueError(f"concentration must be > 0, got {concentration!r}")
    rng = np.random.default_rng(seed)
    ancestral = rng.uniform(0.05, 0.95, n_loci)
    drift = (1.0 - fst) / fst
    frequencies = rng.beta(ancestral * drift, (1.0 - ancestral) * drift, (n_populations, n_loci))
    ancestry = rng.dirichlet(np.full(n_populations, concentration), n_individuals)
    # Rounding may carry a mixture of frequencies of 1 a hair above 1.
    genotypes = rng.binomial(2, np.minimum(ancestry @ frequencies, 1.0)).astype(np.int8)
    if missing:
        genotypes[rng.random(genotypes.shape) < missing] = MISSING
    return Ancestry(genotypes, ancestry, frequencies, ancestral)
