"""Rows as they come, for `benchmarks/hmm.py live`: every kind of emissions and durations, one row after the other."""

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from hmm_data import generated

from natgrad.errors import NotConverged


class Live(NamedTuple):
    """A model that was not fitted yet; the data as a whole, and the same as rows that come alone."""

    name: str
    model: Any
    whole: Any
    rows: list


def live_rows(n_times=4000, n_asked=1000):
    """Microseconds a row, alone and with the distribution of the next one; in processor seconds, the quickest of three."""
    table = []
    for case in cases(n_times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # five passes say how long a row takes
            model = case.model.fit(case.whole)
        alone = quickest(lambda m=model, c=case: follow(m, c.rows, ask=False)) / n_times
        asked = quickest(lambda m=model, c=case: follow(m, c.rows[:n_asked], ask=True)) / n_asked
        at_once = quickest(lambda m=model, c=case: m.filter(c.whole)) / n_times
        past = quickest(lambda m=model, c=case: m.predict_proba(c.whole))
        table.append((case.name, model.n_states, *(1e6 * seconds for seconds in (alone, asked, at_once, past))))
    head = ("model", "K", "a row, µs", "with the mean of the next, µs", "rows at once, µs each",
            f"`predict_proba` of {n_times:,} past rows, µs")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += ["| {} | {} | {:.1f} | {:,.1f} | {:.2f} | {:,.0f} |".format(*row) for row in table]
    return lines, table


def quickest(run, repeats=3):
    """Processor seconds after a first call, which reads compiled kernels."""
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def follow(model, rows, ask):
    """A filter that sees one row after the other, and may be asked for the next one."""
    live = model.filter()
    for row in rows:
        live.update(row)
        if ask:
            expected(live.forecast(1))


def expected(ahead):
    """The mean of the next row, of categories their probabilities."""
    if hasattr(ahead, "items"):
        return {name: expected(one) for name, one in ahead.items()}
    return ahead.probabilities() if ahead.of_categories else ahead.mean()


def cases(n_times):
    import natgrad as ng
    from natgrad.models import hmm

    usual = {"n_init": 1, "max_passes": 5, "n_jobs": 1, "seed": 0, "verbose": False}
    for n_states in (2, 8, 32):
        _, _, X, _ = generated(n_times, 0, n_states)
        for covariance in ("full", "diag"):
            model = ng.GaussianHMM(n_states, covariance=covariance, **usual)
            yield Live(f"`GaussianHMM`, {covariance}", model, X, list(X))
    _, _, X, _ = generated(n_times, 0, 8)
    codes = np.clip(np.floor(X[:, 0] + 3.0), 0, 5).astype(int)
    labels, counts = np.array(["a", "b", "c", "d", "e", "f"])[codes], codes[:, None]
    ones = (X > 0.0).astype(int)
    yield Live("`CategoricalHMM`, labels", ng.CategoricalHMM(8, **usual), labels, labels.tolist())
    yield Live("`PoissonHMM`", ng.PoissonHMM(8, **usual), counts, list(counts))
    yield Live("`BernoulliHMM`", ng.BernoulliHMM(8, **usual), ones, list(ones))
    kinds = {
        "StudentT()": (hmm.StudentT(), None),
        "Autoregressive(1)": (hmm.Autoregressive(1), None),
        "Mixture(Gaussian(), 2)": (hmm.Mixture(hmm.Gaussian(), 2), None),
        "Gaussian(), NegativeBinomial(3)": (hmm.Gaussian(), hmm.NegativeBinomial(3)),
        "Gaussian(), Explicit(10)": (hmm.Gaussian(), hmm.Explicit(10)),
    }
    for name, (emissions, durations) in kinds.items():
        yield Live(
            f"`HMM`, {name}",
            hmm.HMM(8, emissions=emissions, transitions=hmm.Transitions(durations=durations), **usual),
            X,
            list(X),
        )
    whole = np.empty(n_times, dtype=[("level", float), ("count", float), ("label", labels.dtype)])
    whole["level"], whole["count"], whole["label"] = X[:, 1], codes, labels
    rows = [dict(zip(("level", "count", "label"), row, strict=True)) for row in whole.tolist()]
    tracks = {"level": hmm.StudentT(), "count": hmm.Poisson(), "label": hmm.Categorical()}
    yield Live("`HMM`, three tracks, rows are dicts", hmm.HMM(8, emissions=tracks, **usual), whole, rows)
