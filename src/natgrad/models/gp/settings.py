"""The settings of a sparse Gaussian process: kernel, inducing inputs and noise; their matrices, and their gradient step.

JAX evaluates the kernel and pulls gradients of matrices back to θ and Z; for most kernels the same is done in closed form
(`natgrad.covariance._direct`), and nothing is compiled. Adam moves the settings in NumPy. All the linear algebra between, which
is most of the work, is BLAS on these matrices (`natgrad.models.gp.problem`). Every call enters 64-bit mode for itself.
Functions are compiled once for each structure of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad import _jax
from natgrad._jax import in_64_bits
from natgrad.covariance import Covariance, direct_of
from natgrad.inference.methods import Method
from natgrad.inference.options import checked_method
from natgrad.inference.schema import refuse
from natgrad.inference.step_sizes import Step
from natgrad.posterior.files.tables import RUN
from natgrad.validation import real_number, whole_number

__all__ = [
    "FIXABLE",
    "LOG",
    "SPREAD",
    "WIDE",
    "Adam",
    "Gradient",
    "Learned",
    "Matrices",
    "Settings",
    "Solver",
    "checked_fixed",
    "compiled",
    "flat",
    "leaves_of",
    "settings_of",
    "settings_table",
    "shaped",
    "stored_kernel",
]

Array = Any
Floats = npt.NDArray[np.float64]
# Rows that a kernel matrix is evaluated for at once, and the fewest: lengths between are rounded up to a power of two, so that
# few shapes are compiled.
MOST_ROWS, LEAST_ROWS = 4096, 64
# Structures whose compiled functions are kept.
MOST_STRUCTURES = 64
_KEPT: dict[Any, Matrices] = {}


class Solver(NamedTuple):
    """How a sparse Gaussian process is fitted: numbers that change how a fit gets there, and not the model.

    Parameters
    ----------
    batch_size : int
        Rows read at a step.
    learning_rate : float
        Of Adam, for kernel, noise and inducing inputs.
    method, step : as in ``Network.fit``
        By default batches with steps of length 0.2; `VB()` reads all rows at each step, `SVI({"row": size})` so many.
    jitter : float
        Added to the diagonal of K_mm, as a part of its mean; raised tenfold where it does not suffice, and counted.
    standardize : bool
        Whether inputs and real outputs are standardised inside: the prior mean of outputs is their mean, and steps have the right
        length whatever the units. Without, the mean is zero. A kernel that is given means the same.
    optimizer : "lbfgs" or "adam", optional
        Of kernel, noise and inducing inputs. "adam": steps on batches, as many as ``max_steps`` allows. "lbfgs": a tenth of them,
        then L-BFGS on the bound with q at its best, of all rows, until less than ``tol`` is left; for Gaussian noise of
        independent outputs, ``tol`` > 0 and not for `VB()`, and there the default. Its time grows with the rows: for hundreds of
        thousands of them "adam" is quicker. `partial_fit` takes steps of Adam.
    """

    batch_size: int = 512
    learning_rate: float = 0.04
    method: Method | None = None
    step: Step | None = None
    jitter: float = 1e-8
    standardize: bool = True
    optimizer: Literal["lbfgs", "adam"] | None = None

    def check(self) -> None:
        """Refuse numbers that no fit can have."""
        whole_number(self.batch_size, "solver.batch_size")
        if not 0 < real_number(self.learning_rate, "solver.learning_rate") <= 1:
            raise ValueError(f"solver.learning_rate must lie in (0, 1], got {self.learning_rate!r}")
        if not 0 <= real_number(self.jitter, "solver.jitter") < 1e-2:
            raise ValueError(
                f"solver.jitter must lie in [0, 0.01), as a part of the kernel's variance, got {self.jitter!r}"
            )
        if not isinstance(self.standardize, bool):
            raise ValueError(f"solver.standardize must be True or False, got {self.standardize!r}")
        if self.optimizer not in (None, "lbfgs", "adam"):
            raise ValueError(f'solver.optimizer must be "lbfgs", "adam" or None, got {self.optimizer!r}')
        checked_method(self.method)


FIXABLE = ("kernel", "noise", "inducing")
# In files: logarithms whose exponentials are numbers; numbers whose squares, divided by those of the shortest length scale, are,
# and units of them.
LOG = "in [-200, 200]"
WIDE, SPREAD = "in [-1e30, 1e30]", "in [1e-30, 1e30]"


def checked_fixed(fixed: Any, names: Sequence[str] = FIXABLE) -> tuple[str, ...]:
    """The settings that stay where they start; an error if there are others than ``names``."""
    given = (fixed,) if isinstance(fixed, str) else tuple(fixed)
    if not set(given) <= set(names):
        words = ", ".join(f'"{name}"' for name in names)
        raise ValueError(f"fixed must be some of {words}, what is not learned and stays where it starts; got {fixed!r}")
    return given


def stored_fixed(value: Any, sizes: dict[str, int], where: str) -> None:
    """Refuse what a file holds for ``fixed`` if it names no settings."""
    named = {value} if isinstance(value, str) else set(value) if isinstance(value, (list, tuple)) else {None}
    if not named <= set(FIXABLE):
        refuse(where, "names no settings that stay where they start")


def stored_kernel(value: Any, sizes: dict[str, int], where: str) -> None:
    """Refuse what a file holds for a kernel if it is none, or none of these columns."""
    if not isinstance(value, Covariance):
        refuse(where, f"is no covariance function but a {type(value).__name__}")
    value.check(sizes.get("column", 1))


def settings_table(check_kernel: Callable[[Any, dict[str, int], str], None] = stored_kernel) -> dict[str, Any]:
    """Return the table of the settings that every Gaussian process has; the kernel may be "auto" or left out."""

    def given_kernel(value: Any, sizes: dict[str, int], where: str) -> None:
        if value is not None and not (isinstance(value, str) and value == "auto"):
            check_kernel(value, sizes, where)

    return {
        **{name: rule for name, rule in RUN.items() if name not in ("n_jobs", "method", "step")},
        "kernel": given_kernel,
        "fixed": stored_fixed,
        "max_steps": "natural",
        "max_seconds": "none | positive",
    }


class Settings(NamedTuple):
    """log parameters of the kernel, inducing inputs [M, D], ψ of the noise [P], and what Adam remembers."""

    theta: tuple[Array, ...]
    inducing: Array
    psi: Array
    adam: Any = None


class Adam(NamedTuple):
    """What Adam remembers: steps, and running means of slopes and of their squares, as `Settings` without an Adam."""

    count: Array
    mu: Any
    nu: Any


class Learned(NamedTuple):
    """Which settings a fit moves."""

    kernel: bool = True
    noise: bool = True
    inducing: bool = True


class Gradient(NamedTuple):
    """Slopes of the bound in K_mm [M, M], K_nm [N, M], k_nn [N] and ψ [P]."""

    k_mm: Floats
    k_nm: Floats
    k_nn: Floats
    psi: Floats


def adam_step(learned: Learned, rate: float, settings: Settings, uphill: Settings) -> Settings:
    """A step of Adam with its usual constants; in NumPy, since for small arrays a call of optax costs more."""
    slope = flat(uphill)
    if not np.isfinite(slope).all():
        return settings
    adam = settings.adam
    count = int(adam.count) + 1
    mu, nu = 0.9 * flat(adam.mu) + 0.1 * slope, 0.999 * flat(adam.nu) + 0.001 * slope**2
    step = mu / (1.0 - 0.9**count) / (np.sqrt(nu / (1.0 - 0.999**count)) + 1e-8)
    moved = shaped(flat(settings) + rate * step, settings)
    return Settings(
        moved.theta if learned.kernel else settings.theta,
        moved.inducing if learned.inducing else settings.inducing,
        moved.psi if learned.noise else settings.psi,
        adam._replace(count=np.asarray(count, np.int32), mu=shaped(mu, settings), nu=shaped(nu, settings)),
    )


def flat(settings: Settings) -> Floats:
    """All of them but Adam's, one after the other: one operation is faster than one for each."""
    return np.concatenate([np.ravel(part) for part in (*settings.theta, settings.inducing, settings.psi)])


def shaped(flat: Floats, like: Settings) -> Settings:
    """`flat` undone, as views."""
    parts, begin = [], 0
    for part in (*like.theta, like.inducing, like.psi):
        end = begin + np.size(part)
        parts.append(flat[begin:end].reshape(np.shape(part)))
        begin = end
    return Settings(tuple(parts[:-2]), parts[-2], parts[-1])


def leaves_of(settings: Settings) -> tuple[Array, ...]:
    """All numbers of the settings, Adam's included, one array after the other."""
    parts = (*settings.theta, settings.inducing, settings.psi)
    adam = settings.adam
    return parts if adam is None else (*parts, adam.count, *leaves_of(adam.mu), *leaves_of(adam.nu))


def settings_of(leaves: Sequence[Array], matrices: Matrices, kernel: Covariance) -> Settings:
    """The settings from their leaves."""
    n_theta = len(kernel.theta)
    parts = [np.asarray(leaf) for leaf in leaves]

    def settings(begin: int, adam: Any = None) -> Settings:
        end = begin + n_theta
        return Settings(tuple(parts[begin:end]), parts[end], parts[end + 1], adam)

    first = n_theta + 2
    return settings(0, Adam(parts[first], settings(first + 1), settings(2 * first + 1)))


def compiled(kernel: Covariance) -> Matrices:
    """The functions of a kernel's structure, compiled once."""
    key = kernel.structure
    if key not in _KEPT:
        if len(_KEPT) >= MOST_STRUCTURES:
            _KEPT.pop(next(iter(_KEPT)))
        _KEPT[key] = Matrices(kernel)
    return _KEPT[key]


class Matrices:
    """Kernel matrices as NumPy arrays, and their pull-backs."""

    def __init__(self, kernel: Covariance) -> None:
        self._kernel = kernel
        self._direct = direct_of(kernel)
        if self._direct is None:
            self._all = _jax.compiled(self._matrices)
            self._square = _jax.compiled(kernel.matrix)
            self._rows = _jax.compiled(lambda t, z, x: (kernel.matrix(t, x, z), kernel.diagonal(t, x)))
            self._pull = _jax.compiled(self._pulled)
        self._last: tuple[Any, Any, Any] | None = None

    def all(self, settings: Settings, x: Floats) -> tuple[Floats, Floats, Floats]:
        """K_mm, K_nm and k_nn of a batch, in one call."""
        if self._direct is not None:
            matrices = self._direct.evaluate(settings.theta, settings.inducing, x)
            self._last = settings, x, matrices
            return matrices[:3]
        k_mm, k_nm, k_nn = self._in_64_bits(self._all, settings.theta, settings.inducing, x)
        return k_mm, k_nm, k_nn

    def square(self, settings: Settings) -> Floats:
        """K_mm."""
        if self._direct is not None:
            none = np.empty((0, np.shape(settings.inducing)[1]))
            return self._direct.evaluate(settings.theta, settings.inducing, none).k_mm
        return self._in_64_bits(lambda *a: (self._square(*a),), settings.theta, settings.inducing)[0]

    def rows(self, settings: Settings, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn of any number of rows up to `MOST_ROWS`."""
        if self._direct is not None:
            return self._direct.rows(settings.theta, settings.inducing, x)
        n = len(x)
        size = max(LEAST_ROWS, 1 << (n - 1).bit_length())
        padded = x if size == n else np.concatenate([x, np.zeros((size - n, x.shape[1]))])
        k_nm, k_nn = self._in_64_bits(self._rows, settings.theta, settings.inducing, padded)
        return k_nm[:n], k_nn[:n]

    def moved(self, learned: Learned, rate: float, settings: Settings, x: Floats, gradient: Gradient) -> Settings:
        """One step of Adam uphill; a gradient that is not finite moves nothing."""
        return adam_step(learned, rate, settings, self.pulled(settings, x, gradient))

    def pulled(self, settings: Settings, x: Floats, gradient: Gradient) -> Settings:
        """The gradient of the bound in the settings themselves."""
        if self._direct is not None:
            last = self._last  # read once: another thread may predict with the same kernel meanwhile
            known = last is not None and last[0] is settings and last[1] is x
            at = last[2] if known and last else self._direct.evaluate(settings.theta, settings.inducing, x)
            theta, inducing = self._direct.pulled(at, gradient.k_mm, gradient.k_nm, gradient.k_nn)
            return Settings(theta, inducing, gradient.psi)
        with in_64_bits():
            out: Settings = self._pull(settings, x, gradient)
            return out

    def started(self, settings: Settings) -> Settings:
        """The settings as 64-bit arrays, with an Adam that remembers nothing yet."""
        theta, *rest = settings.theta, settings.inducing, settings.psi
        moving = Settings(tuple(np.array(a, np.float64) for a in theta), *(np.array(a, np.float64) for a in rest))
        memory = (shaped(np.zeros_like(flat(moving)), moving) for _ in range(2))
        return moving._replace(adam=Adam(np.zeros((), np.int32), *memory))

    @staticmethod
    def _in_64_bits(function: Callable[..., Any], *arguments: Any) -> tuple[Floats, ...]:
        with in_64_bits():
            return tuple(np.asarray(part) for part in function(*arguments))

    def _matrices(self, theta: tuple[Array, ...], z: Array, x: Array) -> tuple[Array, Array, Array]:
        kernel = self._kernel
        return kernel.matrix(theta, z), kernel.matrix(theta, x, z), kernel.diagonal(theta, x)

    def _pulled(self, settings: Settings, x: Array, gradient: Gradient) -> Settings:
        import jax

        _, back = jax.vjp(partial(self._matrices, x=x), settings.theta, settings.inducing)
        theta, inducing = back((gradient.k_mm, gradient.k_nm, gradient.k_nn))
        return Settings(theta, inducing, gradient.psi)
