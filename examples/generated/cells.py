"""Numbers of cells, genes and programmes in; molecule counts of single cells, and the programmes that made them, out.

A programme (archetype) is a distribution over genes: a level that all programmes share, log-normal over genes, raised at the
programme's own markers by ``fold``, then normalised. A cell has shares θ ~ Dir(α), a depth, log-normal around ``depth``, and
Poisson counts around depth · Σ_k θ_k φ_k. ``dispersion`` adds what LDA does not have: a gamma factor of variance ``dispersion``
for each cell and gene, so that counts are negative binomial.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["Cells", "make_cells"]

Floats = npt.NDArray[np.float64]
# Spread of the genes' common levels and of the cells' depths, on the log scale: a few genes have most of the molecules, and
# the deepest of a thousand cells has about ten times the molecules of the shallowest.
LEVEL_SPREAD, DEPTH_SPREAD = 1.2, 0.35


class Cells(NamedTuple):
    """Molecule counts of single cells, under the names that AnnData gives them, and what made them.

    Attributes
    ----------
    X : sparse counts [cells, genes]
    obs_names, var_names : arrays of str, the cells and the genes
    shares : array [cells, K], θ, which sum to 1
    programmes : array [K, genes], φ, which sum to 1
    markers : int [K, markers], the genes that are raised in each programme
    """

    X: Any
    obs_names: npt.NDArray[np.str_]
    var_names: npt.NDArray[np.str_]
    shares: Floats
    programmes: Floats
    markers: npt.NDArray[np.int64]

    def to_anndata(self) -> Any:
        """The same as an AnnData: shares in ``obsm``, programmes in ``varm``, the marked programme (or −1) in ``var``."""
        try:
            from anndata import AnnData
        except ImportError:
            raise ImportError("to_anndata needs the package anndata: pip install anndata") from None
        marked = np.full(len(self.var_names), -1)
        for k, genes in enumerate(self.markers):
            marked[genes] = k
        table = AnnData(scipy.sparse.csr_matrix(self.X))
        table.obs_names, table.var_names = self.obs_names, self.var_names
        table.obsm["shares"], table.varm["programmes"] = self.shares, self.programmes.T
        table.var["marker_of"] = marked
        return table


def make_cells(
    n_cells: int = 1000,
    n_genes: int = 500,
    n_programmes: int = 4,
    *,
    n_markers: int = 20,
    fold: float = 8.0,
    depth: float = 1500.0,
    concentration: float = 0.2,
    dispersion: float = 0.0,
    seed: int = 0,
) -> Cells:
    """Counts of single cells with known programmes and markers.

    Parameters
    ----------
    n_cells, n_genes, n_programmes : int
    n_markers : int
        Genes that are raised in each programme; no gene marks two.
    fold : float
        How much a marker is raised.
    depth : float
        Molecules of a median cell.
    concentration : float
        α of every programme: small values give cells of one type, large ones mixtures.
    dispersion : float
        Variance of the gamma factor of each cell and gene; 0 for Poisson counts.
    seed : int
        The same numbers give the same data.

    Examples
    --------
    >>> cells = make_cells(n_cells=10, n_genes=60, n_programmes=3, n_markers=5)
    >>> cells.X.shape, cells.markers.shape
    ((10, 60), (3, 5))
    >>> cells.var_names[:2].tolist(), cells.obs_names[:1].tolist()
    (['gene0000', 'gene0001'], ['cell00000'])
    """
    if n_programmes * n_markers > n_genes:
        raise ValueError(
            f"n_genes must be at least n_programmes · n_markers ({n_programmes * n_markers}), got {n_genes}: no gene marks two"
        )
    for name, value in (("fold", fold), ("depth", depth), ("concentration", concentration)):
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value!r}")
    if not dispersion >= 0:
        raise ValueError(f"dispersion must be ≥ 0, got {dispersion!r}")
    rng = np.random.default_rng(seed)
    level = rng.lognormal(0.0, LEVEL_SPREAD, n_genes)
    markers = np.sort(rng.permutation(n_genes)[: n_programmes * n_markers].reshape(n_programmes, n_markers), axis=1)
    programmes = np.tile(level, (n_programmes, 1))
    np.put_along_axis(programmes, markers, fold * np.take_along_axis(programmes, markers, axis=1), axis=1)
    programmes /= programmes.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(n_programmes, concentration), n_cells)
    mean = depth * rng.lognormal(0.0, DEPTH_SPREAD, (n_cells, 1)) * (shares @ programmes)
    if dispersion:
        mean *= rng.gamma(1.0 / dispersion, dispersion, mean.shape)
    return Cells(
        scipy.sparse.csr_array(rng.poisson(mean)),
        np.array([f"cell{i:05d}" for i in range(n_cells)]),
        np.array([f"gene{j:04d}" for j in range(n_genes)]),
        shares,
        programmes,
        markers,
    )
