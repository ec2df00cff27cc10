"""Forged model files with a right digest: each loads as a model that can be used, or is refused; no process dies of one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from adversary import cases
from adversary.forgeries import forged_field, outcomes

import natgrad as ng
from natgrad.posterior.factor import Factor
from natgrad.posterior.files.container import read_model, write_model

SCRIPT = Path(cases.__file__)
# Whose fits take no time.
PRIOR = {"n_states": 2, "scale": 0.01, "dof": 4.0, "rate": np.eye(2)}
MIXTURE = {"alpha": np.ones(2), "covariance": "tied", "mean": np.zeros(2), **PRIOR, "origin": np.zeros(2)}
MIXTURE.pop("n_states")
QUICK = [
    "LDA", "known precisions", "poisson", 'GaussianHMM("full")', "CategoricalHMM", "several tracks", 'covariance="tied"',
    "SparseGPRegressor", "table",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name in QUICK:
        place = folder / name
        place.mkdir()
        (place / "model").write_bytes(cases.made(name, place))
    return folder


@pytest.mark.parametrize("name", QUICK)
def test_a_forged_file_loads_or_is_refused(name, files, tmp_path) -> None:
    data, target, refused = (files / name / "model").read_bytes(), tmp_path / "forged", 0
    for seed in range(50):
        target.write_bytes(forged_field(data, np.random.default_rng(seed)))
        try:
            ng.load(target)
        except ng.ModelFileError:
            refused += 1
    assert 10 < refused < 50


def changed(source, target, change):
    """The file with its contents changed by a function, and a right digest."""
    stored = read_model(source)
    write_model(target, stored.kind, change(stored.value))
    return target


def longer(block, part, times=50):
    """A file whose array of a block has so many times the rows, in λ and in μ alike."""

    def change(value):
        fitted = dict(value["fitted"])
        state = fitted["state"]
        for field in ("lam", "mu"):
            arrays = list(getattr(state, field)[block])
            arrays[part] = np.concatenate([arrays[part]] * times)
            state = state._replace(**{field: {**getattr(state, field), block: tuple(arrays)}})
        return {**value, "fitted": {**fitted, "state": state}}

    return change


@pytest.mark.parametrize(
    ("name", "block"),
    [('GaussianHMM("full")', "transition"), ('GaussianHMM("full")', "emission"), ("CategoricalHMM", "emission"), ("LDA", "phi"),
     ('covariance="tied"', "weights"), ('covariance="tied"', "components"),
     ("known precisions", "u"), ("known precisions", "v"), ("poisson", "item_rate")],
)  # fmt: skip
def test_arrays_of_a_file_are_checked_against_each_other(name, block, files, tmp_path) -> None:
    """Fifty times the rows of transitions ended the process in ``predict``."""
    with pytest.raises(ng.ModelFileError, match="must have the shape"):
        ng.load(changed(files / name / "model", tmp_path / "forged", longer(block, 0)))


def fitted_with(**parts):
    return lambda value: {**value, "fitted": {**value["fitted"], **parts}}


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("LDA", {"n_words": 10**12}, "arrays have word = 12"),
        ("LDA", {"vocabulary": np.array(["same"] * 12, dtype=object)}, "same name twice"),
        ("LDA", {"topic_prior": np.nan}, "topic_prior"),
        ('GaussianHMM("full")', {"initial": np.array([1.0, -1.0])}, "positive"),
        ('GaussianHMM("full")', {"arguments": {**PRIOR, "mean": np.array([0.0, 1e308])}}, "mean"),
        ('GaussianHMM("full")', {"n_features": 3}, "arrays have column = 2"),
        ('GaussianHMM("full")', {"emission": "Poissons"}, "not for a GaussianHMM"),
        ('covariance="tied"', {"n_features": 3}, "arrays have column = 2"),
        ('covariance="tied"', {"model": {**MIXTURE, "alpha": np.array([1.0, -1.0])}}, "alpha"),
        ('covariance="tied"', {"model": {**MIXTURE, "alpha": np.ones(3)}}, "must have the shape"),
        ('covariance="tied"', {"model": {**MIXTURE, "rate": -np.eye(2)}}, "rate"),
        ('covariance="tied"', {"model": {**MIXTURE, "covariance": "full"}}, "must have the shape"),
        ('covariance="tied"', {"model": {**MIXTURE, "covariance": ["full"]}}, "covariance"),
        ('covariance="tied"', {"model": None}, "model"),
        ("SparseGPRegressor", {"offset": np.zeros(2)}, "output=2"),
        ("SparseGPRegressor", {"x_scaling": (np.zeros(2), np.zeros(2))}, "x_scaling.* got 0"),
        ("SparseGPRegressor", {"another": 1}, "another"),
    ],
)
def test_ranges_and_names_are_checked(name, parts, said, files, tmp_path) -> None:
    with pytest.raises(ng.ModelFileError, match=said):
        ng.load(changed(files / name / "model", tmp_path / "forged", fitted_with(**parts)))


def test_a_matrix_must_be_positive_definite(files, tmp_path) -> None:
    def change(value):
        first, second = value["fitted"]["lam"]
        return {**value, "fitted": {**value["fitted"], "lam": (first, -second)}}

    with pytest.raises(ng.ModelFileError, match="outside the natural parameters of a MultivariateNormal"):
        ng.load(changed(files / "SparseGPRegressor" / "model", tmp_path / "forged", change))


def test_ratings_are_of_users_and_items_that_are_there(files, tmp_path) -> None:
    from adversary.forgeries import parts_of, together

    header, content, arrays = parts_of((files / "poisson" / "model").read_bytes())
    name = content["fitted"]["ratings"]["fields"]["users"]["$array"]
    arrays[name] = arrays[name] + 1000
    (tmp_path / "forged").write_bytes(together(header, content, arrays))
    with pytest.raises(ng.ModelFileError):
        ng.load(tmp_path / "forged")


def test_what_was_observed_of_a_factor_that_is_hidden_is_refused(files, tmp_path) -> None:
    """The means of such a model were no numbers."""

    def change(value):
        posterior = value["fitted"]["posterior"]
        forged = {**posterior, "u": replace(posterior["u"], seen=2**63)}
        return {**value, "fitted": {**value["fitted"], "posterior": forged}}

    with pytest.raises(ng.ModelFileError, match=r"posterior\['u'\].seen"):
        ng.load(changed(files / "known precisions" / "model", tmp_path / "forged", change))


def test_moments_follow_from_natural_parameters(files, tmp_path) -> None:
    def change(value):
        state = value["fitted"]["state"]
        mu = {**state.mu, "phi": (2.0 * state.mu["phi"][0],)}
        return {**value, "fitted": {**value["fitted"], "state": state._replace(mu=mu)}}

    with pytest.raises(ng.ModelFileError, match="is not what follows from the natural parameters"):
        ng.load(changed(files / "LDA" / "model", tmp_path / "forged", change))


def test_what_is_remembered_of_other_documents_is_forgotten() -> None:
    """Rows of a batch that has other documents now would be read beyond their end."""
    model = ng.LDA(2, inference="vb", max_passes=2, tol=0, local=ng.LocalOptions(batch_size=8)).fit(cases.COUNTS)
    model.continue_fit(cases.COUNTS[:19], 1)
    assert model.posterior_["theta"].lam[0].shape == (19, 2)


def test_priors_can_be_learned_from_here_on() -> None:
    model = (
        ng.LDA(2, inference="vb", max_passes=2, tol=0, local=ng.LocalOptions(batch_size=8))
        .fit(cases.COUNTS)
        .set_params(doc_prior="learn", topic_prior="learn")
    )
    model.continue_fit(cases.COUNTS, 2)
    assert not np.array_equal(model.doc_prior_, [0.1, 0.1])


@pytest.mark.parametrize("name", ["LDA", 'GaussianHMM("full")'])
def test_a_forged_checkpoint_is_refused(name, tmp_path) -> None:
    data = cases.made(f"checkpoint of {name}", tmp_path)
    (tmp_path / "right").write_bytes(data)
    block = {"LDA": "phi", 'GaussianHMM("full")': "transition"}[name]

    def change(value):
        state = longer(block, 0)({"fitted": {"state": value["run"].state}})["fitted"]["state"]
        return {**value, "run": value["run"]._replace(state=state)}

    with pytest.raises(ng.ModelFileError, match="must have the shape"):
        cases.used(f"checkpoint of {name}", changed(tmp_path / "right", tmp_path / "forged", change))


def _remembered(change):
    """A checkpoint whose run remembers something else."""

    def changed(value):
        state = value["run"].state
        key = "groups" if "groups" in state.memory else min(state.memory)
        memory = {**state.memory, key: change(state.memory[key])}
        return {**value, "run": value["run"]._replace(state=state._replace(memory=memory))}

    return changed


def _another_row(memory):
    return _other_rows(memory, lambda rows: {"z": (rows["z"][0][:-1],)})


def _other_rows(memory, change):
    batches = (kept and kept._replace(rows=[change(part) for part in kept.rows]) for kept in memory.batches)
    return memory._replace(batches=tuple(batches))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_another_row, "must have the shape"),
        (lambda memory: _other_rows(memory, lambda rows: {"x": rows["z"]}), "z"),
        (lambda memory: memory._replace(messages={}), "has sums of the shapes"),
        (lambda memory: memory._replace(cut=(*memory.cut[:2], 7)), "cut"),
    ],
)
def test_a_forged_memory_of_a_mixture_is_refused(change, said, checkpoint_of_mixture, tmp_path) -> None:
    """In the middle of its first pass a run began anew without a word, and without a start: its components were all alike."""
    with pytest.raises(ng.ModelFileError, match=said):
        cases.used("checkpoint of mixture", changed(checkpoint_of_mixture, tmp_path / "forged", _remembered(change)))


def test_forged_sums_of_one_batch_of_a_mixture_are_refused(checkpoint_of_mixture, tmp_path) -> None:
    """They are taken out of the whole when the batch is visited again, which ended in errors of NumPy."""

    def change(memory):
        def longer(kept):
            told = {name: tuple(np.repeat(np.atleast_1d(p), 3) for p in parts) for name, parts in kept.messages.items()}
            return kept._replace(messages=told)

        return memory._replace(batches=tuple(None if kept is None else longer(kept) for kept in memory.batches))

    with pytest.raises(ng.errors.ModelFileError, match=r"batches\[0\] has sums of the shapes"):
        cases.used("checkpoint of mixture", changed(checkpoint_of_mixture, tmp_path / "forged", _remembered(change)))


def _doubled(memory):
    return memory._replace(messages={key: (2.0 * part,) for key, (part,) in memory.messages.items()})


def test_forged_sums_of_a_mixture_are_made_anew(checkpoint_of_mixture, tmp_path) -> None:
    """They are those of their batches, and not of the data."""

    def change(memory):
        return _doubled(memory)._replace(batches=tuple(kept and _doubled(kept) for kept in memory.batches))

    fits = []
    for name, how in (("right", lambda memory: memory), ("forged", change)):
        folder = tmp_path / name
        folder.mkdir()
        changed(checkpoint_of_mixture, folder / "checkpoint-000000000002.natgrad", _remembered(how))
        fits.append(cases.CASES["mixture"].fit(checkpoint=folder, every=1000, resume=True))
    right, forged = fits
    assert forged.trace["elbo"][-1] == pytest.approx(right.trace["elbo"][-1], rel=1e-12)


@pytest.mark.parametrize("name", ["mixture", "table, chunks"])
def test_sums_of_a_network_that_are_not_those_of_their_batches_are_refused(name, tmp_path) -> None:
    """In chunks, where nothing tells what they should be, the run went on with them and converged to something else."""
    (tmp_path / "right").write_bytes(cases.made(f"checkpoint of {name}", tmp_path))
    forged = changed(tmp_path / "right", tmp_path / "forged", _remembered(_doubled))
    with pytest.raises(ng.ModelFileError, match="is not the sum over its batches"):
        cases.used(f"checkpoint of {name}", forged)


@pytest.fixture(scope="module")
def checkpoint_of_mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "right").write_bytes(cases.made("checkpoint of mixture", folder))
    return folder / "right"


def test_sums_of_documents_that_are_not_those_of_their_batches_are_refused(tmp_path) -> None:
    (tmp_path / "right").write_bytes(cases.made("checkpoint of LDA", tmp_path))

    def change(memory):
        return memory._replace(
            messages={name: tuple(2.0 * part for part in parts) for name, parts in memory.messages.items()}
        )

    with pytest.raises(ng.ModelFileError, match="is not the sum over its batches"):
        cases.used("checkpoint of LDA", changed(tmp_path / "right", tmp_path / "forged", _remembered(change)))


def test_no_process_dies_of_a_forged_file() -> None:
    # 400 forgeries are loaded in this process above, which would end with it; here what loads is also used, one after the
    # other in a process of its own. 10,000 are in `make slow`.
    found = outcomes('GaussianHMM("full")', range(30), SCRIPT)
    assert not found.wrong
    assert found.refused + found.used == 30
    assert found.used > 0


def test_the_death_of_a_process_is_seen(tmp_path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys\nfor n in range(int(sys.argv[3]), int(sys.argv[4])):\n    print('try', n, flush=True)\n"
        "    os.abort() if n == 3 else print('did', n, 'used', flush=True)\n"
    )
    found = outcomes("any", range(6), script)
    assert (found.refused, found.used) == (0, 5)
    assert [seed for seed, _ in found.wrong] == [3]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.ALL)
def test_ten_thousand_forgeries(name) -> None:
    """Of files of every model and of checkpoints: 10,000 in all."""
    number = -(-10_000 // len(cases.ALL))
    found = outcomes(name, range(10_000, 10_000 + number), SCRIPT)
    assert not found.wrong
    assert found.refused + found.used == number


def test_factors_are_those_of_the_state(files, tmp_path) -> None:
    def change(value):
        posterior = value["fitted"]["posterior"]
        short = Factor("u", posterior["u"].family, posterior["u"].plates, posterior["u"].lam[:1])
        return {**value, "fitted": {**value["fitted"], "posterior": {**posterior, "u": short}}}

    with pytest.raises(ng.ModelFileError, match="is not that of the state"):
        ng.load(changed(files / "known precisions" / "model", tmp_path / "forged", change))
