"""Labels instead of numbers: what is said of those that were never seen."""

import pytest

import natgrad as ng


def test_a_new_label_in_an_update_is_named_by_its_own_row():
    model = ng.CategoricalHMM(2, seed=0).fit(["sun", "rain", "sun", "rain", "rain"] * 5)
    before = model.elbo_
    with pytest.raises(ValueError, match=r"X\[1\] is a label that is none of the 2 categories"):
        model.update(["sun", "hail"])
    assert model.elbo_ == before
