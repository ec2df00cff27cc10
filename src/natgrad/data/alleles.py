"""Count the alleles of genotypes 0/1/2 for an admixture model, and find their frequencies.

An individual is a document, and each of its two copies of a locus is a word: one of the two alleles. Populations are topics
(Pritchard, Stephens and Donnelly, 2000). LDA gives a population one Dirichlet over all 2 L alleles; the model of that paper has a
Beta for each locus, f_kl, instead. As every individual has two copies of every locus, the share of a locus in a topic is 1/L in
the data, and φ_k(l, a) / Σ_a φ_k(l, a) estimates f_kl: `allele_frequencies`. Missing genotypes are left out; a locus at which
many are missing weighs less. That each has two copies of every locus, LDA does not know; ``inference="vb"`` keeps its fit
away from a sampler, which makes more of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus, as_corpus

__all__ = ["allele_frequencies", "genotypes"]

# As PLINK writes text (9), as most arrays have it (−1), and as bed-reader reads small whole numbers.
MISSING = (-1, 9, -127)


def genotypes(G: Any, names: Sequence[str] | None = None) -> Corpus:
    """A corpus of alleles: individual i has g copies of word 2l and 2 − g of word 2l + 1, for g = G[i, l].

    Parameters
    ----------
    G : array [individuals, loci] of 0, 1 or 2 copies of the counted allele; −1, 9, −127 or NaN where missing; or a Dataset of
        sgkit with ``call_genotype``, whose alleles other than 0 are counted, and ``variant_id`` if it has names
    names : the L names of the loci, optional; by default their numbers. The words are "name alt" and "name ref".

    Examples
    --------
    >>> corpus = genotypes([[0, 2], [1, -1]], names=["rs1", "rs2"])
    >>> corpus.to_sparse().toarray().astype(int).tolist()
    [[0, 2, 2, 0], [1, 1, 0, 0]]
    >>> corpus.vocabulary.tolist()
    ['rs1 alt', 'rs1 ref', 'rs2 alt', 'rs2 ref']
    """
    if hasattr(G, "data_vars"):
        G, names = _from_sgkit(G, names)
    table = np.asarray(G.toarray() if hasattr(G, "toarray") else G)
    if table.ndim != 2:
        raise ValueError(f"G must have two axes, individuals and loci, got shape {table.shape}")
    if table.dtype.kind not in "iufb":
        raise TypeError(f"G must be numbers 0, 1 or 2, got an array of {table.dtype}")
    missing = np.isin(table, MISSING) | np.isnan(table)
    if len(bad := np.argwhere(~missing & ~np.isin(table, (0, 1, 2)))):
        i, locus = bad[0]
        raise ValueError(
            f"G must be 0, 1 or 2, or −1, 9 or NaN where missing, but G[{i}, {locus}] = {table[i, locus]} ({len(bad)} such): "
            "doses must be rounded, loci with more than two alleles left out"
        )
    if names is not None and len(names) != table.shape[1]:
        raise ValueError(f"names has {len(names)} loci and G has {table.shape[1]}")
    counts = np.zeros((*table.shape, 2))
    counts[..., 0] = np.where(missing, 0, table)
    counts[..., 1] = np.where(missing, 0, 2 - counts[..., 0])
    loci = range(table.shape[1]) if names is None else names
    words = [f"{locus} {allele}" for locus in loci for allele in ("alt", "ref")]
    return as_corpus(scipy.sparse.csr_array(counts.reshape(len(table), -1)), words)


def _from_sgkit(data: Any, names: Sequence[str] | None) -> tuple[npt.NDArray[np.int64], Sequence[str] | None]:
    """Copies of the alternative allele of each call, −1 where one of the two is missing; and the names of the loci."""
    if "call_genotype" not in data:
        raise ValueError(f"G has no call_genotype; it has {', '.join(map(str, data.data_vars))}")
    calls = np.asarray(data["call_genotype"].values)  # [loci, individuals, 2]
    if calls.ndim != 3 or calls.shape[2] != 2:
        raise ValueError(f"call_genotype must be [variants, samples, 2], two alleles a call, got shape {calls.shape}")
    copies = np.where((calls < 0).any(axis=2), -1, (calls > 0).sum(axis=2)).T
    if names is None and "variant_id" in data:
        names = [str(name) for name in data["variant_id"].values]
    return copies, names


def allele_frequencies(topics: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The counted allele's frequency [K, L] in each population, of topics [K, 2 L] fitted to `genotypes`.

    Examples
    --------
    >>> allele_frequencies([[0.1, 0.3, 0.4, 0.2]]).round(3).tolist()
    [[0.25, 0.667]]
    """
    array = np.asarray(topics, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] % 2:
        raise ValueError(f"topics must be [populations, 2 · loci], got shape {array.shape}")
    pairs = array.reshape(len(array), -1, 2)
    return np.asarray(pairs[..., 0] / pairs.sum(-1))
