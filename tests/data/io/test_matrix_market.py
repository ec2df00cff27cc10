"""Matrix Market files are what SciPy reads; a broken one is named with the place."""

import inspect

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sparse

from natgrad.data.io.matrix_market import read_matrix_market
from natgrad.data.io.open import open_source


@pytest.mark.parametrize(
    ("matrix", "options"),
    [
        (sparse.coo_array(np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 0.0]])), {}),
        (sparse.coo_array(np.array([[1.0, 2.0], [2.0, 0.0]])), {"symmetry": "symmetric"}),
        (sparse.coo_array(np.array([[0.0, 2.0], [-2.0, 0.0]])), {"symmetry": "skew-symmetric"}),
        (sparse.coo_array(np.eye(3)), {"field": "pattern"}),
        (sparse.coo_array((3, 4)), {}),
        (np.arange(6.0).reshape(2, 3), {}),
    ],
    ids=["general", "symmetric", "skew", "pattern", "empty", "array"],
)
def test_a_matrix_market_file_is_what_scipy_reads(matrix, options, tmp_path):
    scipy.io.mmwrite(tmp_path / "x.mtx", matrix, comment="two\nlines", **options)
    # SciPy 1.18 warns unless it is told which of its two kinds of sparse matrices is wanted; older ones know only one.
    arrays = {"spmatrix": False} if "spmatrix" in inspect.signature(scipy.io.mmread).parameters else {}
    wanted = scipy.io.mmread(tmp_path / "x.mtx", **arrays)
    found = read_matrix_market(tmp_path / "x.mtx")
    assert sparse.issparse(found) == sparse.issparse(wanted)
    np.testing.assert_array_equal(*(m.toarray() if sparse.issparse(m) else m for m in (found, wanted)))


def test_an_entry_outside_is_named(tmp_path):
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n9 9 1\n")
    with pytest.raises(ValueError, match=r"bad\.mtx.*line 4, column 1: expected a row from 1 to 2, got '9'"):
        open_source(tmp_path / "bad.mtx")
