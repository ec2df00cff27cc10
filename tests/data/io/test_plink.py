"""Genomes, cells and ratings on disk: every row once, as what is in memory; a file that is broken is named with its place."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sparse

import natgrad as ng
from natgrad.data.genotypes import genotypes
from natgrad.data.io.rating_source import RatingsSource
from natgrad.data.stream import open_source

LOCI = ["rs1", "rs2", "rs3", "rs4", "rs5"]


def same(found, wanted):
    np.testing.assert_array_equal(found.to_sparse().toarray(), wanted.to_sparse().toarray())
    assert found.vocabulary.tolist() == wanted.vocabulary.tolist()


@pytest.fixture
def bed(tmp_path, rng):
    """Seven individuals at five loci, some genotypes missing."""
    bed_reader = pytest.importorskip("bed_reader")
    table = rng.integers(-1, 3, (7, 5))
    where = tmp_path / "people.bed"
    people = [f"i{n}" for n in range(7)]
    given = np.where(table < 0, -127, table).astype(np.int8)
    bed_reader.to_bed(where, given, properties={"iid": people, "sid": LOCI})
    return where, table


def test_individuals_of_a_bed_are_those_in_memory(bed):
    path, table = bed
    source = open_source(path, size=3)
    assert source.n_total == 7
    rows = np.array([6, 0, 3])
    same(source.take(rows), genotypes(table[rows], LOCI))
    chunks = list(source.chunks())
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    same(chunks[1], genotypes(table[3:6], LOCI))


def test_a_shuffled_bed_has_everybody_once(bed):
    path, table = bed
    chunks = [chunk.to_sparse().toarray() for chunk in open_source(path, size=3, shuffle=1).chunks()]
    whole = genotypes(table, LOCI).to_sparse().toarray()
    np.testing.assert_array_equal(sorted(map(tuple, np.vstack(chunks))), sorted(map(tuple, whole)))


def test_ancestry_is_fitted_from_a_bed(bed):
    model = ng.LDA(2, max_passes=2).fit(open_source(bed[0], size=4))
    assert model.n_documents_seen_ == 7
    assert model.vocabulary_.tolist()[:2] == ["rs1 alt", "rs1 ref"]


def test_loci_without_a_name_are_called_by_their_place(bed):
    bim = bed[0].with_suffix(".bim")
    lines = [line.split() for line in bim.read_text().splitlines()]
    bim.write_text("".join(f"{n % 2} . 0 {100 + n} {a} {b}\n" for n, (*_, a, b) in enumerate(lines)))
    assert open_source(bed[0]).take(np.array([0])).vocabulary.tolist()[:4:2] == ["0:100 alt", "1:101 alt"]


def broken_head(path):
    path.write_bytes(b"no" + path.read_bytes()[2:])


def individual_by_individual(path):
    path.write_bytes(path.read_bytes()[:2] + b"\x00" + path.read_bytes()[3:])


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def no_bim(path):
    path.with_suffix(".bim").unlink()


def short_line(path):
    bim = path.with_suffix(".bim")
    lines = bim.read_text().splitlines()
    bim.write_text("\n".join([lines[0], "1 rs2", *lines[2:]]) + "\n")


def same_name(path):
    bim = path.with_suffix(".bim")
    bim.write_text(bim.read_text().replace("rs3", "rs1"))


def no_text(path):
    path.with_suffix(".fam").write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (broken_head, "not a .bed file of PLINK: it begins with 6e6f"),
        (individual_by_individual, "rewrite it with plink --make-bed"),
        (cut_off, r"12 bytes, but 7 individuals \(.fam\) and 5 loci \(.bim\) take 13"),
        (no_bim, r"people.bim: there is no such file; a .bed comes with .bim and .fam"),
        (short_line, r"people.bim, line 2, column 6: expected 6 fields .*got 2"),
        (no_text, r"people.fam: this is not text"),
        (same_name, r"people.bim: locus 3 is 'rs1', and so is locus 1: give each a name of its own"),
    ],
)
def test_a_broken_bed_says_what_is_wrong(bed, spoil, words):
    spoil(bed[0])
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        open_source(bed[0])


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


# -- ratings --


def lines(rng, n_users=9, names=False):
    rows = []
    for user in range(n_users):
        who = f"u{user}" if names else user
        rows += [f"{who},{item},{rng.integers(1, 6)}" for item in rng.choice(20, rng.integers(1, 7), replace=False)]
    return rows


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_chunks_of_ratings_are_whole_users(suffix, names, tmp_path, rng):
    rows, path = lines(rng, names=names), tmp_path / f"ratings{suffix}"
    if suffix == ".parquet":
        pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
        columns = zip(*(row.split(",") for row in rows), strict=True)
        frame = pandas.DataFrame(dict(zip(("user", "item", "rating"), columns, strict=True)))
        frame = frame.astype({"item": int, "rating": float, **({} if names else {"user": int})})
        frame.to_parquet(path)
    else:
        text = ("user,item,rating\n" + "\n".join(rows) + "\n").encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    chunks = list(RatingsSource(path, size=7).chunks())
    assert len(chunks) > 2
    users = [who for chunk in chunks for who in chunk.user_ids.tolist()]
    assert len(users) == len(set(users)) == 9
    found = {
        f"{chunk.user_ids[u]},{chunk.item_ids[i]},{v:g}"
        for chunk in chunks
        for u, i, v in zip(chunk.users, chunk.items, chunk.values, strict=True)
    }
    assert found == set(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n1,3,x\n", r"line 2, column 3: the rating must be a finite number, got 'x'"),
        ("1,2,3\n1\n", r"line 2: 1 column, but at least 3 are needed"),
        ("1,2,3\n2,2,3\n1,3,4\n3,1,1\n", r"ratings of user '1' do not stand together; sort the file by user"),
        ("1,2,3\n1,2,4\n2,1,1\n", r"chunk \d: user '1' rates item '2' twice"),
        ("who,what,when\n1,2,3\n", r"line 1: cannot tell which column is the user or the item or the value"),
        ("user,item,rating\n", "there are no ratings in it"),
    ],
)
def test_broken_ratings_name_their_place(text, words, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        list(RatingsSource(path, size=2).chunks())


def test_cut_off_compression_is_named(tmp_path):
    path = tmp_path / "ratings.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3\n" * 3)[:-9])
    with pytest.raises(ValueError, match="the compressed data are damaged or cut off"):
        list(RatingsSource(path).chunks())


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
    with pytest.raises(ValueError, match=r"cells\.h5ad: cannot be read \('Group' object has no attribute 'asstr'\)"):
        open_source(path)
    with h5py.File(path, "a") as file:
        del file["var/_index"]
        file["var/_index"] = ["g1", "g2"]
    with pytest.raises(ValueError, match=r"cells\.h5ad: cannot be read \(X must hold counts"):
        open_source(path).take(np.arange(3))
