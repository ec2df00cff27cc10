"""Tables that come with scikit-learn: each is there, whole, and as its description says."""

import re

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.datasets.bundled import TABLES, load_table


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_as_described(name):
    table = load_table(name)
    rows = int(re.match(r"[\d,]+", TABLES[name])[0].replace(",", ""))
    assert table.X.shape == (rows, len(table.names))
    assert table.y.shape == (rows,)
    assert np.isfinite(table.X).all()
    if table.classes:
        assert np.array_equal(np.unique(table.y), np.arange(len(table.classes)))


def test_digits_are_counts_that_topics_can_be_made_of():
    digits = load_table("digits")
    model = ng.LDA(n_topics=5, inference="vb", max_passes=2).fit(digits.X[:200], vocabulary=digits.names)
    assert model.topics_.shape == (5, 64)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="one of digits, diabetes"):
        ng.data.load_table("titanic")
