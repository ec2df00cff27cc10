"""What a model file keeps of a fitted hidden Markov model: q of its parameters and their priors; not the sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad import families as natgrad_families
from natgrad.families import TiedNormalWishart
from natgrad.inference.schema import Sizes, check, either, like, record, refuse, state_of
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.gaussian_prior import ARGUMENTS, COVARIANCES, covariance_of, prior_tables
from natgrad.models.hmm.expansions import Explicit, NegativeBinomial
from natgrad.models.hmm.kinds import OF_COVARIANCE, Categorical, EmissionKind, declared_emissions
from natgrad.models.hmm.parts import Subchains
from natgrad.models.hmm.priors import Transitions
from natgrad.models.hmm.tracks import Tracks
from natgrad.posterior.drawing import drawn_rule, saved_draws
from natgrad.posterior.files.tables import METHOD, RUN, groups_of

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.hmm.problem import HMMModel

__all__ = ["HMMFiles", "check_emissions", "tracks_table"]
# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_")
FITTED: dict[str, Any] = {
    "initial": "positive [state]",
    "transition": "positive [state, state]",
    "n_times_seen": "natural",
    "n_features": "size column",
    "feature_names?": "names [_]",
    "elbo": "float",
    "run": either({}, {"trace_": Trace, "stop_": Stop}),
    "draws?": drawn_rule,
}
GAUSSIAN = {"n_states": "size state", "origin?": ARGUMENTS["mean"]}
FAMILIES = {"full": "NormalWishart [state; column]", "diag": "NormalGamma [state, column]", "tied": "", "spherical": ""}
PAIR = "none | positive list [2]"
# Statistics of several means with one precision, by their shapes: the event of the family has two sizes.
SHAPES = {
    "TiedGaussians": ("real [1, state, column]", "real [1, state]", "real [1, column, column]", "real [1]"),
    "SphericalGaussians": ("real [state, column, 1]", "real [state, column]", "real [state, 1, 1]", "real [state]"),
    "Autoregressions": (
        "real [state, regressor, column]", "real [state, regressor, regressor]", "real [state, column, column]",
        "real [state]",
    ),
}  # fmt: skip


def _stored_method(value: Any, sizes: dict[str, int], where: str) -> None:
    """A method of every model, or subchains."""
    if not isinstance(value, Subchains):
        METHOD(value, sizes, where)


def _stored_transitions(durations: Any = "none", inputs: Any = "none") -> Any:
    """The rule of the setting ``transitions``, with these rules of its durations and inputs."""
    rows = "nonnegative | nonnegative list [state, state]"
    own = record(
        Transitions, prior=rows, initial=rows.replace("state, ", ""), sticky="nonnegative",
        topology="'ergodic' | 'left-to-right'", durations=durations, inputs=inputs,
    )  # fmt: skip
    return either("none", own)


def _stored_categories(value: Any, sizes: dict[str, int], where: str) -> None:
    """A number of categories, their labels, or a kind with these and a prior."""
    if isinstance(value, Categorical):
        check(value.emission_prior, "positive | positive list [state, category]", sizes, f"{where}.emission_prior")
        value = value.categories
    names = np.array([*value, None], object)[:-1] if isinstance(value, (list, tuple, str)) else value
    check(names, "none | size category | ids [category]", sizes, where)


SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "step"},
    "method": _stored_method,
    "n_states": either("'auto' | size state", ("'auto'", "natural")),
    "transitions": _stored_transitions(),
    "inference": "'vb' | 'gibbs'",
    "n_sweeps": "none | natural",
    "n_init": "none | natural",
    "max_passes": "none | positive",
    "max_seconds": "none | positive",
}
TRANSITIONS = _stored_transitions(either("none", NegativeBinomial, Explicit), "none | whole | text")


class Kind(NamedTuple):
    """The tables of an emission: q(φ), what its prior is made of, the model it belongs to and the settings of that."""

    family: str
    arguments: dict[str, Any]
    model: str
    settings: dict[str, Any]


KINDS = {
    **{
        OF_COVARIANCE[kind]: Kind(family, {**GAUSSIAN, **prior_tables(kind)[1]}, "GaussianHMM", prior_tables(kind)[0])
        for kind, family in FAMILIES.items()
    },
    "Autoregressions": Kind(
        "",
        {
            "n_states": "size state",
            "order": "whole in [1, 1e6]",
            "centre": ARGUMENTS["mean"],
            "scale": "positive [regressor]",
            "dof": ARGUMENTS["dof"],
            "rate": "real [column, column]",
        },
        "HMM",
        {},
    ),
    "Poissons": Kind(
        "Gamma [state, column]",
        {"n_states": "size state", "n_columns": "size column", "shape": "positive", "rate": "positive"},
        "PoissonHMM",
        {"rate_prior": PAIR},
    ),
    "Bernoullis": Kind(
        "Beta [state, column]",
        {"n_states": "size state", "n_columns": "size column", "a": "positive", "b": "positive"},
        "BernoulliHMM",
        {"track_prior": PAIR},
    ),
    "Categories": Kind(
        "Dirichlet [state; category]",
        {
            "n_states": "size state",
            "n_categories": "size category",
            "concentration": "positive [] | positive [state, category]",
        },
        "CategoricalHMM",
        {"categories": _stored_categories},
    ),
}


def state_table(
    emission: str, tracks: list[Mapping[str, Any]] | None = None, durations: Any = None, inputs: bool = False
) -> Any:
    """The table of a state with emissions of this kind, or of these tracks; q(x) is never remembered."""
    rows = "Dirichlet [input, state; state]" if inputs else "Dirichlet [state; state]"
    blocks: dict[str, Any] = {"initial": "Dirichlet [; state]", "transition": rows}
    if durations is not None:
        blocks["duration"] = "Dirichlet [state; duration]" if durations.part(1).family.is_simplex else "Beta [state]"
    said: dict[str, Any] = {name: like(rule) for name, rule in blocks.items()}
    tied: dict[str, Any] = {}
    if tracks is not None:
        own, told, tied, _ = tracks_table(tracks)
        blocks, said = {**blocks, **own}, {**said, **told}
    elif emission in SHAPES:
        blocks["emission"], said["emission"] = tied_natural(emission, SHAPES[emission]), SHAPES[emission]
        tied["emission"] = family_of(emission)
    else:
        blocks["emission"] = KINDS[emission].family
        said["emission"] = like(blocks["emission"])
    families = {name: tied[name] if name in tied else named_family(rule) for name, rule in blocks.items()}

    def moments(name: str, lam: Any) -> Any:
        return families[name].expected_stats(lam)

    return state_of(blocks, memory=groups_of(said, ()), moments=moments if tied else None)


def named_family(rule: str) -> Any:
    """The family that a rule names."""
    return getattr(natgrad_families, rule.split()[0])()


def family_of(emission: str) -> Any:
    """The family of an emission whose shapes are in `SHAPES`."""
    return natgrad_families.MatrixNormalWishart() if emission == "Autoregressions" else TiedNormalWishart()


def tied_natural(emission: str, shapes: tuple[str, ...]) -> Any:
    """The table of natural parameters of these shapes."""
    family = family_of(emission)

    def of(value: Any, sizes: Any, where: str) -> None:
        check(value, tuple(f"{shape} in [-1e150, 1e150]" for shape in shapes), sizes, where)
        matrices = [part for part, symmetric in zip(value, family.symmetric, strict=True) if symmetric]
        for part in matrices:
            off = np.abs(part - np.swapaxes(part, -1, -2)).max(initial=0.0)
            if not off <= 1e-6 * np.abs(part).max(initial=0.0):
                refuse(where, "must be symmetric if it is a matrix")
        if any(part.dtype != np.float64 for part in value):
            refuse(where, "must be of double precision")
        if not np.all(family.valid(value)):
            refuse(where, f"is outside the natural parameters of a {family.name}")

    return of


def run_table(model: HMMModel) -> tuple[Any, dict[str, int]]:
    """The table of a state of a run, and its sizes."""
    if isinstance(model.emission, Tracks):
        own = None if model.chain is None else model.chain.durations
        sizes = {"state": model.n_states, **({} if own is None else {"duration": own.size})}
        inputs = model.transition.ndim == 3
        sizes |= {"input": len(model.transition)} if inputs else {}
        return state_table("Tracks", model.emission.arguments["tracks"], own, inputs), sizes
    sizes = {"state": model.n_states, "column": getattr(model.emission, "n_columns", 1)}
    sizes["category"] = getattr(model.emission, "n_categories", 1)
    return state_table(type(model.emission).__name__), sizes


def _declared(value: Any, sizes: Any, where: str) -> None:
    """Kinds of emissions, or nothing; whether they are those of the fit is asked later."""
    from natgrad.models.hmm.kinds import EmissionKind

    kinds = list(value.values()) if isinstance(value, dict) else [value]
    if value is not None and not (kinds and all(isinstance(kind, EmissionKind) for kind in kinds)):
        refuse(where, f"= {value!r} is no kind of emission, nor {{column: kind}}")


def _general_tables(settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
    """Those of `HMM`: a plain emission, or tracks."""
    name, width = fitted.get("emission"), fitted.get("n_features")
    check(name, " | ".join(f"'{kind}'" for kind in (*KINDS, "Tracks")), where="fitted['emission']")
    check(width, "whole in [1, 1e6]", where="fitted['n_features']")
    tracks = checked_tracks(fitted.get("arguments")) if name == "Tracks" else None
    _declared(settings["emissions"], {}, "settings['emissions']")
    check(own := settings["transitions"], TRANSITIONS, where="settings['transitions']")
    durations, inputs = (None, None) if own is None else (own.durations, own.inputs)
    if inputs is not None and (tracks is None or int(width) < 2):  # type: ignore[arg-type]
        refuse("settings['transitions'].inputs", "belong to emissions of tracks, and to a column besides")
    check_emissions(settings["emissions"], tracks, str(name), int(width) - (inputs is not None))  # type: ignore[arg-type]
    if durations is not None and (tracks is None or inputs is not None):
        refuse("settings['transitions'].durations", "belong to emissions of tracks without inputs")
    arguments = KINDS[str(name)].arguments if tracks is None else tracks_table(tracks)[3]
    of_state = state_table(str(name), tracks, durations, inputs is not None)
    table = {"state": of_state, "emission": "text", "arguments": arguments, **FITTED}
    table |= {"categories?": _named_labels}
    if inputs is not None:
        table |= {"inputs": "ids [input]", "transition": "positive [input, state, state]"}
    if tracks is not None:
        table["n_features"] = f"whole in [{width}, {width}]"
    if durations is not None:
        table["state"] = _sized(table["state"], "duration", durations.size)
    return {**SETTINGS, "emissions": _declared, "transitions": TRANSITIONS}, table


def _sized(rule: Any, name: str, size: int) -> Any:
    """A rule with a size that is known before."""

    def of(value: Any, sizes: Any, where: str) -> None:
        sizes[name] = size
        check(value, rule, sizes, where)

    return of


def _named_labels(value: Any, sizes: Any, where: str) -> None:
    """{track: labels}, as many as the track has categories."""
    check(value, dict, sizes, where)
    for name, labels in value.items():
        check(name, "text", sizes, where)
        check(labels, "ids [_]", sizes, f"{where}[{name!r}]")


class HMMFiles(Estimator):
    """The hooks of `Estimator` for hidden Markov models."""

    n_times_seen_: int
    n_features_in_: int
    elbo_: float
    categories_: Any
    inputs_: Any
    feature_names_in_: Any
    _state: State
    _model_: HMMModel

    def _publish(self, model: HMMModel, state: State) -> None:
        raise NotImplementedError

    def _chain(self, n_states: int) -> Any:
        raise NotImplementedError

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        if cls.__name__ == "HMM":
            return {**SETTINGS, "emissions": _declared, "transitions": TRANSITIONS}
        kinds = [kind.settings for kind in KINDS.values() if kind.model == cls.__name__]
        if "covariance" in kinds[0]:
            return {**SETTINGS, "covariance": covariance_of(tuple(COVARIANCES))}
        return {**SETTINGS, **kinds[0]}

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        name = fitted.get("emission")
        if cls.__name__ == "HMM":
            return _general_tables(settings, fitted)
        check(name, " | ".join(f"'{kind}'" for kind in KINDS), where="fitted['emission']")
        kind = KINDS[str(name)]
        if kind.model != cls.__name__:
            refuse("fitted['emission']", f"= {name!r} is not for a {cls.__name__}")
        table = {"state": state_table(str(name)), "emission": "text", "arguments": kind.arguments, **FITTED}
        if name == "Categories":
            table |= {"n_features": "whole in [1, 1]", "categories?": "ids [category]"}
        return {**SETTINGS, **kind.settings}, table

    def _saved(self) -> dict[str, Any]:
        model, named = self._model_, getattr(self, "categories_", None)
        return {
            **({"categories": named} if named is not None and len(named) else {}),
            **({"inputs": self.inputs_} if model.transition.ndim == 3 else {}),
            **({"feature_names": self.feature_names_in_} if hasattr(self, "feature_names_in_") else {}),
            **({"draws": self.draws_.content()} if "draws_" in vars(self) else {}),
            "state": self._state,
            "initial": model.initial,
            "transition": model.transition,
            "emission": type(model.emission).__name__,
            "arguments": model.emission.arguments,
            "n_times_seen": self.n_times_seen_,
            "n_features": self.n_features_in_,
            "elbo": self.elbo_,
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        from natgrad.models.hmm.emissions import EMISSIONS
        from natgrad.models.hmm.problem import HMMModel

        for name, own in (("categories", "categories_"), ("inputs", "inputs_"), ("feature_names", "feature_names_in_")):
            if name in saved:
                setattr(self, own, saved[name])
        kind: Any = Tracks if saved["emission"] == "Tracks" else EMISSIONS[saved["emission"]]
        emission = kind(**saved["arguments"])
        chain = self._chain(len(saved["initial"]))
        self._publish(HMMModel(saved["initial"], saved["transition"], emission, chain), saved["state"])
        if "draws" in saved:
            self._use_draws(saved_draws(saved["draws"]))
        self.n_times_seen_, self.n_features_in_ = saved["n_times_seen"], saved["n_features"]
        self.elbo_ = saved["elbo"]
        for name, value in saved["run"].items():
            setattr(self, name, value)


TRACK = {
    "name": "text",
    "columns": "whole list [_]",
    "kind": " | ".join(f"'{kind}'" for kind in KINDS),
    "arguments": dict,
    "n_components": "whole in [1, 1e6]",
    "weight_prior": "positive",
    "dof": "none | positive",
}


def checked_tracks(arguments: Any) -> list[Mapping[str, Any]]:
    """What tracks are made of, as far as tables of their blocks need it."""
    check(arguments, {"n_states": "natural", "tracks": [TRACK]}, where="fitted['arguments']")
    return list(arguments["tracks"])


def tracks_table(tracks: list[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]:
    """Tables of λ of the blocks and of messages to them; families of blocks that no rule names; the table of the arguments."""
    blocks: dict[str, Any] = {}
    said: dict[str, Any] = {}
    tied: dict[str, Any] = {}
    each = []
    for number, track in enumerate(tracks):
        name, m, kind = track["name"], track["n_components"], track["kind"]
        sizes = {size: f"{size}{number}" for size in ("column", "category", "regressor")}
        own = {key: _renamed(rule, sizes) for key, rule in KINDS[kind].arguments.items()}
        own["n_states"] = _leaves(m)
        if kind == "TiedGaussians" and m > 1:
            refuse("fitted['arguments']", "has components that share one precision with other states")
        if kind in SHAPES:
            shapes = tuple(_renamed(shape, sizes) for shape in SHAPES[kind])
            if m > 1:
                shapes = tuple(shape.replace("[state", f"[state, component{number}") for shape in shapes)
            blocks[name], said[name] = tied_natural(kind, shapes), shapes
            tied[name] = family_of(kind)
        else:
            rule = _renamed(KINDS[kind].family, sizes)
            rule = rule.replace("[state", f"[state, component{number}") if m > 1 else rule
            blocks[name], said[name] = rule, like(rule)
        if m > 1:
            weights = f"{name}_weights"
            if weights in blocks:
                refuse("fitted['arguments']", f"has two blocks called {weights!r}")
            blocks[weights] = f"Dirichlet [state; component{number}]"
            said[weights] = like(blocks[weights])
        each.append({**TRACK, "arguments": own, "columns": f"whole list [column{number}]", "n_components": _same(m)})
    if len(blocks) != sum(1 + (track["n_components"] > 1) for track in tracks):
        refuse("fitted['arguments']", "has two tracks of the same name")
    return blocks, said, tied, {"n_states": "size state", "tracks": tuple_like(each)}


def check_emissions(value: Any, tracks: list[Mapping[str, Any]] | None, emission: str, width: int) -> None:
    """Refuse a setting ``emissions`` that is not what was fitted."""
    where = "settings['emissions']"
    try:
        named = declared_emissions(value, width)
    except (TypeError, ValueError) as reason:
        refuse(where, f"does not fit the columns: {reason}")
    if tracks is None:
        if isinstance(value, Mapping) or not named[0][2].plain or named[0][2].kind != emission:
            refuse(where, f"is not of the fitted {emission}")
        return
    if [(name, list(columns)) for name, columns, _ in named] != [(t["name"], list(t["columns"])) for t in tracks]:
        refuse(where, "names other columns than the fitted emissions")
    for (name, _, kind), track in zip(named, tracks, strict=True):
        if not _agrees(kind, track):
            refuse(where, f"[{name!r}] is not what was fitted")


def _agrees(kind: EmissionKind, track: Mapping[str, Any]) -> bool:
    extras = {"n_components": 1, "dof": None, **kind.extras()}
    return kind.kind == track["kind"] and all(extras[key] == track[key] for key in ("n_components", "dof"))


def tuple_like(rules: list[Any]) -> Callable[[Any, Sizes, str], None]:
    """A list with a table for each of its parts."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        for place, (part, rule) in enumerate(zip(value, rules, strict=True)):
            check(part, rule, sizes, f"{where}[{place}]")

    return of


def _renamed(rule: Any, sizes: Mapping[str, str]) -> Any:
    if isinstance(rule, str):
        for name, own in sizes.items():
            rule = rule.replace(name, own)
    return rule


def _leaves(m: int) -> Callable[[Any, Sizes, str], None]:
    """K · m, whole."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, "natural", sizes, where)
        if "state" in sizes and value != sizes["state"] * m:
            refuse(where, f"= {value!r} is not {m} for each of {sizes['state']} states")

    return of


def _same(m: int) -> Callable[[Any, Sizes, str], None]:
    return lambda value, sizes, where: None if value == m else refuse(where, f"= {value!r} is not {m}")
