"""`natgrad reproduce hmm` in miniature: every setting runs, the table and the figure are written, states are matched."""

import numpy as np
from click.testing import CliRunner

from natgrad.cli.main import main
from natgrad.data.datasets.generated import paper_chain
from natgrad.reproduce import hmm

TINY = hmm.ChainPlan(n_times=400, n_test=100, lengths=(2,), seeds=(0,), passes=2.0)


def test_tasks_are_chains():
    for task in hmm.TASKS:
        for emissions in hmm.EMISSIONS:
            data = paper_chain(task, emissions, 4000, seed=1)
            np.testing.assert_allclose(data.transition.sum(1), 1.0)
            assert set(data.states) == set(range(8))
            # The path makes only moves that the model allows, about as often as it says.
            pairs = np.zeros((8, 8))
            np.add.at(pairs, (data.states[:-1], data.states[1:]), 1)
            assert pairs[data.transition == 0].sum() == 0
            shares = pairs / pairs.sum(1, keepdims=True)
            assert np.abs(shares - data.transition).max() < 0.15


def test_the_experiment_in_miniature(monkeypatch, tmp_path):
    monkeypatch.setattr(hmm, "QUICK", TINY)
    result = CliRunner().invoke(
        main, ["reproduce", "hmm", "--quick", "--no-progress", "--output", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.count("| batch VB |") == 4
    assert "reversed cycles | ambiguous | 2 |" in table
    assert (tmp_path / "out" / "chains.png").stat().st_size > 10_000


def test_matching_states_undoes_a_renaming(monkeypatch):
    data = paper_chain("diagonal", "easy", 3000)
    order = np.random.default_rng(0).permutation(8)

    class Renamed:
        transmat_ = data.transition[np.ix_(order, order)]

        def predict_proba(self, X):
            return np.eye(8)[data.states][:, order]

    assert hmm._error(Renamed(), data, 3000) < 1e-12
    assert abs(hmm._true_score(data, 2000)) < 20
