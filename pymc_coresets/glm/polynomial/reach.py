"""How far the linear predictors reach, and how far the polynomials are off there."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray
from scipy import sparse

from pymc_coresets.glm.golden import spread_rows
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials
from pymc_coresets.solving.problem import Matrix

__all__ = ["Reach", "predictor_quantile", "predictor_reach"]

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_SAMPLED_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where the linear predictors lie at some draws, and how good the polynomials are there.

    Attributes
    ----------
    n_obs : int
        Number of rows N.
    n_outside : int
        Number of predictors with |eta_n| > radius, over all rows and draws.
    n_draws : int
        Number of draws.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial, in nats.
    """

    n_obs: int
    n_outside: int
    n_draws: int
    max_error: float

    @property
    def outside(self) -> float:
        """Share of the predictors outside the radius."""
        return self.n_outside / (self.n_obs * self.n_draws)

    def __add__(self, other: "Reach") -> "Reach":
        if not isinstance(other, Reach):
            return NotImplemented
        return Reach(
            n_obs=self.n_obs + other.n_obs,
            n_outside=self.n_outside + other.n_outside,
            n_draws=self.n_draws,
            max_error=max(self.max_error, other.max_error),
        )


def predictor_reach(
    design: NDArray[Any] | sparse.csr_array, rows: RowPolynomials, coefficients: Matrix
) -> Reach:
    """Compare the rows' polynomials with their log-likelihoods at the predictors of some draws.

    One pass over the data for all draws; memory O(block).

    Parameters
    ----------
    design : ndarray or csr_array, of shape (n_obs, n_coefficients)
    rows : RowPolynomials
    coefficients : ndarray of shape (n_draws, n_coefficients)

    Returns
    -------
    Reach

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, -1.0])
    >>> rows = RowPolynomials(
    ...     lambda eta, rows: -np.log1p(np.exp(-y[rows, None] * eta)),
    ...     response=[y], offset=np.zeros(2), degree=2, radius=4.0,
    ... )
    >>> predictor_reach(np.array([[1.0], [10.0]]), rows, np.array([[0.5]])).outside
    0.5
    """
    n_obs, n_draws = design.shape[0], len(coefficients)
    step = max(64, _BLOCK_ENTRIES // n_draws)
    outside, error = 0, 0.0
    for start in range(0, n_obs, step):
        block = slice(start, min(start + step, n_obs))
        eta = design[block] @ coefficients.T + rows.offset[block][:, None]
        outside += int(np.count_nonzero(np.abs(eta) > rows.radius))
        polynomial = polyval(eta, rows.in_predictor(block).T[:, :, None], tensor=False)
        error = max(error, float(np.abs(rows.loglik(eta, block) - polynomial).max()))
    return Reach(n_obs=n_obs, n_outside=outside, n_draws=n_draws, max_error=error)


def predictor_quantile(
    design: NDArray[Any] | sparse.csr_array,
    offset: NDArray[Any],
    coefficients: Matrix,
    probability: float,
) -> float:
    """Return a quantile of |eta_n| over draws and rows, of which it reads 100 000 at most.

    Examples
    --------
    >>> predictor_quantile(np.array([[1.0], [-3.0]]), np.zeros(2), np.array([[2.0]]), 0.5)
    4.0
    """
    chosen = spread_rows(design.shape[0], _SAMPLED_ROWS)
    eta = design[chosen] @ coefficients.T + offset[chosen][:, None]
    return float(np.quantile(np.abs(eta), probability))
