"""Topics of a stream: the same as of the corpus it is cut from, in the memory of one chunk, with stated policies."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from reference.lda import draw_documents

import natgrad as ng
from natgrad.data.stream import as_stream

TEXTS = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 10


class Again:
    """Chunks that can be read as often as one likes."""

    def __init__(self, parts):
        self.parts, self.readings = parts, 0

    def __iter__(self):
        self.readings += 1
        return iter(self.parts)


@pytest.fixture(scope="module")
def drawn():
    return draw_documents(3000, 50, 5, 100, seed=3, doc_prior=0.1, topic_prior=0.1)


def test_an_iterator_is_read_once_and_a_source_again(drawn):
    chunks = [sparse.csr_array(part) for part in np.array_split(drawn.counts[:600], 3)]
    once = ng.LDA(3, local=ng.LocalOptions(batch_size=100)).fit(iter(chunks))
    assert once.n_steps_ == 6
    assert "once" in str(once.stop_)
    source = Again(chunks)
    several = ng.LDA(3, local=ng.LocalOptions(batch_size=100), inference="vb", max_passes=4, tol=0).fit(source)
    assert (source.readings, several.n_steps_) == (4, 24)
    listed = ng.LDA(3, local=ng.LocalOptions(batch_size=100), inference="vb", max_passes=4, tol=0).fit(chunks)
    np.testing.assert_array_equal(listed.components_, several.components_)
    assert ng.LDA(3, local=ng.LocalOptions(batch_size=100), inference="vb", tol=0.5).fit(source).stop_.converged


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("form", ["array", "matrix"])
def test_every_sparse_format_is_read(kind, form):
    counts = np.random.default_rng(0).poisson(0.7, (12, 6))
    make = getattr(sparse, f"{kind}_{form}")
    found, wanted = (
        ng.LDA(n_topics=2, seed=0, inference="vb", max_passes=1, verbose=False).fit(
            iter([read(counts[:7]), read(counts[7:])])
        )
        for read in (make, np.asarray)
    )
    np.testing.assert_array_equal(found.components_, wanted.components_)
    np.testing.assert_array_equal(found.transform(make(counts)), wanted.transform(counts))
    np.testing.assert_array_equal(found.partial_fit(make(counts)).components_, wanted.partial_fit(counts).components_)


def test_documents_one_by_one(tmp_path):
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    with open(tmp_path / "texts") as lines:
        model = ng.LDA(2, seed=1, local=ng.LocalOptions(batch_size=4)).fit(lines)
    assert sorted(" ".join(sorted(words)) for words in model.top_words(3)) == ["apple pear plum", "bolt nut screw"]
    bags = ([(0, 2), (1, 1)] if d % 2 else [(2, 1), (3, 3)] for d in range(100))
    assert ng.LDA(2, local=ng.LocalOptions(batch_size=20)).fit(bags, vocabulary="abcd").components_.shape == (2, 4)


def test_the_vocabulary_is_given_or_that_of_the_first_chunk():
    later = ng.LDA(2).fit(iter([TEXTS, ["fig apple", "nut"]]))
    assert "fig" not in later.vocabulary_.tolist()
    given = ng.LDA(2).fit(iter([TEXTS, ["fig apple", "nut"]]), vocabulary=["fig", "apple", "nut"])
    assert given.vocabulary_.tolist() == ["fig", "apple", "nut"]
    # Columns that have names bring their words along.
    tables = [pd.DataFrame([[1, 2], [2, 1]], columns=["a", "b"]), pd.DataFrame([[1, 2]], columns=["c", "a"])]
    assert ng.LDA(2).fit(iter(tables)).vocabulary_.tolist() == ["a", "b", "c"]


def test_a_bad_chunk_is_named(drawn):
    good, bad = drawn.counts[:50], drawn.counts[:50].astype(float)
    bad[3, 7] = np.nan
    model = ng.LDA(3)
    with pytest.raises(ValueError, match=r"chunk 2 of the stream: .*X\[3, 7\] = NaN"):
        model.fit(iter([good, good, bad]))
    with pytest.raises(ValueError, match=r"chunk 1 .*X has 49 features"):
        model.fit(iter([good, good[:, :49]]))
    for empty in (iter([]), Again([])):
        with pytest.raises(ValueError, match="no documents"):
            ng.LDA(3).fit(empty)


def test_what_is_no_stream():
    for X in (np.eye(3), [[1, 2], [3, 4]], TEXTS, sparse.eye_array(3), [[(0, 1)], []], pd.DataFrame(np.eye(2))):
        assert as_stream(X) is None
