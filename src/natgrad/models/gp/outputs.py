"""Outputs that go together: functions that know nothing of one another in; those of the outputs, which do, out.

    f = T g,   g_1 … g_P ~ GP(0, k):   Cov(f_p(x), f_q(x')) = B_pq k(x, x'),   B = T Tᵀ
    T = D^½ V Λ^½,   V and Λ eigenvectors and values of D^-½ B D^-½, D the noise of the outputs

This root of B is taken because Tᵀ D⁻¹ T = Λ: rows that are seen whole say something of every g alone, and q(v) with a factor for
each is exact at the cost of P outputs that do not go together. Where entries are missing, the factors do not come apart: there is
one q(v) of all P M numbers, exact again. When B and D move, what the rows have said of the outputs is told to the g of the new T
(`retold`), so that no T has to be near the last one. The intrinsic coregionalisation of Goovaerts (1997); Bonilla, Chai and
Williams (2008). Every covariance matrix is allowed, B = W Wᵀ + diag(κ) with any number of columns of W among them.

B = U diag(s) Uᵀ with U the orthogonal part of a matrix Z, Z = U (ZᵀZ)^½: it moves without constraints, and where it moves to does
not depend on the order of the outputs. The trace of B is at most P, where it starts: more is the variance of the kernel, so that
B does not run ahead while length scales are still far too long. ψ [P, 2 + P] has the noise, log s and Z.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.models.gp.likelihoods import LEAST, Expected, Likelihood, Scaled

__all__ = ["Coregionalised", "Marginal", "by_blocks", "covariance_slope", "marginal", "retold", "stacked", "unmixed"]

Floats = npt.NDArray[np.float64]
# Of the variance of all outputs in the direction of an eigenvector, what is not noise is at least this part, to begin with.
LEAST_PART = 0.05


class Marginal(NamedTuple):
    """q(L⁻¹ u) of each function that a likelihood reads: means [F, M], covariances [M, M] each, parts b of the kernel [F]."""

    mean: Floats
    covariance: tuple[Floats, ...]
    scale: Floats


@final
class Coregionalised(Likelihood):
    """y of a likelihood of single columns, whose functions are mixed: f = T g.

    Parameters
    ----------
    own : Gaussian, of a column given its function
    moves_noise, moves_mixing : bool
        Which parts of ψ have slopes; the others stay.
    held : array [P, P], optional
        T, where it stays whatever the noise is: ψ [P] is then that of the columns alone, and q(v) must have one factor.
    """

    mixes = has_parameter = True

    def __init__(
        self, own: Scaled, moves_noise: bool = True, moves_mixing: bool = True, held: Floats | None = None
    ) -> None:
        self._own, self.moves_noise, self.moves_mixing, self._held = own, moves_noise, moves_mixing, held
        self.name, self.conjugate, self.standardised = own.name, own.conjugate, own.standardised

    @property
    def own(self) -> Likelihood:
        """Of a column given its function."""
        return self._own

    def first(self, y: Floats, variance: float) -> Floats:
        """Noise as it is given; T from what columns of y have in common, where both are seen."""
        own = self._own.first(y, variance)
        values, vectors = np.linalg.eigh(_products(y))
        order = np.argsort(-values)
        least = LEAST_PART * max(float(values.mean()), LEAST_PART)
        sizes = np.maximum(values[order] - variance, least)
        log_s = np.log(sizes / sizes.mean())
        return np.column_stack([own, log_s, vectors[:, order]])

    def parts(self, psi: Floats) -> tuple[Floats, Floats]:
        """ψ of the columns [P], and T [P, P]."""
        if self._held is not None:
            return psi, self._held
        root = np.sqrt(self.noises(psi))[:, None]
        turn = _polar(psi[:, 2:])[0] * np.sqrt(_sizes(psi))
        left, values, _ = np.linalg.svd(turn / root)
        return psi[:, 0], root * left * values

    def slopes(self, psi: Floats, own: Floats, covariance: Floats) -> Floats:
        """Slopes along ψ from those along ψ of the columns [P] and along B [P, P]."""
        if self._held is not None:
            return own
        turn, back = _polar(psi[:, 2:])
        sizes, along = _sizes(psi), covariance @ turn  # Γ U
        each = (turn * along).sum(0)
        scale = _scale(psi)
        # At its largest, B may become smaller as a whole, and not larger.
        upwards = max(float((each * sizes).mean()), 0.0) if scale > 1.0 else 0.0
        in_sizes = (each - upwards) * np.exp(psi[:, 1]) / scale
        out = np.column_stack([own, in_sizes, back(2.0 * along * sizes)])
        return np.asarray(out * np.repeat([self.moves_noise, self.moves_mixing], [1, 1 + len(psi)]))

    def shrunk(self, psi: Floats, part: float) -> Floats:
        """ψ with the same noise and the same diagonal of B, and a part of what is beside it."""
        mixing = self.parts(psi)[1]
        covariance = mixing @ mixing.T
        sizes, vectors = np.linalg.eigh(np.where(np.eye(len(covariance), dtype=bool), covariance, part * covariance))
        return np.column_stack([psi[:, 0], np.log(np.maximum(sizes - LEAST, LEAST)), vectors])

    def noises(self, psi: Floats) -> Floats:
        """D [P]."""
        return np.array([self._own.variance(float(p)) for p in self._columns(psi)])

    def _columns(self, psi: Floats) -> Floats:
        return psi if self._held is not None else psi[:, 0]

    # -- what columns say, given their functions --

    def offsets(self, y: Floats) -> Floats:
        """Those of the columns."""
        return self._own.offsets(y)

    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """Under marginals of f."""
        return self._own.expected_rows(self._columns(psi), y, mean, var)

    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """From marginals of f."""
        return self._own.predict_rows(self._columns(psi), mean, var)

    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Of every column by itself; `natgrad.models.gp.problem` has that of all."""
        return self._own.log_predictive_rows(self._columns(psi), y, mean, var)

    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """Of every column by itself."""
        return self._own.quantile_rows(self._columns(psi), level, mean, var)

    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """Given f."""
        return self._own.sample_rows(self._columns(psi), f, rng)

    def noise_level(self, psi: Floats) -> float:
        """Of the g that is seen best: 1 over the largest element of Tᵀ D⁻¹ T."""
        return float(1.0 / (self.parts(psi)[1] ** 2 / self.noises(psi)[:, None]).sum(0).max())

    def check(self, y: Floats, what: str) -> None:
        """As for a column."""
        self._own.check(y, what)


def _sizes(psi: Floats) -> Floats:
    """Eigenvalues s [P]: as the noise, they never vanish; their mean is at most one."""
    return np.asarray((LEAST + np.exp(psi[:, 1])) / _scale(psi))


def _scale(psi: Floats) -> float:
    return max(1.0, float((LEAST + np.exp(psi[:, 1])).mean()))


def _products(y: Floats) -> Floats:
    """Means of y_p y_q over rows where both are seen; 0 where there are none."""
    seen = ~np.isnan(y)
    filled = np.where(seen, y, 0.0)
    return np.asarray((filled.T @ filled) / np.maximum(seen.T.astype(np.float64) @ seen, 1.0))


def _polar(z: Floats) -> tuple[Floats, Any]:
    """The orthogonal part of a matrix, and what turns slopes along it into slopes along the matrix."""
    left, sizes, right = np.linalg.svd(z)

    def back(slope: Floats) -> Floats:
        turned = left.T @ slope @ right.T
        return np.asarray(left @ ((turned - turned.T) / np.add.outer(sizes, sizes)) @ right)

    return left @ right, back


# -- between q(v) of the functions g and those of the outputs --


def marginal(mean: Floats, covariance: tuple[Floats, ...], mixing: Floats | None) -> Marginal:
    """q(L⁻¹ u) of the outputs, from q(v) with a factor for each g, or with one for all of them."""
    if mixing is None:
        return Marginal(mean, covariance, np.ones(len(mean)))
    size = mean.size // mixing.shape[1]
    by_pairs = _by_pairs(covariance, size, mixing)
    return Marginal(
        mixing @ mean.reshape(-1, size), tuple(np.asfortranarray(part) for part in by_pairs), (mixing**2).sum(1)
    )


def _by_pairs(covariance: tuple[Floats, ...], size: int, mixing: Floats) -> Floats:
    """Σ_fg T_pf T_pg S_fg [P, M, M]."""
    if len(covariance) == len(mixing):
        return np.tensordot(mixing**2, np.array(covariance), 1)
    out = np.zeros((len(mixing), size, size))
    for n, part in enumerate(_blocks(covariance[0], size)):
        out += mixing[:, n, None, None] * np.tensordot(mixing, part, 1)
    return out


def _blocks(covariance: Floats, size: int) -> Floats:
    """S_fg as an array [F, F, M, M]."""
    n = len(covariance) // size
    return np.asarray(covariance.reshape(n, size, n, size).transpose(0, 2, 1, 3))


def by_blocks(covariance: tuple[Floats, ...], n: int, a: Floats) -> Floats:
    """a_nᵀ S_fg a_n of all pairs of n functions, for the columns of ``a`` [M, N]: an array [N, n, n]."""
    out = np.zeros((a.shape[1], n, n))
    if len(covariance) == n:
        for f, part in enumerate(covariance):
            out[:, f, f] = np.einsum("mn,mn->n", a, part @ a)
        return out
    for f, row in enumerate(_blocks(covariance[0], len(a))):
        for g in range(f, n):
            out[:, f, g] = out[:, g, f] = np.einsum("mn,mn->n", a, row[g] @ a)
    return out


def unmixed(first: Floats, second: Floats, mixing: Floats | None, joint: bool) -> tuple[Floats, Floats]:
    """Messages to v, from those to the outputs [P, M], [P, M, M]."""
    if mixing is None:
        return first, second
    if not joint:
        return mixing.T @ first, np.tensordot((mixing**2).T, second, 1)
    pairs = np.einsum("pf,pg->fgp", mixing, mixing)
    whole = np.tensordot(pairs, second, 1).transpose(0, 2, 1, 3)
    size = first.size
    return (mixing.T @ first).reshape(1, size), np.asarray(whole.reshape(1, size, size))


def stacked(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Natural parameters of one q(v) of all functions, from those of a factor for each."""
    n, size = first.shape
    whole = np.zeros((n, size, n, size))
    whole[np.arange(n), :, np.arange(n), :] = second
    return first.reshape(1, -1), whole.reshape(1, n * size, n * size)


def covariance_slope(mean: Floats, covariance: tuple[Floats, ...], mixing: Floats, left: Floats) -> Floats:
    """∂/∂B [P, P] of the bound with q(u) of the outputs held: of −KL(q(u) ‖ N(0, B ⊗ K_mm)), and of what u leaves open.

    ½ T⁻ᵀ (E[V Vᵀ] − M I) T⁻¹ + diag(left), V the rows of v; ``left`` [P] are slopes along the diagonal of B. At the best q(u) it
    is the slope of the collapsed bound; with q(v) held, which is the same there, batches would make it noisy.
    """
    n = len(mixing)
    size = mean.size // n
    rows = mean.reshape(n, size)
    second = rows @ rows.T - size * np.eye(n)
    if len(covariance) == n:
        second[np.diag_indices(n)] += [np.einsum("ii->", part) for part in covariance]
    else:
        second += np.einsum("fmgm->fg", covariance[0].reshape(n, size, n, size))
    inverse = np.linalg.inv(mixing)
    return np.asarray(0.5 * inverse.T @ second @ inverse + np.diag(left))


def retold(
    lam: tuple[Floats, ...], before: tuple[Floats, Floats], after: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Natural parameters of q(v) when T and the noise d, ``before``, have moved: what the rows said of the outputs stays.

    Messages are (Tᵀ D⁻¹ A Y, −½ Tᵀ D⁻¹ T ⊗ A Aᵀ), and are turned to the T and D of today; the prior of v is the same.
    """
    (t_old, d_old), (t_new, d_new) = before, after
    turn = np.linalg.solve(t_old, (d_old / d_new)[:, None] * t_new)
    turn_second = np.linalg.solve(t_old, np.sqrt(d_old / d_new)[:, None] * t_new)
    n = len(t_old)
    size = lam[0].size // n
    first = (turn.T @ lam[0].reshape(n, size)).reshape(lam[0].shape)
    half = -0.5 * np.eye(lam[1].shape[-1])
    said = lam[1] - half
    if len(said) == n:
        return first, half + np.tensordot((turn_second**2).T, said, 1)
    sides = np.tensordot(turn_second.T, said.reshape(n, -1), 1).reshape(n, size, n, size)
    sides = np.tensordot(sides, turn_second, axes=(2, 0)).transpose(0, 1, 3, 2)
    whole = sides.reshape(said.shape)
    return first, half + 0.5 * (whole + whole.transpose(0, 2, 1))
