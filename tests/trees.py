"""Trees of arrays, as states and results are, compared."""

from typing import Any

import numpy as np

RTOL = 1e-12


def same(found: Any, wanted: Any, what: str, rtol: float = RTOL) -> None:
    """Two trees of arrays, each array to a part of its largest number."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), what
        for key in wanted:
            same(found[key], wanted[key], f"{what}, {key!r}", rtol)
    elif isinstance(wanted, (tuple, list)):
        for number, parts in enumerate(zip(found, wanted, strict=True)):
            same(*parts, f"{what}[{number}]", rtol)
    else:
        a, b = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
        assert a.shape == b.shape, what
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=what)
        scale = np.abs(b[finite]).max(initial=0.0)
        np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=rtol * scale, err_msg=what)
