"""Special functions of SciPy, at the cost of the compiled file that holds them.

``import scipy.special`` takes longer than NumPy and all of natgrad: its wrappers for other array libraries import every
submodule of NumPy, ``numpy.f2py`` and ``numpy.testing`` among them. The functions themselves are ufuncs of one extension
module, ready in a tenth of that time. So the package is made known to Python and its extension loaded; the rest of the package
runs when somebody, natgrad or not, asks it for anything else, as `importlib.util.LazyLoader` does it (which would already run
it to find the extension). ``scipy.linalg``, of whose extensions that of SciPy 1.18 asks for LAPACK, is made known in the same
way. Where any of this fails, in a SciPy that is built otherwise, the whole package is imported: the functions are the same
objects either way.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

__all__ = [
    "betainc",
    "betaincinv",
    "betaln",
    "digamma",
    "expit",
    "gammainc",
    "gammaincinv",
    "gammaln",
    "log_expit",
    "log_ndtr",
    "logit",
    "nbdtrik",
    "ndtr",
    "ndtri",
    "ndtri_exp",
    "pdtr",
    "pdtrik",
    "stdtr",
    "stdtrit",
    "trigamma",
    "xlogy",
]

_PACKAGE = "scipy.special"
# Packages that need not run for the extension to load.
_LINALG = "scipy.linalg"
_UNRUN = (_PACKAGE, _LINALG)


class _Unrun(ModuleType):
    """A package that is known to Python, and runs when something is asked of it that running would give.

    Its ``__path__`` is such a thing once the extension is loaded: a submodule, which may ask its package for its neighbours, is
    imported after the package as it always is.
    """

    # A thread that asks while another one runs the package waits for it; the running one asks for what is not there yet.
    # One lock for all of them, since one package asks another.
    _lock = threading.RLock()
    _running: set[str] = set()  # noqa: RUF012 (shared on purpose: an attribute of a module would be its user's)

    def __getattr__(self, name: str) -> Any:
        with _Unrun._lock:
            if type(self) is _Unrun and self.__name__ not in _Unrun._running:
                _Unrun._running.add(self.__name__)
                spec: Any = self.__spec__
                try:
                    self.__path__ = spec.submodule_search_locations
                    spec.loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    _Unrun._running.discard(self.__name__)
            return object.__getattribute__(self, name)


def _extension() -> ModuleType:
    """The module of ufuncs, without the package around it where that works."""
    if _PACKAGE in sys.modules:
        return import_module(_PACKAGE)
    unrun = [name for name in _UNRUN if name not in sys.modules]
    for name in unrun:
        spec = find_spec(name)
        if isinstance(spec, ModuleSpec) and spec.loader is not None:
            sys.modules[name] = module_from_spec(spec)
            sys.modules[name].__class__ = _Unrun
    try:
        module = import_module(f"{_PACKAGE}._ufuncs")
    except Exception:  # whatever a SciPy of another build raises: it is imported as everybody does
        for name in unrun:
            sys.modules.pop(name, None)
        return import_module(_PACKAGE)
    for name in unrun:
        if type(sys.modules.get(name)) is _Unrun:
            del sys.modules[name].__path__
    return module


def load_lapack() -> None:
    """The extensions by which JAX finds LAPACK, without the rest of ``scipy.linalg``, a tenth of a second, if it has not run."""
    package = sys.modules.get(_LINALG)
    if type(package) is not _Unrun:
        return  # it has run, or will when it is asked for
    with _Unrun._lock, suppress(Exception):  # in a SciPy of another build, JAX imports the package
        package.__path__ = package.__spec__.submodule_search_locations  # type: ignore[union-attr, assignment]
        try:
            for name in ("cython_blas", "cython_lapack"):
                import_module(f"{_LINALG}.{name}")
        finally:
            if type(package) is _Unrun:
                del package.__path__


def _function(name: str) -> Any:
    ufunc = getattr(_UFUNCS, name, None)
    return getattr(import_module(_PACKAGE), name) if ufunc is None else ufunc


_UFUNCS = _extension()

betainc = _function("betainc")
betaincinv = _function("betaincinv")
betaln = _function("betaln")
digamma = _function("psi")
expit = _function("expit")
gammainc = _function("gammainc")
gammaincinv = _function("gammaincinv")
gammaln = _function("gammaln")
log_expit = _function("log_expit")
log_ndtr = _function("log_ndtr")
logit = _function("logit")
nbdtrik = _function("nbdtrik")
ndtr = _function("ndtr")
ndtri = _function("ndtri")
ndtri_exp = _function("ndtri_exp")
pdtr = _function("pdtr")
pdtrik = _function("pdtrik")
stdtr = _function("stdtr")
stdtrit = _function("stdtrit")
xlogy = _function("xlogy")


def trigamma(x: Any) -> Any:
    """ψ′(x) for x > 0, the derivative of the digamma function.

    Examples
    --------
    >>> round(float(trigamma(1.0)), 6)
    1.644934
    """
    hurwitz = getattr(_UFUNCS, "_zeta", None)
    return import_module(_PACKAGE).polygamma(1, x) if hurwitz is None else hurwitz(2.0, x)
