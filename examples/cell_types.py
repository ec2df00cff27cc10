"""Cell types from single-cell counts: archetypes, the cells' shares of them, and the genes that mark each.

The counts are an AnnData where that package is installed, else a record with the same names (`X`, `obs_names`, `var_names`).
They are generated, so the programmes, the shares and the markers are known.
"""

import argparse

import numpy as np
from generated.cells import make_cells
from matplotlib.figure import Figure

import natgrad as ng


def main(figure: str | None = None) -> tuple[float, float]:
    truth = make_cells(n_cells=600, n_genes=500, n_programmes=4, n_markers=20, dispersion=0.2, seed=0)
    try:
        cells = truth.to_anndata()
    except ImportError:
        cells = truth

    model = ng.LDA(n_topics=4, doc_prior=0.2, inference="vb", max_passes=60, tol=1e-5, seed=0, verbose=False)
    shares, spread = model.fit(cells).transform(cells, return_std=True)

    order = ng.data.match_rows(model.topics_, truth.programmes)
    error = np.abs(shares[:, order] - truth.shares).mean()
    print(
        f"shares of the archetypes: mean absolute error {error:.3f}; the model's own mean deviation is {spread.mean():.3f}"
    )

    # A marker is a gene that an archetype has far more of than the cells at large: the highest lift.
    found = [model.top_words(20, by="lift")[k] for k in order]
    true = [set(truth.var_names[genes]) for genes in truth.markers]
    recovered = np.mean([len(known.intersection(genes)) / 20 for known, genes in zip(true, found, strict=True)])
    for k, genes in enumerate(found):
        print(f"  archetype {k}: {' '.join(genes[:6])} …")
    print(f"marker genes recovered among the first 20: {recovered:.0%}")

    if figure:
        marked = np.concatenate(truth.markers)
        level = np.log2(model.topics_[order][:, marked] / model.topics_[:, marked].mean(axis=0))
        picture = Figure(figsize=(9, 2.6), layout="constrained")
        axes = picture.subplots()
        image = axes.imshow(level, aspect="auto", cmap="RdBu_r", vmin=-3, vmax=3)
        axes.set(xlabel="true marker genes, archetype by archetype", ylabel="archetype", yticks=range(4))
        picture.colorbar(image, label="log₂ of level / mean")
        picture.savefig(figure, dpi=100)
    return float(error), float(recovered)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
