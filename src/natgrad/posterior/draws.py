"""Posterior draws as a user reads them: `Draws` is to a posterior that was sampled what a fit is to one that was approximated.

``draws["mu"]`` answers ``mean()``, ``std()``, ``interval()`` and ``sample()`` as ``fit["mu"]`` does, from chains of draws.
Small nodes keep all their draws; of large ones as many are kept as there is room for, and averages are of all of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.errors import PoorMixing
from natgrad.families import Family, Normal
from natgrad.posterior import diagnostics
from natgrad.posterior.diagnostics import Diagnosis
from natgrad.posterior.export import ExportMixin, _imported, checked_groups
from natgrad.posterior.files.container import register, write_model
from natgrad.random import sample_generator

__all__ = ["DrawnFactor", "Draws", "DrawsSettings", "derived"]

Array = npt.NDArray[Any]
CATEGORIES = ("Categorical", "MarkovChain")


@dataclass(frozen=True, eq=False)
class DrawnFactor:
    """The posterior draws of one hidden node; arrays have the node's plates first.

    Attributes
    ----------
    name, family, plates : as in a fit
    kept : array [chain, draw, …], the draws of x − origin that were kept; None if none were
    first, second : sums over all draws of E[x | rest] and E[x² | rest], for each chain (or averaged over the chains, an axis of
        length one); of categories the first alone
    count : int, draws of each chain
    stride : int, every how many draws one was kept
    origin : from where a location is measured, None for zero
    """

    name: str
    family: Family
    plates: tuple[str, ...]
    kept: Array | None
    first: Array
    second: Array
    count: int
    stride: int
    origin: Array | None = None

    @property
    def values(self) -> Array:
        """The draws that were kept: [chain, draw, plates, event]."""
        if self.kept is None:
            raise ValueError(
                f"no draws of {self.name!r} were kept, only their averages: it stands for several values at once, or is large. "
                f"Ask for it with draws(names=[{self.name!r}])"
            )
        return self.kept if self.origin is None else self.kept + self.origin

    @property
    def is_complete(self) -> bool:
        """Whether all draws were kept."""
        return self.kept is not None and self.stride == 1

    def mean(self) -> Array:
        """E[x]; for categories, their probabilities (averages of conditional probabilities, which vary less than frequencies)."""
        if self.is_complete and self.family.name not in CATEGORIES:
            assert self.kept is not None
            return np.asarray(self.kept.mean((0, 1)) + self._start)
        return np.asarray(self.first.sum(0) / (self.count * len(self.first)) + self._start)

    def var(self) -> Array:
        """The variance of each element; of categories, that of each indicator."""
        if self.family.name in CATEGORIES:
            chance = self.mean()
            return np.asarray(chance * (1 - chance))
        if self.is_complete:
            assert self.kept is not None
            return np.asarray(self.kept.var((0, 1)))
        total = self.count * len(self.first)
        mean = self.first.sum(0) / total
        return np.asarray(np.maximum(self.second.sum(0) / total - mean**2, 0.0))

    def std(self) -> Array:
        """The standard deviation of each element."""
        return np.sqrt(self.var())

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Ends of each element's central interval with probability ``mass``: quantiles of the draws.

        Where averages alone were kept, those of a distribution of the node's kind with their mean and variance.
        """
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass}. For 90 % use mass=0.9.")
        if self.family.name in (*CATEGORIES, "Bernoulli", "Binary"):
            raise TypeError(f"{self.family.name} has no interval: use mean(), the probabilities.")
        if self.kept is None:
            return _matched(self.family, self.mean(), self.var(), mass)
        values = self.values
        low, high = np.quantile(values.reshape(-1, *values.shape[2:]), [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        return low, high

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Array:
        """Draws picked at random from those kept: ``n`` of them along a new first axis, or one without it."""
        values = self.values
        flat = values.reshape(-1, *values.shape[2:])
        return np.asarray(flat[sample_generator(rng, n, repr(self.name)).integers(0, len(flat), n)])

    def r_hat(self) -> Array:
        """R̂ of each element: how much chains disagree, 1 where they do not."""
        return diagnostics.r_hat(self._ordered())

    def ess(self, kind: Literal["bulk", "tail"] = "bulk") -> Array:
        """Independent draws that those kept are worth: for the mean ("bulk") or for ends of intervals ("tail")."""
        return diagnostics.ess(self._ordered(), kind)

    def _ordered(self) -> Array:
        if self.family.name in CATEGORIES:
            raise TypeError(f"{self.name!r}: categories have no order, and no R̂: look at what they choose")
        return self.values

    def worst(self) -> Diagnosis | None:
        """The worst element, of some if there are many; None for categories, and where too little was kept."""
        if self.kept is None or self.family.name in CATEGORIES:
            return None
        return diagnostics.worst(self.kept)

    @property
    def _start(self) -> Any:
        return 0 if self.origin is None else self.origin

    def __repr__(self) -> str:
        shape = self.first.shape[1 : 1 + len(self.plates)]
        plates = ", ".join(f"{plate}={size}" for plate, size in zip(self.plates, shape, strict=False))
        kept = 0 if self.kept is None else self.kept.shape[0] * self.kept.shape[1]
        return f"<{kept} draws of {self.name}: {self.family.name}{' on ' + plates if plates else ''}>"


register(DrawnFactor)


@dataclass(frozen=True, slots=True)
class DrawsSettings:
    """How draws were made, so that they can be repeated."""

    n: int
    chains: int
    warmup: int
    thin: int
    seed: int
    version: str


register(DrawsSettings)


def _matched(family: Family, mean: Array, var: Array, mass: float) -> tuple[Array, Array]:
    """The central interval of a Beta, a Gamma or a Normal with a mean and a variance, whichever has the node's range."""
    tails = (1 - mass) / 2, (1 + mass) / 2
    var = np.maximum(var, 1e-300)
    if family.name in ("Dirichlet", "Beta"):
        total = np.maximum(mean * (1 - mean) / var - 1, 1e-12)
        low, high = (special.betaincinv(mean * total, (1 - mean) * total, t) for t in tails)
    elif family.name == "Gamma":
        low, high = (special.gammaincinv(mean**2 / var, t) * var / mean for t in tails)
    else:
        low, high = (mean + special.ndtri(t) * np.sqrt(var) for t in tails)
    return np.asarray(low), np.asarray(high)


def derived(factor: DrawnFactor, name: str, plates: tuple[str, ...], function: Callable[[Array], Array]) -> DrawnFactor:
    """The draws of a function of a node, from those that were kept of the node [chain, draw, …]."""
    kept = function(factor.values)
    first, second = factor.count * kept.mean(1), factor.count * (kept**2).mean(1)
    return DrawnFactor(name, Normal(), plates, kept, first, second, factor.count, factor.stride)


class Draws(ExportMixin, Mapping[str, DrawnFactor]):
    """Posterior draws of a model's hidden variables, in several chains.

    Attributes
    ----------
    settings : draws of each chain, chains, warm-up, thinning, seed and version
    relabelled : ints [chain], in how many sweeps labels of components were put back into the order of the fit
    exchanged : ints [chain], in how many sweeps labels that priors tell apart changed places
    notes : sentences on what the draws may miss
    """

    _level = "draws"

    def __init__(
        self,
        factors: Mapping[str, DrawnFactor],
        settings: DrawsSettings,
        relabelled: Array,
        exchanged: Array | None = None,
        *,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        labels: Mapping[str, Any] | None = None,
        predictive: Any = None,
        groups: Any = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.factors, self.settings, self.relabelled = dict(factors), settings, relabelled
        self.notes = list(notes)
        self.exchanged: Array = np.zeros_like(relabelled) if exchanged is None else exchanged
        self._axes, self._labels, self._predictive = dict(axes or {}), dict(labels or {}), predictive
        self._groups = groups  # what else a network knows of its draws

    @cached_property
    def diagnosis(self) -> dict[str, Diagnosis]:
        """R̂ and effective sample sizes of the worst element of each node."""
        entries = {name: factor.worst() for name, factor in self.factors.items()}
        return {name: entry for name, entry in entries.items() if entry is not None}

    @cached_property
    def message(self) -> str:
        """In words whether the chains agree, and what they may miss."""
        return ". ".join([self._in_words(), *self.notes])

    def __getitem__(self, name: Any) -> DrawnFactor:  # type: ignore[override]  # read like a Factor
        key = getattr(name, "name", name)
        if key not in self.factors:
            raise KeyError(f"there are no draws of {key!r}; there are of {', '.join(self.factors)}")
        return self.factors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.factors)

    def __len__(self) -> int:
        return len(self.factors)

    def predictive(self, name: Any, *, sizes: Mapping[Any, int] | None = None, **slots: Any) -> Any:
        """The distribution of new data of a node, averaged over the draws; arguments are those of ``fit.predictive``."""
        if self._predictive is None:
            raise ValueError(
                "these draws know no network: those of a file are given one by attach(network), those of ready models have none: "
                "predict with draws[name].values, or declare the model as a network"
            )
        return self._predictive(self, getattr(name, "name", name), sizes or {}, slots)

    def attach(self, network: Any) -> Draws:
        """The draws with the network that they are of, so that `predictive` works; for draws that were loaded from a file."""
        return network.attached_draws(self)  # type: ignore[no-any-return]

    def to_arviz(
        self, names: Sequence[str] | None = None, *, groups: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """The draws as ArviZ reads them: an xarray DataTree with chains and draws.

        Those of a network also have what was observed, the log likelihood of every observed element, and data drawn from the
        posterior and the prior, for ``loo``, ``compare`` and ``plot_ppc``.

        Parameters
        ----------
        names : which variables; by default all of which draws were kept. Of nodes with different numbers of kept draws, those
            that all of them have
        groups : list of names, optional
            Of "posterior", "observed_data", "log_likelihood", "posterior_predictive", "prior" and "prior_predictive"; by default
            all that there are.
        """
        if options:
            raise TypeError(
                f"to_arviz() of draws takes names= and groups=, got {', '.join(options)}: they are as many as there are"
            )
        _imported("xarray", "to_arviz", "arviz")
        asked = checked_groups(groups)
        kept = [name for name in self if self[name].kept is not None]
        chosen = kept if names is None else self._chosen(names)
        wanted = dict.fromkeys([*chosen, *(kept if self._groups is not None and asked != ["posterior"] else ())])
        stride = max((self[name].stride for name in wanted), default=1)
        drawn = {name: self[name].values[:, :: stride // self[name].stride] for name in wanted}
        posterior = {name: drawn[name] for name in chosen}
        return self._tree(posterior, drawn, asked, np.arange(0, self.settings.n, stride), self.settings.seed)

    def _more_groups(self, drawn: Mapping[str, Array], asked: Sequence[str] | None, seed: int) -> tuple[Any, Any]:
        if self._groups is None:
            return super()._more_groups(drawn, asked, seed)
        return self._groups(drawn, asked, seed)  # type: ignore[no-any-return]

    def to_pandas(self, names: Sequence[str] | None = None, *, mass: float = 0.9) -> Any:
        """A row for each element: mean, sd and interval, R̂ and effective sample sizes (NaN for categories)."""
        table = super().to_pandas(names, mass=mass)
        columns: dict[str, list[Array]] = {"r_hat": [], "ess_bulk": [], "ess_tail": []}
        for name in self._chosen(names):
            factor = self[name]
            size = factor.mean().size
            ordered = factor.kept is not None and factor.family.name not in CATEGORIES
            measures = (factor.r_hat(), factor.ess(), factor.ess("tail")) if ordered else (np.full(size, np.nan),) * 3
            for column, values in zip(columns.values(), measures, strict=True):
                column.append(values.ravel())
        return table.assign(**{name: np.concatenate(parts) if parts else [] for name, parts in columns.items()})

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the draws to one file; `natgrad.load` gives them back.

        Parameters
        ----------
        path : where to; the folder must exist
        overwrite : bool
            Whether a file that is there may be replaced; otherwise it is a FileExistsError.
        """
        write_model(path, "Draws", self.content(), overwrite=overwrite)

    def content(self) -> dict[str, Any]:
        """What a file holds of the draws."""
        return {
            "factors": self.factors, "settings": self.settings, "relabelled": self.relabelled, "exchanged": self.exchanged,
            "notes": self.notes,
        }  # fmt: skip

    def warn_if_poor(self, stacklevel: int = 3) -> None:
        """A `PoorMixing` warning if the chains do not agree, or miss something."""
        if self._poor() or self.notes:
            warnings.warn(self.message, PoorMixing, stacklevel=stacklevel)

    def _poor(self) -> dict[str, Diagnosis]:
        limit = diagnostics.LARGEST_R_HAT
        # With few draws R̂ is noisy: what it may be by chance grows as they become fewer.
        limit += max(0.0, 2.0 / np.sqrt(max(1, self.settings.n * self.settings.chains)) - 0.03)
        return {
            name: entry
            for name, entry in self.diagnosis.items()
            if entry.r_hat > limit or min(entry.ess_bulk, entry.ess_tail) < diagnostics.FEWEST / 4
        }

    def _in_words(self) -> str:
        if self.settings.chains == 1:
            return "one chain has no other to agree with: make several (chains=4) to see whether they do"
        if not self.diagnosis:
            return (
                "whether the chains agree was not looked at: that needs draws of numbers, four and more of each chain"
            )
        poor = self._poor()
        worst = max(self.diagnosis, key=lambda name: self.diagnosis[name].r_hat)
        least = min(self.diagnosis, key=lambda name: self.diagnosis[name].ess_bulk)
        text = (
            f"largest R̂ {self.diagnosis[worst].r_hat:.3f} ({worst}), smallest effective sample size "
            f"{self.diagnosis[least].ess_bulk:.0f} ({least})"
        )
        if self.exchanged.any():
            text += (
                f"; labels that priors or data tell apart changed places in {int(self.exchanged.sum())} sweeps, so that "
                "intervals of components are of several labellings"
            )
        if not poor:
            return f"the chains agree: {text}"
        return (
            f"the chains do not agree yet on {', '.join(poor)}: {text}. Make more draws (n=, thin=) or a longer warm-up; do not "
            "rely on their intervals"
        )

    def __repr__(self) -> str:
        s = self.settings
        return f"<{s.chains} chains of {s.n} draws of {', '.join(self.factors)}: {self.message}>"
