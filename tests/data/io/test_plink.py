"""Genomes on disk: everybody once, as what is in memory; a file that is broken is named with its place."""

import numpy as np
import pytest

from natgrad.data.alleles import genotypes
from natgrad.data.io.open import open_source

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


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_all_individuals_are_all_chunks(bed, size):
    source = open_source(bed[0], size=size)
    whole = source.take(np.arange(7)).to_sparse().toarray()
    np.testing.assert_array_equal(np.vstack([chunk.to_sparse().toarray() for chunk in source.chunks()]), whole)


def test_a_shuffled_bed_has_everybody_once(bed):
    path, table = bed
    chunks = [chunk.to_sparse().toarray() for chunk in open_source(path, size=3, shuffle=1).chunks()]
    whole = genotypes(table, LOCI).to_sparse().toarray()
    np.testing.assert_array_equal(sorted(map(tuple, np.vstack(chunks))), sorted(map(tuple, whole)))


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
        (no_text, r"people.fam, line 1: not a text in UTF-16: byte 2 is 0x00"),
        (same_name, r"people.bim: locus 3 is 'rs1', and so is locus 1: give each a name of its own"),
    ],
)
def test_a_broken_bed_says_what_is_wrong(bed, spoil, words):
    spoil(bed[0])
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        open_source(bed[0])
