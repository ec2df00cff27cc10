"""Stand-ins for scikit-learn's base classes in; estimators that become real ones as soon as scikit-learn is there, out.

Importing scikit-learn takes one to two seconds (it brings SciPy's statistics and pandas along), more than the fit of small data
and than every answer of the command line. Nothing of natgrad needs it. So our estimators begin as classes with ``get_params``.
As soon as scikit-learn is imported, by whomever, or when somebody asks for what only it can do (``set_output``,
``fit_transform``, tags, the diagram of a notebook), each stand-in gets the class it stands for as its base (`join`): from then
on all estimators, also those that exist, are instances of ``sklearn.base.BaseEstimator``.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from natgrad.renamed import OldName

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "DensityMixin",
    "OnlyWhere",
    "RegressorMixin",
    "TransformerMixin",
    "check_is_fitted",
    "join",
    "not_fitted",
]

# What users ask for by name; anything else that an estimator lacks is looked for in scikit-learn only if that is loaded.
OF_SCIKIT_LEARN = {
    "fit_transform",
    "get_feature_names_out",
    "get_metadata_routing",
    "score",
    "set_output",
    "_repr_mimebundle_",
}
_LOCK = threading.RLock()


class OnlyWhere:
    """A decorator: a method that an estimator has with some settings alone, as scikit-learn asks; an error says with which.

    Examples
    --------
    >>> class Model:
    ...     scale = None
    ...
    ...     @OnlyWhere(lambda model: model.scale is not None, "needs scale=")
    ...     def levels(self):
    ...         return [self.scale]
    >>> Model().levels
    Traceback (most recent call last):
        ...
    AttributeError: levels needs scale=
    """

    def __init__(self, condition: Callable[[Any], bool], reason: str) -> None:
        self.condition, self.reason = condition, reason

    def __call__(self, method: Callable[..., Any]) -> Any:
        self.method = method
        return self

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        if not self.condition(instance):
            raise self.error(instance)
        return self.method.__get__(instance, owner)

    def error(self, instance: Any) -> AttributeError:
        """What is said where the settings are others."""
        name = self.method.__name__
        return AttributeError(f"{name} {self.reason}", name=name, obj=instance)


def join() -> None:
    """Give every stand-in its base in scikit-learn, once; what scikit-learn does when a class is made is done for ours."""
    # Before the lock: who imports it in another thread comes here, and must not be waited for.
    base = import_module("sklearn.base")
    with _LOCK:
        if not issubclass(BaseEstimator, _Plain):
            return
        stand_ins = (BaseEstimator, *_Plain.__subclasses__())
        existing: list[Any] = [cls for stand_in in stand_ins for cls in _subclasses(stand_in)]
        for name in [name for name, value in vars(BaseEstimator).items() if inspect.isfunction(value)]:
            delattr(BaseEstimator, name)  # the real ones take over
        for stand_in in dict.fromkeys(stand_ins):
            stand_in.__bases__ = (getattr(base, stand_in.__name__),)
        for cls in sorted(dict.fromkeys(existing), key=lambda cls: len(cls.__mro__)):
            super(cls, cls).__init_subclass__()  # set_output wraps `transform`, routing adds set_fit_request, …


class _WhenImported(MetaPathFinder):
    """Joins when scikit-learn's base classes have been imported: ``isinstance`` asks an estimator for nothing."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None but for ``sklearn.base``, whose loader joins when it is done."""
        if fullname != "sklearn.base":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_join(module: Any) -> None:
            load(module)
            join()

        spec.loader.exec_module = load_and_join  # type: ignore[method-assign]
        return spec


def check_is_fitted(estimator: Any) -> None:
    """Refuse an estimator without a single fitted attribute, as scikit-learn does."""
    if not any(name.endswith("_") and not name.startswith("__") for name in vars(estimator)):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator)


def not_fitted(words: str) -> Exception:
    """scikit-learn's NotFittedError, which is a ValueError and an AttributeError."""
    from sklearn.exceptions import NotFittedError

    error: Exception = NotFittedError(words)
    return error


def _subclasses(cls: Any) -> Iterator[Any]:
    for below in cls.__subclasses__():
        yield below
        yield from _subclasses(below)


if TYPE_CHECKING:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        DensityMixin,
        RegressorMixin,
        TransformerMixin,
    )

    class _Plain: ...

else:

    class _Plain:
        """What a stand-in derives from until it has joined: CPython exchanges no base that is ``object`` itself."""

        def __getattr__(self, name: str) -> Any:
            of_requests = name.startswith("set_") and name.endswith("_request")
            if "sklearn.base" in sys.modules or of_requests or name in OF_SCIKIT_LEARN:
                join()
                return getattr(self, name)
            # Errors of descriptors end here, too.
            old = next((vars(cls)[name] for cls in type(self).__mro__ if name in vars(cls)), None)
            if isinstance(old, OldName | OnlyWhere):
                raise old.error(self)
            if isinstance(old, property) and old.fget is not None:  # it has said why, which was lost on the way here
                return old.fget(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    class BaseEstimator(_Plain):
        """What scikit-learn's base has that we use ourselves."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The settings by name; ours hold no other estimators, so that ``deep`` changes nothing."""
            names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
            return {name: getattr(self, name) for name in sorted(names)}

        def set_params(self, **params: Any) -> Any:
            join()
            return self.set_params(**params)

        def __repr__(self) -> str:
            join()
            return super().__repr__()

        def __sklearn_tags__(self) -> Any:
            join()
            return type(self).__sklearn_tags__(self)  # from the top: the mixins before this class have bases now, too

        def _html_repr(self) -> str:
            join()
            return type(self)._html_repr(self)

    class ClassifierMixin(_Plain):
        """See scikit-learn."""

    class ClassNamePrefixFeaturesOutMixin(_Plain):
        """See scikit-learn."""

    class DensityMixin(_Plain):
        """See scikit-learn."""

    class RegressorMixin(_Plain):
        """See scikit-learn."""

    class TransformerMixin(_Plain):
        """See scikit-learn."""


if "sklearn.base" in sys.modules:
    join()
else:
    sys.meta_path.insert(0, _WhenImported())
