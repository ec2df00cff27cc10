"""Runs of networks by every method and controller, and of every option of the ready models: functions of the options of fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from promises import networks
from promises.cases import CASES

import natgrad as ng

MONRO = ng.RobbinsMonro(4.0, 0.7)


def network(make: Any, *settings: Any, **options: Any) -> Callable[..., Any]:
    made = cache(make)  # one network, so that nothing is compiled again

    def fit(**keep: Any) -> Any:
        net, init, order = made()
        return net.fit(*settings, init=init, order=order, **{"max_steps": 12, "tol": 0, **options}, **keep)

    return fit


def dynamic_topics(**keep: Any) -> Any:
    counts = np.random.default_rng(1).poisson(0.4, size=(40, 20))
    return ng.topics.DynamicTopics(2, max_steps=12, tol=0).fit(counts, np.arange(40) % 2, **keep)


RUNS: dict[str, Callable[..., Any]] = {
    "network, accelerated": network(networks.scalar_mixture),
    "network, turned": network(networks.factorised),
    "network, VB": network(networks.pca, ng.VB()),
    "network, VB (b)": network(networks.factorised, ng.VB(option="b")),
    "network, Children": network(networks.factorised, ng.Children(2), step=MONRO),
    "network, Children (b), per node": network(networks.skills, ng.Children(2, option="b"), step=ng.PerNode()),
    "network, Children, Auto": network(networks.several, ng.Children(1)),
    "network, GlobalBatch": network(networks.counts, ng.GlobalBatch(5), step=MONRO),
    "network, GlobalBatch, Auto": network(networks.blocks, ng.GlobalBatch(10)),
    "network, SVI": network(networks.lda, ng.SVI({"doc": 2}), step=MONRO),
    "network, memoised": network(networks.lda, ng.SVI({"doc": 2})),
    "topics, dynamic": dynamic_topics,
    **{
        f"{family}: {option}": lambda case=case, **keep: case.fitted(keep)
        for family, cases in CASES.items()
        for option, case in cases.items()
    },
}
