"""Cells on disk: every one once, as what is in memory; a file that is broken says what is wrong."""

import numpy as np
import pytest
import scipy.sparse as sparse

from natgrad.data.io.open import open_source


@pytest.fixture(params=["dense", "sparse", "layer"])
def h5ad(request, tmp_path, rng):
    anndata = pytest.importorskip("anndata")
    counts = rng.poisson(0.7, (11, 4)).astype(np.float32)
    genes = ["gata1", "sox2", "pax6", "tp53"]
    table = sparse.csr_matrix(counts) if request.param != "dense" else counts
    made = anndata.AnnData(np.zeros_like(counts) if request.param == "layer" else table)
    made.var_names = genes
    if request.param == "layer":
        made.layers["counts"] = table
    path = tmp_path / "cells.h5ad"
    made.write_h5ad(path)
    return path, counts, genes


def test_cells_are_those_in_memory(h5ad):
    path, counts, genes = h5ad
    source = open_source(path, size=4)
    assert source.n_total == 11
    rows = np.array([9, 2, 3, 4, 0])
    found = source.take(rows)
    np.testing.assert_array_equal(found.to_sparse().toarray(), counts[rows])
    assert found.vocabulary.tolist() == genes
    np.testing.assert_array_equal(np.vstack([c.to_sparse().toarray() for c in source.chunks()]), counts)


@pytest.mark.parametrize("size", [1, 3, 11, 50])
def test_all_cells_are_all_chunks(h5ad, size):
    path, counts, _ = h5ad
    chunks = [chunk.to_sparse().toarray() for chunk in open_source(path, size=size).chunks()]
    assert [len(chunk) for chunk in chunks] == [min(size, 11 - done) for done in range(0, 11, size)]
    np.testing.assert_array_equal(np.vstack(chunks), counts)


def test_a_file_that_holds_no_cells_says_so(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "text.h5ad").write_text("no")
    with pytest.raises(ValueError, match=r"text.h5ad: cannot be read"):
        open_source(tmp_path / "text.h5ad")
    with h5py.File(tmp_path / "empty.h5ad", "w") as file:
        file["genes"] = [1]
    with pytest.raises(ValueError, match=r"empty.h5ad: cannot be read"):
        open_source(tmp_path / "empty.h5ad")


def test_an_unknown_layer_and_columns_are_refused(tmp_path):
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(sparse.csc_matrix(np.eye(3, dtype=np.float32)))
    made.write_h5ad(tmp_path / "columns.h5ad")
    with pytest.raises(ValueError, match="X is stored by columns, in which rows cannot be found"):
        open_source(tmp_path / "columns.h5ad")
    with pytest.raises(ValueError, match="there is no layer 'raw'; there are none"):
        open_source(tmp_path / "columns.h5ad", layer="raw")


def test_a_damaged_cell_file_is_refused_by_name(tmp_path):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    path = tmp_path / "cells.h5ad"
    anndata.AnnData(np.full((3, 2), -1.0)).write_h5ad(path)
    with pytest.raises(ValueError, match=r"cells\.h5ad: cannot be read \(X must hold counts"):
        open_source(path).take(np.arange(3))
    with h5py.File(path, "a") as file:
        del file["X"]
        file["X"] = np.ones((3, 5))
    with pytest.raises(ValueError, match="X has 5 genes, and var names 2"):
        open_source(path)
    with h5py.File(path, "a") as file:
        del file["var"]
    with pytest.raises(ValueError, match=r"cells\.h5ad: cannot be read"):
        open_source(path)
