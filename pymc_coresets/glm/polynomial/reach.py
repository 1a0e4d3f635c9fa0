"""How far the linear predictors reach, and how far the polynomials are off there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray
from scipy import sparse

from pymc_coresets.glm.golden import spread_rows
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials
from pymc_coresets.glm.polynomial.replacement import polynomials_on_device, row_polynomials
from pymc_coresets.glm.predictor.model_parts import PredictorBlock
from pymc_coresets.glm.predictor.streamed_predictor import PredictorRows
from pymc_coresets.solving.problem import Matrix, Vector

if TYPE_CHECKING:
    from pymc_coresets.glm.device_polynomials import DevicePolynomials

__all__ = ["Reach", "SpreadRows", "predictor_reach", "reach_of"]

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_SAMPLED_ROWS, _SAMPLED_ENTRIES = 100_000, 2**25
_NEARLY_ALL = 0.999


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where the linear predictors lie at some draws, and how good the polynomials are there.

    Attributes
    ----------
    n_obs : float
        Number of rows N, each counted as often as its base weight says.
    n_outside : float
        Number of predictors with |eta_n| > radius, over all rows and draws, counted likewise.
    n_draws : int
        Number of draws.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial, in nats.
    far : float
        The 99.9 % quantile of |eta_n|, or the largest of those of several parts; 0 if unknown.
    """

    n_obs: float
    n_outside: float
    n_draws: int
    max_error: float
    far: float = 0.0

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
            far=max(self.far, other.far),
        )


def reach_of(part: PredictorRows, degree: int, radius: float, coefficients: Matrix) -> Reach:
    """Compare the polynomials of all rows with their log-likelihoods, in one pass over the rows.

    Parameters
    ----------
    part : LinearPredictor or StreamedPredictor
    degree : int
    radius : float
    coefficients : ndarray of shape (n_draws, n_coefficients)

    Returns
    -------
    Reach

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> reach_of(found, 2, 4.0, np.array([[5.0]])).far
    5.0
    """
    spread = SpreadRows(part.n_obs, coefficients.shape[1])
    on_device = polynomials_on_device(part.held, degree)
    work = partial(_reached, degree, radius, coefficients, spread, on_device)
    reaches = []
    for reach, kept in part.of_parts(work, None):
        reaches.append(reach)
        spread = spread.joined(kept)
    far = spread.quantile(coefficients, _NEARLY_ALL)
    return sum(reaches[1:], start=replace(reaches[0], far=far))


def _reached(
    degree: int,
    radius: float,
    coefficients: Matrix,
    spread: "SpreadRows",
    on_device: "DevicePolynomials | None",
    blocks: Iterator[PredictorBlock],
    _: object,
) -> tuple[Reach, "SpreadRows"]:
    reaches = []
    for block in blocks:
        rows = row_polynomials(block.found, degree, radius)
        given = block.found.design, rows, coefficients, block.weights
        reaches.append(predictor_reach(*given, on_device=on_device))
        spread = spread.joined(spread.of_block(block))
    return sum(reaches[1:], start=reaches[0]), spread


def _spread(spread: "SpreadRows", blocks: Iterator[PredictorBlock], _: object) -> "SpreadRows":
    return reduce(SpreadRows.joined, map(spread.of_block, blocks))


def predictor_reach(
    design: NDArray[Any] | sparse.csr_array,
    rows: RowPolynomials,
    coefficients: Matrix,
    weights: Vector | None = None,
    *,
    on_device: "DevicePolynomials | None" = None,
) -> Reach:
    """Compare the rows' polynomials with their log-likelihoods at the predictors of some draws.

    One pass over the data for all draws; memory O(block).

    Parameters
    ----------
    design : ndarray or csr_array, of shape (n_obs, n_coefficients)
    rows : RowPolynomials
    coefficients : ndarray of shape (n_draws, n_coefficients)
    weights : ndarray of shape (n_obs,), optional
        How many rows each row stands for; 1 by default.
    on_device : DevicePolynomials, optional
        What compares them; by default, the processor.

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
    counts = np.ones(design.shape[0]) if weights is None else weights
    compared = _compared if on_device is None else on_device.compared
    outside, error = compared(design, rows, coefficients, counts)
    n_obs, n_draws = float(counts.sum()), len(coefficients)
    return Reach(n_obs=n_obs, n_outside=outside, n_draws=n_draws, max_error=error)


def _compared(
    design: NDArray[Any] | sparse.csr_array,
    rows: RowPolynomials,
    coefficients: Matrix,
    counts: Vector,
) -> tuple[float, float]:
    """Return the number of predictors outside the radius, and the largest error."""
    n_obs, step = design.shape[0], max(64, _BLOCK_ENTRIES // len(coefficients))
    outside, error = 0.0, 0.0
    for start in range(0, n_obs, step):
        block = slice(start, min(start + step, n_obs))
        eta = design[block] @ coefficients.T + rows.offset[block][:, None]
        outside += float(counts[block] @ np.count_nonzero(np.abs(eta) > rows.radius, axis=1))
        polynomial = polyval(eta, rows.in_predictor(block).T[:, :, None], tensor=False)
        error = max(error, float(np.abs(rows.loglik(eta, block) - polynomial).max()))
    return outside, error


class SpreadRows:
    """At most 100 000 rows spread evenly over all, fewer where they are wide, for quantiles.

    Parameters
    ----------
    n_obs : int
        Number of all rows.
    n_coefficients : int
    parts : sequence of tuple, optional
        Those that were found: designs, offsets and base weights.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("b") * np.array([1.0, -3.0])
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1])
    >>> rows = SpreadRows.of(find_linear_predictor(find_observations(model)))
    >>> rows.quantile(np.array([[2.0]]), 0.5)
    4.0
    """

    def __init__(
        self,
        n_obs: int,
        n_coefficients: int,
        parts: Sequence[tuple[Any, Vector, Vector | None]] = (),
    ) -> None:
        self._sizes, self.parts = (n_obs, n_coefficients), parts

    @classmethod
    def of(cls, part: PredictorRows) -> "SpreadRows":
        """Find them in one pass over the rows of a predictor."""
        work = partial(_spread, cls(part.n_obs, len(part.names)))
        return reduce(cls.joined, part.of_parts(work, None))

    def of_block(self, block: PredictorBlock) -> "SpreadRows":
        """Return those that lie in a block."""
        found, first = block.found, block.start
        low, high = np.searchsorted(self._chosen, [first, first + found.n_obs])
        here = self._chosen[low:high] - first
        weights = None if block.weights is None else block.weights[here]
        parts = [(found.design[here], found.offset[here], weights)] if len(here) else []
        return SpreadRows(*self._sizes, parts)

    def joined(self, other: "SpreadRows") -> "SpreadRows":
        """Return these and those that come after them."""
        return SpreadRows(*self._sizes, [*self.parts, *other.parts])

    @cached_property
    def _chosen(self) -> NDArray[np.int64]:
        n_obs, n_coefficients = self._sizes
        most = min(_SAMPLED_ROWS, max(1_000, _SAMPLED_ENTRIES // n_coefficients))
        return spread_rows(n_obs, most)

    def quantile(self, coefficients: Matrix, probability: float) -> float:
        """Return a quantile of |eta_n| over these rows and all draws (n_draws, n_coefficients)."""
        sizes = [np.abs(x @ coefficients.T + offset[:, None]) for x, offset, _ in self.parts]
        if all(weights is None for *_, weights in self.parts):
            return float(np.quantile(np.concatenate(sizes), probability))
        counts = np.concatenate(
            [np.ones(len(o)) if weights is None else weights for _, o, weights in self.parts]
        )
        eta = np.concatenate(sizes)
        return float(
            np.quantile(
                eta.ravel(), probability, method="inverted_cdf",
                weights=np.repeat(counts, eta.shape[1]),
            )
        )  # fmt: skip
