"""Special functions of SciPy, at the cost of the compiled file that holds them.

``import scipy.special`` takes longer than NumPy and all of natgrad: its wrappers for other array libraries import every
submodule of NumPy, ``numpy.f2py`` and ``numpy.testing`` among them. The functions themselves are ufuncs of one extension module,
ready in a tenth of that time. So the package is made known to Python and its extension loaded; the rest of the package runs when
somebody, natgrad or not, asks it for anything else, as `importlib.util.LazyLoader` does it (which would already run it to find
the extension). Where any of this fails, in a SciPy that is built otherwise, the whole package is imported: the functions are the
same objects either way.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

__all__ = [
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


class _Unrun(ModuleType):
    """A package that is known to Python, and runs when something is asked of it that running would give."""

    # A thread that asks while another one runs the package waits for it; the running one asks for what is not there yet.
    _lock = threading.RLock()
    _running = False

    def __getattr__(self, name: str) -> Any:
        with _Unrun._lock:
            if type(self) is _Unrun and not _Unrun._running:
                _Unrun._running = True
                try:
                    self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    _Unrun._running = False
            return object.__getattribute__(self, name)


def _extension() -> ModuleType:
    """The module of ufuncs, without the package around it where that works."""
    if _PACKAGE in sys.modules:
        return import_module(_PACKAGE)
    spec = find_spec(_PACKAGE)
    if not isinstance(spec, ModuleSpec) or spec.loader is None:
        return import_module(_PACKAGE)
    package = module_from_spec(spec)
    package.__class__ = _Unrun
    sys.modules[_PACKAGE] = package
    try:
        return import_module(f"{_PACKAGE}._ufuncs")
    except Exception:  # whatever a SciPy of another build raises: it is imported as everybody does
        sys.modules.pop(_PACKAGE, None)
        return import_module(_PACKAGE)


def _function(name: str) -> Any:
    found = getattr(_UFUNCS, name, None)
    return getattr(import_module(_PACKAGE), name) if found is None else found


_UFUNCS = _extension()

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
