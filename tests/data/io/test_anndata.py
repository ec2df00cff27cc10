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
    with pytest.raises(ValueError, match=r"text.h5ad: cannot be read as .h5ad"):
        open_source(tmp_path / "text.h5ad")
    with h5py.File(tmp_path / "empty.h5ad", "w") as file:
        file["var"] = [1]
    with pytest.raises(ValueError, match="there is no 'X' in it: not an AnnData file"):
        open_source(tmp_path / "empty.h5ad")


def test_an_unknown_layer_and_columns_are_refused(tmp_path):
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(sparse.csc_matrix(np.eye(3, dtype=np.float32)))
    made.write_h5ad(tmp_path / "columns.h5ad")
    with pytest.raises(ValueError, match="X is a csc_matrix, in which rows cannot be found"):
        open_source(tmp_path / "columns.h5ad")
    with pytest.raises(ValueError, match="there is no layer 'raw'; there are none"):
        open_source(tmp_path / "columns.h5ad", layer="raw")


def test_a_damaged_cell_file_is_refused_by_name(tmp_path, rng):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "cells.h5ad"
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((3, 2))
        file["var/_index"] = ["g1", "g2"]
    assert len(open_source(path).take(np.arange(3))) == 3
    with h5py.File(path, "a") as file:
        del file["X"], file["var/_index"]
        file["X"] = np.full((3, 2), -1.0)
        file["var/_index/strange"] = 1
    with pytest.raises(
        ValueError, match=r"cells\.h5ad: var/_index is no column of texts, but a group of \['strange'\]"
    ):
        open_source(path)
    with h5py.File(path, "a") as file:
        del file["var/_index"]
        file["var/_index"] = ["g1", "g2"]
    with pytest.raises(ValueError, match=r"cells\.h5ad: cannot be read \(X must hold counts"):
        open_source(path).take(np.arange(3))


def test_names_beside_a_mask_are_read_and_a_missing_one_is_named(tmp_path):
    """As anndata 0.13 writes them with pandas 3."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        file["X"] = np.ones((3, 2))
        file["var/_index/values"], file["var/_index/mask"] = ["g1", "g2"], [False, False]
    assert open_source(tmp_path / "cells.h5ad").take(np.arange(3)).vocabulary.tolist() == ["g1", "g2"]
    with h5py.File(tmp_path / "cells.h5ad", "a") as file:
        file["var/_index/mask"][1] = True
    with pytest.raises(ValueError, match=r"var/_index\[1\] is missing: every gene needs a name"):
        open_source(tmp_path / "cells.h5ad")
