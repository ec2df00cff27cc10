"""Old names of arguments and attributes are errors that say the new ones."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.models.registry import MODELS
from natgrad.renamed import RENAMED

CALLED = {name: getattr(ng, name) for name in [*MODELS, "Auto"]} | {"fit": ng.Network.fit}


def cases() -> list[tuple[str, str, str]]:
    return [
        (name, old, new)
        for name, called in CALLED.items()
        for old, new in RENAMED.items()
        if new in inspect.signature(called).parameters
    ]


@pytest.mark.parametrize(("name", "old", "new"), cases())
def test_an_old_argument_is_an_error_that_says_the_new_one(name: str, old: str, new: str) -> None:
    with pytest.raises(TypeError, match=f"has no argument '{old}' since version 0.2: write {new}="):
        CALLED[name](**{old: 1}) if name != "fit" else ng.Network.fit(None, **{old: 1})


def test_no_old_name_is_a_parameter_of_anything_public() -> None:
    assert len(cases()) > 20
    for name, called in CALLED.items():
        assert not set(inspect.signature(called).parameters) & set(RENAMED), name


def test_more_steps_by_an_old_name() -> None:
    node = ng.Normal("y", ng.Normal("m", 0.0, 1.0), 1.0, plate=ng.Plate("n", 3), observed=np.arange(3.0))
    fit = ng.Network(node).fit()
    with pytest.raises(
        TypeError, match=r"continue_fit\(\) has no argument 'steps' since version 0.2: write max_steps="
    ):
        fit.continue_fit(steps=3)


def test_old_attributes_say_the_new_ones() -> None:
    trace, stop = Trace(), Stop(Reason.STEPS)
    with pytest.raises(AttributeError, match=r"'choice' since version 0\.2: it is called 'strategy'"):
        trace.choice  # noqa: B018
    with pytest.raises(AttributeError, match=r"'words' since version 0\.2: it is called 'message'"):
        stop.words  # noqa: B018
    assert not hasattr(trace, "nonsense")
    assert copy.deepcopy(stop) == pickle.loads(pickle.dumps(stop)) == stop
    assert len(pickle.loads(pickle.dumps(trace))) == 0
