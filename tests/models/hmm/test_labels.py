"""Labels instead of numbers: what is said of those that were never seen."""

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.models.hmm import HMM, Categorical, Mixture


def test_a_new_label_in_an_update_is_named_by_its_own_row():
    model = ng.CategoricalHMM(2, seed=0).fit(["sun", "rain", "sun", "rain", "rain"] * 5)
    before = model.elbo_
    with pytest.raises(ValueError, match=r"X\[1\] is a label that is none of the 2 categories"):
        model.update(["sun", "hail"])
    assert model.elbo_ == before


def test_labels_of_mixtures_come_as_they_do_of_categories() -> None:
    letters = list("abcab" * 12)
    model = HMM(2, emissions=Mixture(Categorical(), 2), seed=0, max_passes=5, tol=0).fit(letters)
    assert model.categories_["emission"].tolist() == ["a", "b", "c"]
    one, many = model.filter(), model.filter().update(letters[:4])
    rows = [one.update(letter) for letter in letters[:4]]
    np.testing.assert_allclose(rows, many, rtol=1e-12)
    np.testing.assert_allclose(many[-1], model.predict_proba(letters[:4])[-1], rtol=1e-12)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1, 1), (1, 2, 2)])
def test_labels_are_one_column(shape) -> None:
    with pytest.raises(ValueError, match="one column of categories, got an array of shape"):
        ng.CategoricalHMM(2).fit(np.array(["sun", "rain", "sun", "fog"]).reshape(shape))


def test_labels_stay_what_they_are() -> None:
    mixed = ng.CategoricalHMM(2, max_passes=3, tol=0).fit(
        ["a", 1, "b", 2] * 10
    )  # NumPy would make a list of texts of it
    assert mixed.categories_.tolist() == [1, 2, "a", "b"]
    assert mixed.score([1, 2]) > mixed.score(["1", "2"])
    days = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02", None] * 10))
    dated = ng.CategoricalHMM(2, max_passes=3, tol=0).fit(days)
    assert dated.categories_.tolist() == [day.to_pydatetime() for day in days[:2]]
    np.testing.assert_allclose(dated.filter().update(days[0]), dated.predict_proba(days[:1])[0], rtol=1e-12)
