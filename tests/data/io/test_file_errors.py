"""Damaged data files: every reader reads what is left, or raises one ValueError that names the file."""

import gzip

import numpy as np
import pytest
from adversary.inputs import mutated

import natgrad as ng
from natgrad.data.io.bags import read_docword, read_ldac
from natgrad.data.io.documents import read_documents
from natgrad.data.io.file_errors import as_file_error
from natgrad.data.io.npy import load_array
from natgrad.data.io.numbers import read_numbers
from natgrad.data.io.ratings import read_ratings

LDAC = b"2 0:1 3:2\n1 2:4\n3 0:1 1:1 2:1\n"
TABLE = b"x,text\n1.5,some words\n,others\n2.5,more\n"
RATINGS = b"user,item,rating\na,x,3\na,y,4\nb,x,1\n"


FILES = {
    "lda-c": ("f.ldac", LDAC, read_ldac),
    "lda-c, gzipped": ("f.ldac.gz", gzip.compress(LDAC), read_ldac),
    "docword": ("docword.f.txt", b"2\n4\n3\n1 1 2\n1 4 1\n2 2 5\n", read_docword),
    "ratings": ("f.csv", RATINGS, read_ratings),
    "numbers": ("f.csv", TABLE, lambda path: read_numbers(path, ["x"])),
    "texts": ("f.csv", TABLE, lambda path: read_documents(path, column="text")),
}


@pytest.mark.parametrize("name", FILES)
def test_only_the_documented_error(name, tmp_path, rng):
    file, data, read = FILES[name]
    path = tmp_path / file
    path.write_bytes(data)
    read(path)
    refused = []
    for _ in range(150):
        path.write_bytes(mutated(data, rng))
        try:
            read(path)
        except ValueError as error:
            refused.append(error)
    assert len(refused) > 10
    assert {type(error) for error in refused} == {ValueError}
    assert all(file in str(error) for error in refused)


def test_what_is_not_damage_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_ldac(tmp_path / "nowhere")
    path = tmp_path / "f.ldac"
    path.write_bytes(b"1 0:1\n\xff 2:1\n")
    with pytest.raises(ValueError, match=r"f\.ldac, line 2: not a text in UTF-8: byte 6 is 0xff"):
        read_ldac(path)
    path.write_bytes(b"1 0:1\n1: 2:1\n")
    with pytest.raises(
        ValueError, match=r"f\.ldac, line 2, column 1: expected the number of pairs that follow, 1, got '1:'"
    ):
        read_ldac(path)


def test_errors_of_arrow_that_are_no_other_errors():
    from pyarrow.lib import ArrowException

    with pytest.raises(ValueError, match=r"f\.parquet: cannot be read \(Unknown error\)"), as_file_error("f.parquet"):
        raise ArrowException("Unknown error")


def test_arrays_in_files(tmp_path):
    path, header = tmp_path / "old.npy", b"{'descr': '<f8', 'fortran_order': False, 'shape': (2L, 1L), }"
    header += b" " * (117 - len(header)) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + np.array([1.5, 2.5]).tobytes())
    np.testing.assert_array_equal(load_array(path), [[1.5], [2.5]])  # written by Python 2, and no warning
    np.testing.assert_array_equal(load_array(path, "r"), [[1.5], [2.5]])
    np.savez(tmp_path / "several", a=[1], b=[2])
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    with pytest.raises(ValueError, match=r"several\.npy: expected one array"):
        load_array(tmp_path / "several.npy")
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match=r"old\.npy: cannot be read"):
        ng.GaussianHMM(2).fit(path)
