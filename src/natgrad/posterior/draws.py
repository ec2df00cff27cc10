"""Define `Draws`, which is to a posterior that was sampled what a fit is to one that was approximated, and its diagnostics.

``draws["mu"]`` answers ``mean()``, ``std()``, ``interval()`` and ``sample()`` as ``fit["mu"]`` does, from chains of draws.
Small nodes keep all their draws; of large ones as many are kept as there is room for, and averages are of all of them.

R̂ (rank-normalised, split) compares chains with one another, and is 1 where they agree; the bulk ESS says how many independent
draws the mean is worth, the tail ESS the ends of intervals. Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021).

Values are those of arviz-stats, in less than a quarter of its time: an element is sorted once, for the ranks of its values, those
of their
distances from the median (two runs that are sorted, to be merged) and its quantiles; autocovariances are summed lag after lag as
long as Geyer's sequence asks for the next one, which of draws that are nearly independent are a few.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.errors import PoorMixing
from natgrad.families import Family, Normal
from natgrad.families._family import tails
from natgrad.posterior.export import ExportMixin, _imported, checked_groups
from natgrad.posterior.files.container import register, write_model
from natgrad.random import sample_generator

__all__ = [
    "FEWEST",
    "LARGEST_R_HAT",
    "Diagnosis",
    "DrawnFactor",
    "Draws",
    "DrawsSettings",
    "derived",
    "ess",
    "r_hat",
    "worst",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LARGEST_R_HAT, FEWEST = 1.01, 400
# Elements of a block that are looked at; of more, as many at even distances.
MOST_ELEMENTS = 24
# Lags that are summed one by one; more of them come from one Fourier transform.
FEW_LAGS = 24
# Draws that are fewer than this have no halves to compare.
SHORTEST = 4
TAILS = 0.05, 0.95


class Diagnosis(NamedTuple):
    """The worst element of a node: its largest R̂ and its smallest effective sample sizes."""

    r_hat: float
    ess_bulk: float
    ess_tail: float


def r_hat(draws: Array) -> Array:
    """R̂ of each element of draws [chain, draw, …]; NaN where all draws are equal, and of one chain."""
    return _by_element(draws, lambda element: element.r_hat)


def ess(draws: Array, kind: Literal["bulk", "tail"] = "bulk") -> Array:
    """Independent draws that those of each element are worth; NaN where all draws are equal."""
    return _by_element(draws, lambda element: element.ess_bulk if kind == "bulk" else element.ess_tail)


def worst(draws: Array) -> Diagnosis | None:
    """The worst element, of some if there are many; None if there is nothing to compare."""
    if draws.shape[1] < SHORTEST or draws.dtype.kind not in "fiu" or not draws.size:
        return None
    flat = draws.reshape(*draws.shape[:2], -1)
    if flat.shape[2] > MOST_ELEMENTS:
        flat = flat[:, :, np.linspace(0, flat.shape[2] - 1, MOST_ELEMENTS).astype(np.int64)]
    measures = _by_element(flat, lambda element: (element.r_hat, element.ess_bulk, element.ess_tail), 3)
    if np.isnan(measures[:, 0]).all():
        return None
    return Diagnosis(
        float(np.nanmax(measures[:, 0])), float(np.nanmin(measures[:, 1])), float(np.nanmin(measures[:, 2]))
    )


def _by_element(draws: Array, function: Any, width: int | None = None) -> Array:
    """A function of every element whose draws are finite and not all equal; NaN elsewhere."""
    flat = np.asarray(draws, dtype=np.float64).reshape(*draws.shape[:2], -1)
    out = np.full((flat.shape[2], *(() if width is None else (width,))), np.nan)
    if draws.shape[1] >= SHORTEST:
        with np.errstate(all="ignore"):
            for n in range(flat.shape[2]):
                own = np.ascontiguousarray(flat[:, :, n])
                if (own != own[0, 0]).any() and np.isfinite(own).all():
                    out[n] = function(_Element(own))
    return out.reshape((*draws.shape[2:], *out.shape[1:]))


class _Element:
    """The draws of one number [chain, draw], sorted once."""

    def __init__(self, draws: Floats) -> None:
        self.draws, self.halves = draws, _split(draws)

    @functools.cached_property
    def _order(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Which draw of the halves is the smallest, the next one, …; and these draws."""
        flat = self.halves.reshape(-1)
        order = np.argsort(flat)
        return order, flat[order]

    @functools.cached_property
    def _scaled(self) -> Floats:
        """The normal scores of the ranks."""
        order, upward = self._order
        return _placed(order, _scores(upward), self.halves.shape)

    @functools.cached_property
    def r_hat(self) -> float:
        """The larger one of values and of their distances from the median."""
        if len(self.draws) < 2:
            return math.nan
        order, upward = self._order
        middle = len(upward) // 2
        median = upward[middle] if len(upward) % 2 else np.mean(upward[middle - 1 : middle + 1])
        away = np.abs(upward - median)
        inwards = np.argsort(away, kind="stable")  # two runs that are sorted
        folded = _placed(order[inwards], _scores(away[inwards]), self.halves.shape)
        return max(_disagreement(self._scaled), _disagreement(folded))

    @functools.cached_property
    def ess_bulk(self) -> float:
        """That of the normal scores."""
        return _effective(self._scaled)

    @functools.cached_property
    def ess_tail(self) -> float:
        """The smaller one of what says whether a draw is below an end of the interval."""
        ends = np.quantile(self._order[1] if self.draws.size == self.halves.size else self.draws, TAILS)
        return min(_effective((self.halves <= end).astype(np.float64)) for end in ends)


def _split(draws: Floats) -> Floats:
    """Chains cut into halves; the draw in the middle of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _placed(order: npt.NDArray[np.int64], values: Floats, shape: tuple[int, ...]) -> Floats:
    out = np.empty(len(order))
    out[order] = values
    return out.reshape(shape)


def _scores(upward: Floats) -> Floats:
    """Normal scores of the ranks of sorted numbers; equal ones share the average of their ranks."""
    size = len(upward)
    differs = upward[1:] != upward[:-1]
    if differs.all():
        return _all_scores(size)
    begins = np.concatenate([[0], np.flatnonzero(differs) + 1, [size]])
    ranks = 0.5 * (begins[:-1] + begins[1:] + 1)
    return np.repeat(_score(ranks, size), np.diff(begins))


@functools.lru_cache(maxsize=4)
def _all_scores(size: int) -> Floats:
    scores = _score(np.arange(1.0, size + 1.0), size)
    scores.setflags(write=False)
    return scores


def _score(ranks: Floats, size: int) -> Floats:
    """Φ⁻¹ of a rank of so many (Blom 1958)."""
    return np.asarray(special.ndtri((ranks - 0.375) / (size + 0.25)))


def _disagreement(draws: Floats) -> float:
    """√(var⁺ / W): the variance of all chains together against that inside them."""
    n = draws.shape[1]
    within, between = draws.var(1, ddof=1).mean(), n * draws.mean(1).var(ddof=1)
    return float(np.sqrt((between / within + n - 1.0) / n))


def _effective(draws: Floats) -> float:
    """C n / τ, with the autocorrelations of Geyer's initial monotone sequence (1992) in τ."""
    chains, n = draws.shape
    if np.ptp(draws) < np.finfo(float).resolution:
        return float(draws.size)
    means = draws.mean(1)
    lags = _Lags(draws - means[:, None])
    within = lags(0) * n / (n - 1.0)
    whole = lags(0) + (means.var(ddof=1) if chains > 1 else 0.0)

    def pair(number: int) -> tuple[float, float]:
        """ρ of an even lag and of the next one."""
        one, two = (1.0 - (within - lags(2 * number + i)) / whole for i in (0, 1))
        return one if number else 1.0, two

    last, sums = pair(0), list[float]()
    while 2 * len(sums) + 1 < n - 3 and sum(last) > 0.0:
        # Sums of pairs never rise; the first one is as it is.
        sums.append(min(sum(last), sums[-1]) if sums else sum(last))
        last = pair(len(sums))
    rest = last[0] if last[0] > 0.0 or sum(last) >= 0.0 else 0.0
    tau = max(2.0 * math.fsum(sums) + rest - 1.0, 1.0 / math.log10(draws.size))
    return math.nan if math.isnan(sum(last)) else draws.size / tau


class _Lags:
    """Autocovariances of centred draws [chain, draw], averaged over chains."""

    def __init__(self, centred: Floats) -> None:
        self.centred, self.known = centred, dict[int, float]()
        self.all: Floats | None = None

    def __call__(self, lag: int) -> float:
        if lag <= FEW_LAGS:
            if lag not in self.known:
                n = self.centred.shape[1]
                ahead, behind = self.centred[:, lag:], self.centred[:, : n - lag]
                self.known[lag] = float(np.einsum("ij,ij->", ahead, behind)) / self.centred.size
            return self.known[lag]
        if self.all is None:
            self.all = self._transformed()
        return float(self.all[lag])

    def _transformed(self) -> Floats:
        n = self.centred.shape[1]
        length = 1 << (2 * n - 1).bit_length()
        power = (np.abs(np.fft.rfft(self.centred, length, axis=1)) ** 2).sum(0)
        return np.asarray(np.fft.irfft(power, length)[:n] / self.centred.size)


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
        if self.is_complete and not self.family.is_category:
            assert self.kept is not None
            return np.asarray(self.kept.mean((0, 1)) + self._start)
        return np.asarray(self.first.sum(0) / (self.count * len(self.first)) + self._start)

    def var(self) -> Array:
        """The variance of each element; of categories, that of each indicator."""
        if self.family.is_category:
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
        ends = tails(mass)
        if self.family.is_discrete:
            raise TypeError(f"{self.family.name} has no interval: use mean(), the probabilities.")
        if self.kept is None:
            sd = np.sqrt(np.maximum(self.var(), 1e-300))
            low, high = (self.family.matched_quantile(self.mean(), sd, end) for end in ends)
            return low, high
        values = self.values
        low, high = np.quantile(values.reshape(-1, *values.shape[2:]), ends, axis=0)
        return low, high

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Array:
        """Draws picked at random from those kept: ``n`` of them along a new first axis, or one without it."""
        values = self.values
        flat = values.reshape(-1, *values.shape[2:])
        return np.asarray(flat[sample_generator(rng, n, repr(self.name)).integers(0, len(flat), n)])

    def r_hat(self) -> Array:
        """R̂ of each element: how much chains disagree, 1 where they do not."""
        return r_hat(self._ordered())

    def ess(self, kind: Literal["bulk", "tail"] = "bulk") -> Array:
        """Independent draws that those kept are worth: for the mean ("bulk") or for ends of intervals ("tail")."""
        return ess(self._ordered(), kind)

    @property
    def is_ordered(self) -> bool:
        """Whether draws were kept, of numbers: then they have R̂ and effective sample sizes."""
        return self.kept is not None and not self.family.is_category

    def _ordered(self) -> Array:
        if self.family.is_category:
            raise TypeError(f"{self.name!r}: categories have no order, and no R̂: look at what they choose")
        return self.values

    def worst(self) -> Diagnosis | None:
        """The worst element, of some if there are many; None for categories, and where too little was kept."""
        return worst(self.kept) if self.is_ordered and self.kept is not None else None

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
    exchanged : ints [chain], in how many sweeps labels that priors distinguish changed places
    notes : sentences on what the draws may miss
    """

    _level = "draws"
    _columns = ("mean", "sd", "lower", "upper", "r_hat", "ess_bulk", "ess_tail")

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

    def _numbers(self, name: str, mass: float) -> dict[str, Array]:
        factor = self[name]
        found = super()._numbers(name, mass)
        if factor.is_ordered:
            found |= {"r_hat": factor.r_hat(), "ess_bulk": factor.ess(), "ess_tail": factor.ess("tail")}
        return found

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
        limit = LARGEST_R_HAT
        # With few draws R̂ is noisy: what it may be by chance grows as they become fewer.
        limit += max(0.0, 2.0 / np.sqrt(max(1, self.settings.n * self.settings.chains)) - 0.03)
        return {
            name: entry
            for name, entry in self.diagnosis.items()
            if entry.r_hat > limit or min(entry.ess_bulk, entry.ess_tail) < FEWEST / 4
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
