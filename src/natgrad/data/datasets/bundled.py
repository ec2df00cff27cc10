"""The name of a table that comes with scikit-learn in; its numbers, its target and the names of its columns out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["TABLES", "Table", "load_table"]

# What each is good for here. All are small, real and inside the scikit-learn package.
TABLES = {
    "digits": "1,797 handwritten digits, ink in 8 × 8 fields from 0 to 16: counts, for LDA and classification",
    "diabetes": "442 patients, ten numbers and the progress of the disease after a year: regression",
    "breast-cancer": "569 tumours, thirty numbers, malignant or benign: classification",
    "wine": "178 wines of three growers, thirteen measurements: classification, mixtures",
    "iris": "150 irises of three species, four lengths: classification, mixtures",
}


class Table(NamedTuple):
    """A table of real data.

    Attributes
    ----------
    X : array [rows, columns]
    y : array [rows], the number to predict, or the number of the class
    names : the columns of X
    classes : names of the classes; empty where y is a quantity
    """

    X: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    names: tuple[str, ...]
    classes: tuple[str, ...]


def load_table(name: str) -> Table:
    """A table that comes with scikit-learn; nothing is downloaded.

    Parameters
    ----------
    name : a name in `TABLES`, which also says what each is

    Examples
    --------
    >>> wine = load_table("wine")
    >>> wine.X.shape, wine.names[:2], len(wine.classes)
    ((178, 13), ('alcohol', 'malic_acid'), 3)
    """
    if name not in TABLES:
        raise ValueError(f"name must be one of {', '.join(TABLES)}; got {name!r}")
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name.replace('-', '_')}")()
    classes = tuple(str(word) for word in getattr(bunch, "target_names", ()))
    names = tuple(str(word) for word in bunch.feature_names)
    return Table(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target), names, classes)
