"""Set how the local variables of a group are solved: the options of a model's fused kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from natgrad.validation import real_number, whole_number

__all__ = ["LocalOptions"]


@final
@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Options of the local (E) step, as ``local=`` of a ready model takes them; the defaults suit nearly every fit.

    Parameters
    ----------
    tol : float, default=1e-3
        A document is solved when its γ changes by less in the mean over topics.
    max_rounds : int, default=100
        Most rounds for a document.
    skip_below : float, default=1e-4
        Topics with a smaller share of the document are skipped in the inner loop; a final round updates all topics. 0 skips none.
    dtype : "float32" or "float64", default="float32"
        Precision of the inner loops; sums over documents are always double.
    batch_size : int, optional
        Documents between two updates of the topics; by default as few as keep these updates a small part of the work.
    topics : "posterior" or "point", default="posterior"
        Topic estimate used for documents by ``inference="vb"``. "posterior" uses exp(E[log φ]), and `elbo_` is a lower bound of
        log p(w). "point" uses E[φ]: EM for a point estimate of the topics under Dir(β + 1), whose `elbo_` is a lower bound of
        log p(w, φ).

    Examples
    --------
    >>> import natgrad as ng
    >>> model = ng.LDA(2, local=ng.LocalOptions(tol=1e-6, dtype="float64"))
    """

    tol: float = 1e-3
    max_rounds: int = 100
    skip_below: float = 1e-4
    dtype: Literal["float32", "float64"] = "float32"
    batch_size: int | None = None
    topics: Literal["posterior", "point"] = "posterior"

    def __post_init__(self) -> None:
        if not real_number(self.tol, "LocalOptions: tol") >= 0:
            raise ValueError(f"LocalOptions: tol must be ≥ 0, got {self.tol!r}")
        whole_number(self.max_rounds, "LocalOptions: max_rounds")
        if not 0 <= real_number(self.skip_below, "LocalOptions: skip_below") <= 0.1:
            raise ValueError(
                f"LocalOptions: skip_below must lie in [0, 0.1], got {self.skip_below!r}: a small share of a document"
            )
        if self.batch_size is not None:
            whole_number(self.batch_size, "LocalOptions: batch_size")
        for name, allowed in (("dtype", ("float32", "float64")), ("topics", ("posterior", "point"))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f'LocalOptions: {name} must be "{allowed[0]}" or "{allowed[1]}", got {getattr(self, name)!r}'
                )
