"""Polynomial approximate sufficient statistics of a generalised linear model (PASS-GLM).

Those of degree 2 are a `Quadratic`; above it they are sums of products of monomials.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any, NamedTuple

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.compat.pytensor_api import checked_tensor
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.concavity import is_concave
from pymc_coresets.glm.predictor.predictors import weighted_gram, weighted_product
from pymc_coresets.numerics import ROUNDING
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.solving.problem import Matrix, Vector

#: Most monomials of half the degree: the largest moment matrix has at most 2,000 x 2,000 entries.
MAX_MONOMIALS = 2_000


@dataclass(frozen=True, kw_only=True, eq=False)
class PolynomialStatistics:
    """Sums over rows that give a polynomial approximation of their log-likelihood.

    Nothing else of the data is needed, and their size does not depend on the number of rows.  The
    statistics of disjoint data add up (``a + b``) without further error.

    Parameters
    ----------
    degree : int
        Degree K of the polynomials in the linear predictor.
    radius : float
        They approximate the log-likelihood of a row where |eta_n| <= radius.
    n_obs : float
        Sum of the case weights of all rows; a whole number once `finished`.
    moments : tuple of (ndarray or csr_array)
        ``M_m = sum_n b_nm phi_a(x_n) phi_c(x_n)^T`` for m = 0 ... K, with a = m // 2, c = m - a and
        phi_a(x) the monomials of degree a.  For K = 2: a scalar, a row vector and the matrix
        X^T diag(b_2) X; sparse if the design is.
    rising, falling : ndarray of shape (degree + 1,)
        ``sum_n max(b_nm, 0) R^m`` and ``sum_n max(-b_nm, 0) R^m``: how much each degree m
        contributes with either sign.

    Notes
    -----
    ``sum_n f_n(theta) ~ sum_m <sum_n b_nm x_n^(m), theta^(m)>`` (the paper's eq. 9), where the
    tensor of order m is folded to a matrix between the monomials of degree a and c.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([0.5, 3.0])
    >>> polynomials = np.stack([-0.5 * y**2, y, np.full(2, -0.5)], axis=1)  # -(y - eta)^2 / 2
    >>> statistics = polynomial_statistics(x, polynomials, 4.0)
    >>> float(statistics.loglik(np.array([1.0, 0.5])).round(3))  # exact: a Gaussian is quadratic
    -0.625
    """

    degree: int
    radius: float
    n_obs: float
    moments: tuple[Any, ...]
    rising: Vector
    falling: Vector

    @property
    def n_coefficients(self) -> int:
        """Length p of theta."""
        return int(self.moments[1].shape[1])

    @property
    def leading_degree(self) -> int:
        """The highest degree with terms above rounding error; 2 for Gaussian likelihoods."""
        amounts = self.rising + self.falling
        rounding = np.finfo(float).eps * 2.0 ** (self.degree + 8) * amounts[1:].max(initial=0.0)
        return int(np.flatnonzero(amounts > rounding).max(initial=0))

    @property
    def is_proper(self) -> bool:
        """Whether the polynomial is certainly bounded above in theta.

        Exact for degree 2, and if the leading coefficients of all rows have the same sign.
        Otherwise it may be bounded although the form in the leading monomials is not concave.
        """
        leading = self.leading_degree
        if leading % 2:
            return False
        same_sign = self.rising[leading] <= ROUNDING * self.falling[leading]
        return bool(leading == 0 or same_sign) or is_concave(self.moments[leading])

    def quadratic(self, names: Sequence[str], interface: TensorVariable | None = None) -> Quadratic:
        """Return the statistics as a quadratic of the coefficients, up to a constant.

        Raises
        ------
        InvalidOptionError
            If the degree is not 2, unless the likelihood itself is quadratic.
        """
        if self.degree < 2 or self.leading_degree > 2:
            raise InvalidOptionError(
                f"A polynomial of degree {self.degree} has no posterior in closed form: build the "
                "summary with degree=2, or use sample()."
            )
        return Quadratic(
            names=tuple(names),
            center=np.zeros(self.n_coefficients),
            slope=self.moments[1][0],
            curvature=2 * self.moments[2],
            interface=interface,
        )

    def __add__(self, other: "PolynomialStatistics") -> "PolynomialStatistics":
        if not isinstance(other, PolynomialStatistics):
            return NotImplemented
        for name in ("degree", "radius", "n_coefficients"):
            own, its = getattr(self, name), getattr(other, name)
            if own != its:
                raise InvalidOptionError(
                    f"Statistics can only be added if they have the same {name}, not {own} and "
                    f"{its}. Summarise all parts of the data with the same model, degree and "
                    "radius."
                )
        return PolynomialStatistics(
            degree=self.degree,
            radius=self.radius,
            n_obs=self.n_obs + other.n_obs,
            moments=tuple(a + b for a, b in zip(self.moments, other.moments, strict=True)),
            rising=self.rising + other.rising,
            falling=self.falling + other.falling,
        )

    def finished(self) -> "PolynomialStatistics":
        """Return the statistics of all rows, with a whole `n_obs`, in the faster layout.

        Raises
        ------
        InvalidDataError
            If one is not finite.
        """
        moments = []
        for m, moment in enumerate(self.moments):
            if sparse.issparse(moment) and moment.nnz >= np.prod(moment.shape) / 8:
                moment = moment.toarray()  # noqa: PLW2901
            if not np.isfinite(moment.data if sparse.issparse(moment) else moment).all():
                raise InvalidDataError(
                    f"The statistics of degree {m} are not finite: the design has NaN, infinite or "
                    "overly large values. Correct or scale its columns.",
                    topic="regressions",
                )
            moments.append(moment)
        return replace(self, n_obs=round(self.n_obs), moments=tuple(moments))

    def loglik(self, theta: Vector) -> Vector:
        """Evaluate the polynomial log-likelihood, in nats.

        Parameters
        ----------
        theta : ndarray of shape (n_coefficients,) or (n_draws, n_coefficients)

        Returns
        -------
        ndarray of shape () or (n_draws,)
        """
        return np.asarray(self._at(np.asarray(theta, dtype=float), lambda moment: moment))

    def potential(self, names: Sequence[str], theta: TensorVariable) -> TensorVariable:
        """Return the graph of `loglik` at theta (n_coefficients,); moments are shared variables."""
        if self.leading_degree <= 2 <= self.degree:
            quadratic = self.quadratic(names, theta).potential()
            return checked_tensor(quadratic + float(self.moments[0].item()))
        return checked_tensor(self._at(theta, pytensor.shared))

    def _at(self, theta: Any, held: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """Return ``sum_m phi_a(theta)^T M_m phi_c(theta)``, of arrays or of graphs."""
        leading = self.leading_degree
        levels = monomial_levels(self.n_coefficients, -(-leading // 2))
        # The vectors for which (x . theta)^a = phi_a(x) . vector_a, for each degree a.
        pairs = zip(levels, monomials(theta, levels), strict=False)
        sides = [0 * theta[..., :1] + 1, *(level.multiplicity * values for level, values in pairs)]
        return sum(
            ((sides[m // 2] @ held(self.moments[m])) * sides[m - m // 2]).sum(axis=-1)
            for m in range(leading + 1)
        )


# -- one pass over the rows ------------------------------------------------------------------------


def polynomial_statistics(
    design: object,
    coefficients: Matrix,
    radius: float,
    n_obs: float | None = None,
) -> PolynomialStatistics:
    """Sum the statistics of some rows.

    Parameters
    ----------
    design : ndarray or csr_array, of shape (n_rows, n_coefficients)
        X, without the offset.
    coefficients : ndarray of shape (n_rows, degree + 1)
        Of the powers of ``x_n . theta`` in the polynomial of each row, times its case weight.
    radius : float
    n_obs : float, optional
        Sum of the rows' case weights; by default their number.

    Returns
    -------
    PolynomialStatistics
        Call `finished` on the sum over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> x, b = np.array([[1.0], [2.0]]), np.array([[0.0, 1.0, -0.5], [0.0, 2.0, -0.5]])
    >>> polynomial_statistics(x, b, 4.0).moments[2]
    array([[-2.5]])
    """
    degree = coefficients.shape[1] - 1
    powers = radius ** np.arange(degree + 1.0)
    with np.errstate(over="ignore", invalid="ignore"):  # refused when they are finished
        moments = list(_moments(design, coefficients))
    return PolynomialStatistics(
        degree=degree,
        radius=float(radius),
        n_obs=len(coefficients) if n_obs is None else n_obs,
        moments=tuple(moments),
        rising=np.maximum(coefficients, 0).sum(axis=0) * powers,
        falling=np.maximum(-coefficients, 0).sum(axis=0) * powers,
    )


def _moments(x: Matrix | sparse.csr_array, coefficients: Matrix) -> Iterator[Matrix]:
    degree = coefficients.shape[1] - 1
    yield coefficients[:, :1].sum(axis=0, keepdims=True)
    yield (x.T @ coefficients[:, 1])[None]
    if degree < 2:
        return
    if degree == 2:
        yield weighted_gram(x, coefficients[:, 2])
    else:
        dense = np.asarray(x, dtype=float) if isinstance(x, np.ndarray) else x.toarray()
        levels = monomial_levels(dense.shape[1], -(-degree // 2))
        values = [np.ones((len(dense), 1)), *monomials(dense, levels)]
        for m in range(2, degree + 1):
            one, other, own = values[m // 2], values[m - m // 2], coefficients[:, m]
            yield weighted_product(one, own, other) if m % 2 else weighted_gram(one, own)


def check_size(degree: int, n_coefficients: int) -> None:
    """Raise `InvalidOptionError` if a degree above 2 has too many monomials.

    Examples
    --------
    >>> check_size(6, 20)
    """
    half = -(-degree // 2)
    if degree > 2 and n_monomials(n_coefficients, half) > MAX_MONOMIALS:
        raise InvalidOptionError(
            f"degree={degree} with {n_coefficients} coefficients has "
            f"{n_monomials(n_coefficients, half):,} monomials of degree {half}, above the limit "
            f"of {MAX_MONOMIALS:,}. Use a lower degree: degree=2 has no such limit."
        )


# -- monomials -------------------------------------------------------------------------------------


class MonomialLevel(NamedTuple):
    """The monomials of one degree a: ``x[variable] * (monomial parent of degree a - 1)``.

    Attributes
    ----------
    parent, variable : ndarray of int, of shape (n_monomials,)
    multiplicity : ndarray of shape (n_monomials,)
        The multinomial coefficients: how often each monomial occurs in (x_1 + ... + x_p)^a.
    """

    parent: NDArray[np.int64]
    variable: NDArray[np.int64]
    multiplicity: Vector


def n_monomials(n_variables: int, degree: int) -> int:
    """Return the number of monomials of exactly this degree.

    Examples
    --------
    >>> n_monomials(3, 2)
    6
    """
    return comb(n_variables + degree - 1, degree)


def monomial_levels(n_variables: int, degree: int) -> tuple[MonomialLevel, ...]:
    """Return the monomials of degree 1, 2, ..., `degree`, in lexicographic order.

    Examples
    --------
    x^2, x y, y^2 in (x + y)^2:

    >>> monomial_levels(2, 2)[1].multiplicity
    array([1., 2., 1.])
    """
    levels = []
    below: dict[tuple[int, ...], int] = {(): 0}
    for a in range(1, degree + 1):
        tuples = list(combinations_with_replacement(range(n_variables), a))
        counts = [prod(factorial(c) for c in Counter(t).values()) for t in tuples]
        levels.append(
            MonomialLevel(
                parent=np.array([below[t[:-1]] for t in tuples]),
                variable=np.array([t[-1] for t in tuples]),
                multiplicity=factorial(a) / np.array(counts, dtype=float),
            )
        )
        below = {t: i for i, t in enumerate(tuples)}
    return tuple(levels)


def monomials[T: (np.ndarray, TensorVariable)](x: T, levels: tuple[MonomialLevel, ...]) -> list[T]:
    """Return the values of the monomials of degree 1, 2, ... along the last axis of `x`.

    Parameters
    ----------
    x : ndarray or tensor variable, of shape (..., n_variables)
    levels : tuple of MonomialLevel

    Returns
    -------
    list
        The values for each level, of shape (..., n_monomials); the first is `x` itself.

    Examples
    --------
    >>> monomials(np.array([2.0, 3.0]), monomial_levels(2, 2))[1]
    array([4., 6., 9.])
    """
    values = [x]
    for level in levels[1:]:
        values.append(values[-1][..., level.parent] * x[..., level.variable])
    return values
