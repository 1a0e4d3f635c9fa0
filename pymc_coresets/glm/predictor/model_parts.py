"""The parts of a generalised linear model: coefficients, design matrix, offset, link."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pymc_coresets.compat.pytensor_api import (
    TensorVariable,
    Variable,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.predictor.affine import Matrix
from pymc_coresets.glm.predictor.link import Link
from pymc_coresets.potentials.backends.choice import Jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.rewriting.quadratic import interface_at
from pymc_coresets.reading.row_arrays import RowArray

__all__ = [
    "BlockWork",
    "LinearPredictor",
    "PredictorBlock",
    "coefficient_draws",
    "refuse_not_finite",
]

#: From consecutive blocks of rows to what they add up to; tells how many rows it has done.
type BlockWork[T] = Callable[[Iterator[PredictorBlock], Callable[[int], None] | None], T]

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearPredictor:
    """A generalised linear model: log p(y_n | theta) = phi_n(eta_n), eta = X c(theta) + offset.

    Attributes
    ----------
    observations : Observations
        The observations that it was read from.
    names : tuple of str
        A label for each coefficient: ``"a"``, ``"beta[age]"`` (coordinates where the variable has
        dims), ``"beta[3]"``.
    coefficients : TensorVariable
        c, of shape (p,): a graph of ``observations.parameters``.
    nodes : tuple of TensorVariable
        The parts of `coefficients`, raveled in C order: free variables, or expressions of them that
        all rows share.
    design : ndarray or csr_array, of shape (n_obs, p)
        X, in float64.  It may be the user's own array: do not write to it.
    offset : ndarray of shape (n_obs,)
        The part of the predictor that does not depend on coefficients, such as a log exposure.
    link : Link
        phi; `loglik` evaluates it.
    node : Variable
        The predictor, in the graph of ``observations.loglik``.
    place : callable
        Says where a row lies, for messages.
    backend : Jax, optional
        Who evaluates all rows; by default, loops that Numba compiles.
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    nodes: tuple[TensorVariable, ...]
    design: Matrix
    offset: np.ndarray
    link: Link = field(repr=False)
    node: Variable = field(repr=False)
    place: Callable[[int], str] = field(default="row {}".format, repr=False)
    backend: Jax | None = None

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return len(self.offset)

    @property
    def held(self) -> "LinearPredictor":
        """The predictor of the rows that the model itself holds."""
        return self

    @property
    def loglikelihood(self) -> LogLikelihood:
        """The model's own log-likelihood of all rows."""
        return LogLikelihood(self.observations, collapse="auto", backend=self.backend)

    def blocks(self) -> Iterator["PredictorBlock"]:
        """Return all rows as one block: they are in memory."""
        yield PredictorBlock(found=self)

    def of_parts[T](self, work: "BlockWork[T]", show: Callable[[int], None] | None) -> Iterator[T]:
        """Yield what is computed from all rows, see `StreamedPredictor.of_parts`."""
        yield work(self.blocks(), show)

    @property
    def response(self) -> tuple[RowArray, ...]:
        """The arrays that phi_n depends on: outcomes, numbers of trials and the like."""
        return self.link.rows

    def predictor(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute eta = X c + offset.

        Parameters
        ----------
        coefficients : ndarray of shape (p,) or (n_draws, p)

        Returns
        -------
        ndarray of shape (n_obs,) or (n_obs, n_draws)

        Raises
        ------
        InvalidOptionError
            If `coefficients` has another shape.
        """
        c = np.asarray(coefficients, dtype=float)
        if c.ndim not in (1, 2) or c.shape[-1] != len(self.names):
            raise InvalidOptionError(
                f"coefficients must have shape ({len(self.names)},) or (n_draws, "
                f"{len(self.names)}), not {c.shape}."
            )
        eta: np.ndarray = self.design @ c.T
        eta += self.offset if c.ndim == 1 else self.offset[:, None]
        return eta

    def loglik(self, eta: np.ndarray, rows: np.ndarray | slice | None = None) -> np.ndarray:
        """Compute phi_n(eta) = log p(y_n | eta), in nats, for some rows (or all).

        Compiled at the first call, for any rows.  Takes a few nanoseconds per entry, and a megabyte
        besides the result.

        Parameters
        ----------
        eta : ndarray of shape (K,) or (n_rows, K)
            K values of the predictor: the same for all rows, or each row's own.
        rows : ndarray of int, or slice, optional
            Positions along the observation axis; all by default.

        Returns
        -------
        ndarray of shape (n_rows, K)
            In Fortran order.  It may hold infinite values and NaN.

        Raises
        ------
        InvalidOptionError
            If `eta` has another shape.
        """
        everything = range(self.n_obs)
        chosen = rows if isinstance(rows, np.ndarray) else everything[rows or slice(None)]
        n_rows = len(chosen)
        eta = np.asarray(eta, dtype=float)
        if eta.ndim not in (1, 2) or (eta.ndim == 2 and len(eta) != n_rows):
            raise InvalidOptionError(f"eta must have shape (K,) or ({n_rows}, K), not {eta.shape}.")
        out = np.empty((eta.shape[-1], n_rows))
        step = max(64, _BLOCK_ENTRIES // max(1, len(out)))
        for start in range(0, n_rows, step):
            block = slice(start, min(start + step, n_rows))
            values = eta[:, None] if eta.ndim == 1 else eta[block].T
            out[:, block] = self.link.evaluate(values, _some(chosen, block), block.stop - start)
        return out.T


@dataclass(frozen=True, eq=False, kw_only=True)
class PredictorBlock:
    """Consecutive rows of a generalised linear model.

    Attributes
    ----------
    found : LinearPredictor
        That of these rows.
    start : int
        Position of the first one among all rows.
    weights : ndarray of shape (n_obs,), or None
        How many rows each one stands for; ``None`` where that is 1.
    """

    found: LinearPredictor
    start: int = 0
    weights: np.ndarray | None = None

    @property
    def total_weight(self) -> float:
        """How many rows of the data these are."""
        return float(self.found.n_obs if self.weights is None else self.weights.sum())


def _some(rows: range | np.ndarray, block: slice) -> slice | np.ndarray:
    """Return a block of the rows, as a slice where possible, since slices copy nothing."""
    some = rows[block]
    if not isinstance(some, range):
        return some
    return slice(some.start, some.stop, some.step) if some.step > 0 else np.array(some)


def refuse_not_finite(
    design: Matrix, offset: np.ndarray, names: Sequence[str], place: Callable[[int], str]
) -> None:
    """Raise `InvalidDataError` if a design matrix or an offset is not finite in some row."""
    if not np.isfinite(offset).all():
        [n, *_] = np.flatnonzero(~np.isfinite(offset))
        raise InvalidDataError(
            f"The offset of the linear predictor is {offset[n]} in {place(int(n))}. Correct "
            "the data (such as an exposure of zero, of which the logarithm is taken), or leave the "
            "row out."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(design.sum()):  # that of finite numbers is finite, or overflows
            return
        total = design.sum(axis=0)
    for k in map(int, np.flatnonzero(~np.isfinite(total))):
        column = np.asarray(design[:, [k]].sum(axis=1)).ravel()
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise InvalidDataError(
                f"The covariate of {names[k]!r} is {column[bad[0]]} in "
                f"{place(int(bad[0]))}. Leave such rows out, or impute them."
            )


class _HasCoefficients(Protocol):
    @property
    def coefficients(self) -> TensorVariable: ...
    @property
    def observations(self) -> Observations: ...


def coefficient_draws(found: _HasCoefficients, draws: DrawsLike) -> np.ndarray:
    """Compute the coefficients (n_draws, n_coefficients) at draws of the free variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> coefficient_draws(found, {"a": [1.0, 2.0]})
    array([[1.],
           [2.]])
    """
    return interface_at(found.coefficients, found.observations, draws)
