"""What each option of the ready models can do: every cell of the tables in `docs/abilities.md` is tried, or refused in words.

The options are in `cases.py`, what is tried of them in `promises.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from promises.cases import CASES, CHAINS, FIRST, MIXTURES, RATINGS
from promises.promises import ABILITIES, CHARTER, answers, kind_of, same, sizes

from natgrad.errors import NotConverged, PlateMismatch
from natgrad.models import hmm
from natgrad.models.registry import ABILITIES as TITLES
from natgrad.models.registry import COMMANDS, KINDS, MODELS, NETWORK_MODELS, model_class

PAGE = Path(__file__).parents[2] / "docs" / "abilities.md"
ONE_OUTPUT = tuple(name for name in CASES["Gaussian processes"] if "outputs" not in name)
OTHER_RATINGS = ("likes and dislikes", "likes alone", "likes, n_negatives=2", "likes, features", "ordinal", "poisson")
ALONG = ("StateSpaceGP", 'StateSpaceGP("auto")')
IN_CONTEXT = ("times", "contexts", "times and contexts")
WEIGHED = ("CorrelatedTopics", "DynamicTopics", "AuthorTopics")  # documents without a choice for each word
WHOLE_ROWS = (
    'GaussianHMM("full")', 'GaussianHMM("tied")', "StudentT()", 'StudentT("tied")', "Mixture(Gaussian())",
    "durations=NegativeBinomial", "durations=Explicit", "inputs", 'topology="left-to-right"',
    'GaussianHMM("auto")', 'HMM("auto") of StudentT', "subchains", "batches of sequences",
)  # fmt: skip
# What is refused, of which options, and the words that say why, or what to do instead; None is every option of a family.
REFUSED: dict[str, list[tuple[str, tuple[str, ...] | None, str]]] = {
    "`n_jobs`": [
        (family, options, "argument 'n_jobs': the threads of its fit are not chosen. Leave it out")
        for family, options in (("Ratings", IN_CONTEXT), ("Gaussian processes", None), ("Topic networks", None))
    ],
    "`update`": [("Topic networks", None, "keeps no data of its fit; partial_fit() takes more of them in")],
    "`forget`": [("Topic networks", None, "keeps no data of its fit; fit() again, with all that count")],
    "`executor=`": [
        ("Ratings", ('ratings, inference="gibbs"',), 'inference="vb"'),
        ("Topics", ('inference="gibbs"',), 'inference="vb"'),
        ("Topic networks", ("SupervisedLDA",), "leave executor= out"),
        ("Gaussian processes", None, "argument 'executor': this process computes its fit. Leave it out"),
    ],
    "`fit` to a stream": [("Topics", ('inference="gibbs"',), 'inference="vb"')],
    "`partial_fit`": [
        ("Ratings", ('ratings, inference="gibbs"',), "update(X) keeps all ratings"),
        ("Gaussian processes", (*ALONG, "VecchiaGPRegressor"), "update(X, y) takes more rows"),
    ],
    "`draws`": [
        ("Topics", None, 'LDA(inference="gibbs") fits by collapsed Gibbs'),
        ("Topic networks", WEIGHED, "write the rows out as often as they count"),
        ("Ratings", tuple(name for name in RATINGS if name not in IN_CONTEXT), 'fit with inference="gibbs"'),
        ("Gaussian processes", None, "sample(X, n) draws functions"),
    ],
    "`linear_response`": [
        ("Topics", ('inference="gibbs"',), "fit with inference='vb' (and local='vb')"),
        ("Ratings", OTHER_RATINGS, "declare the model as a network"),
        ("Ratings", ('ratings, inference="gibbs"',), "posterior_ and interval have their spread"),
    ],
    "`calibrate`": [
        ("Hidden Markov models", tuple(name for name in CHAINS if "Mixture" in name), "can change places"),
        ("Hidden Markov models", tuple(name for name in CHAINS if "Autoreg" in name), "are given and not drawn"),
        ("Hidden Markov models", ("inputs",), "inputs= are known and not drawn"),
        *(
            (family, None, "declare the model as a network")
            for family in ("Topics", "Topic networks", "Ratings", "Gaussian processes")
        ),
    ],
    "`sample_weight`": [
        *((family, None, "'sample_weight': here every row counts once") for family in CASES if family != "Mixtures"),
    ],
    "missing entries": [
        ("Hidden Markov models", tuple(name for name in CHAINS if "Autoreg" in name), "an Autoregressive of its own"),
        ("Hidden Markov models", WHOLE_ROWS, 'covariance="diag" takes single entries'),
        ("Mixtures", tuple(name for name in MIXTURES if "diag" not in name and "sph" not in name), 'covariance="diag"'),
        ("Topics", None, "give raw counts"),
        ("Topic networks", ("CorrelatedTopics",), "give raw counts"),
        ("Topic networks", ("DynamicTopics", "AuthorTopics"), "leave out"),
        ("Ratings", IN_CONTEXT, "leave out what was not rated"),
        ("Gaussian processes", ONE_OUTPUT, "leave out rows with NaN"),
    ],
}


def refusal(family: str, option: str, ability: str) -> str | None:
    """The words with which a cell is refused; None where it works."""
    for where, options, words in REFUSED.get(ability, []):
        if where == family and (options is None or option in options):
            return words
    return None


@pytest.mark.parametrize("name", [*MODELS, *NETWORK_MODELS])
def test_a_class_says_what_some_of_its_options_can_do(name: str) -> None:
    cls = model_class(name)
    assert any(isinstance(case.made(), cls) for cases in CASES.values() for case in cases.values()), (
        "a model without a case"
    )
    works = {
        ability
        for family, cases in CASES.items()
        for option, case in cases.items()
        if isinstance(case.made(), cls)
        for ability, title in TITLES.items()
        if refusal(family, option, title) is None
    }
    assert works == cls.abilities & TITLES.keys()


@pytest.mark.parametrize("name", [*MODELS, *NETWORK_MODELS])
def test_abilities_and_kinds_are_those_there_are(name: str) -> None:
    cls = model_class(name)
    assert cls.kind in KINDS
    assert cls.abilities <= {*TITLES, *COMMANDS}


PROMISES = {**ABILITIES, **CHARTER}
# Of these cells the gate tries one in seven, others for every seed (NATGRAD_TEST_SEED), so that seven seeds try all of them;
# every option is tried for three promises, and every promise of nine options, at least. `make slow` tries every cell.
ONE_IN = 7
SEED = int(os.environ.get("NATGRAD_TEST_SEED", "0"))
# What takes seconds is left to it.
SECONDS = ("`report`", "`linear_response`", "command line", "`calibrate`", 'kernel="auto"', 'n_inducing="auto"')

# A quarter of a minute a cell; `models/gp/test_linear_response.py` and tests of networks try it on smaller ones.
ELSEWHERE = (("Gaussian processes", "`linear_response`"), ("Topic networks", "`linear_response`"))


def cells() -> Iterator[Any]:
    options = [(family, option) for family, cases in CASES.items() for option in cases]
    for row, (family, option) in enumerate(options):
        for column, promise in enumerate(PROMISES):
            every = ONE_IN * 3 if promise in SECONDS or option in SECONDS else ONE_IN
            chosen = (row + 3 * column) % every == SEED % every and (family, promise) not in ELSEWHERE
            chosen &= not (
                promise in ("stream, resume", "few rows", "refused batches") and "auto" in option
            )  # moves in chunks of a few rows: 20 seconds
            yield pytest.param(family, option, promise, marks=[] if chosen else [pytest.mark.slow])


CELLS = list(cells())


@pytest.mark.filterwarnings("error:this fit runs VB:UserWarning")  # what is not sampled says so
@pytest.mark.parametrize(("family", "option", "ability"), CELLS)
def test_ability(family: str, option: str, ability: str, tmp_path: Path) -> None:
    words = refusal(family, option, ability)
    case = CASES[family][option]
    if words is None:
        PROMISES[ability](case, tmp_path)
    else:
        with pytest.raises(
            (AttributeError, TypeError, ValueError, AssertionError, NotConverged, PlateMismatch, UserWarning),
            match=re.escape(words),
        ):
            PROMISES[ability](case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("name", FIRST)
def test_more_rows_are_fitted_by_the_same_inference(name: str, n: int, tmp_path: Path) -> None:
    sizes(n)(FIRST[name], tmp_path)
    small, large = FIRST[name].of_size(100), FIRST[name].of_size(n)
    kinds = {kind_of(FIRST[name].made().fit(*data, **named)) for data, named in (small, large)}
    assert len(kinds) == 1, kinds


def table_of(family: str) -> str:
    """The table of a family: a row for each option, a column for each ability that some options have and others not."""
    cases = CASES[family]
    cells = {(option, name): refusal(family, option, name) is None for option in cases for name in ABILITIES}
    differing = [name for name in ABILITIES if len({cells[option, name] for option in cases}) == 2]
    all_have = [name for name in ABILITIES if all(cells[option, name] for option in cases)]
    lines = [f"All of them: {'; '.join(all_have)}."]
    if none_have := [name for name in ABILITIES if not any(cells[option, name] for option in cases)]:
        lines += ["", f"None of them: {'; '.join(none_have)}."]
    if differing:
        lines += ["", "| option | " + " | ".join(differing) + " |", "|---|" + "---|" * len(differing)]
        for option in cases:
            row = ("yes" if cells[option, name] else "no" for name in differing)
            lines.append(f"| `{option}` | " + " | ".join(row) + " |")
    return "\n".join(lines)


@pytest.mark.parametrize("family", CASES)
def test_the_table_of_the_docs_is_this_one(family: str) -> None:
    assert f"## {family}\n\n{table_of(family)}\n" in PAGE.read_text(encoding="utf-8"), table_of(family)


@pytest.mark.parametrize("durations", [hmm.NegativeBinomial(3), hmm.Explicit(5)])
def test_simulated_states_last_as_their_durations_say(durations: object) -> None:
    """They were those of a chain that leaves every state at once, and calibrate() judged intervals by them."""
    X = np.repeat([0.0, 12.0] * 4, 7)[:, None] + np.random.default_rng(0).normal(size=(56, 1))
    model = hmm.HMM(2, transitions=hmm.Transitions(durations=durations), n_init=1, max_passes=3, verbose=False).fit(X)
    for seed in range(5):
        states = model._simulated(200, np.random.default_rng(seed))[2]
        stays = np.diff(np.flatnonzero(np.diff(states, prepend=-1, append=-1)))[:-1]
        if isinstance(durations, hmm.NegativeBinomial):
            assert stays.min() >= 3
        else:
            assert stays.max() <= 5
            assert stays.max() > 1


@pytest.mark.slow
def test_what_is_certain_has_any_rank() -> None:
    """With two states that last, where one leads to is known: ranks of what cannot differ must not count as misses."""
    X = np.repeat([0.0, 12.0] * 4, 7)[:, None] + np.random.default_rng(0).normal(size=(56, 1))
    model = hmm.HMM(
        2, transitions=hmm.Transitions(durations=hmm.NegativeBinomial(2)), n_init=1, max_passes=5, verbose=False
    ).fit(X)
    assert model.calibrate(20, size=40).coverage(0.9)["transition"] > 0.6


def test_a_run_that_ended_with_a_phase_enters_the_next_one_when_it_goes_on(tmp_path: Path) -> None:
    """Precisions are held in the first phase: what was remembered of its bound was kept."""
    case = RATINGS["likes, n_negatives=2"]
    whole = case.fitted(max_steps=8)
    for steps in (2, 3, 6):
        case.fitted({"checkpoint": tmp_path / str(steps)}, max_steps=steps)
        resumed = case.fitted({"checkpoint": tmp_path / str(steps), "resume": True}, max_steps=8)
        same(answers(whole, case), answers(resumed, case))


ON_WORKERS = [
    pytest.param(family, option, id=option)
    for family, cases in CASES.items()
    for option in cases
    if refusal(family, option, "`executor=`") is None
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask's own
@pytest.mark.parametrize(("family", "option"), ON_WORKERS)
def test_workers_in_processes_of_their_own_give_the_same_bits(family: str, option: str, cluster: Any) -> None:
    case = CASES[family][option]
    same(answers(case.fitted(**case.shared), case), answers(case.fitted(**case.shared, executor=cluster), case))
