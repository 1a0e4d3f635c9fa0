"""The quadratic of every row, averaged over the posterior, and what it leaves of the row."""

from dataclasses import dataclass

import numpy as np

from pymc_coresets.glm.predictor.affine import Matrix
from pymc_coresets.glm.predictor.model_parts import LinearPredictor
from pymc_coresets.rows.passes import in_threads

__all__ = ["AveragedRows", "RowsInMemory", "average", "gram"]

_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(7)
_MASSES = _MASSES / _MASSES.sum()
_BLOCK_ENTRIES = 2**22  # of predictors at draws
_LEAST_WIDTH = 1e-3  # of the predictor's size: narrower, differences are rounding


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Distinct rows of a generalised linear model, with how many rows each of them stands for.

    Parameters
    ----------
    found : LinearPredictor
    which : ndarray of int
        Numbers of the rows in ``found``.
    base_weights : ndarray of float64
    """

    found: LinearPredictor
    which: np.ndarray
    base_weights: np.ndarray

    def design(self, block: slice | np.ndarray) -> Matrix:
        """Return the design matrix of some of the rows."""
        design: Matrix = self.found.design[self.which[block]]
        return design

    def offset(self, block: slice | np.ndarray) -> np.ndarray:
        """Return the offsets of some of the rows."""
        offset: np.ndarray = self.found.offset[self.which[block]]
        return offset

    def loglik(self, eta: np.ndarray, block: slice | np.ndarray) -> np.ndarray:
        """Return the log-densities of some rows at predictors (K, n_rows), as (K, n_rows)."""
        rows = self.which[block]
        return self.found.link.evaluate(eta, rows, len(rows))

    def __len__(self) -> int:
        return len(self.which)


@dataclass(frozen=True, eq=False)
class AveragedRows:
    """Sums over rows, and what each of them is far from its quadratic, at draws.

    With ``e_n = x_n . (c - center)``, row n is approximated by ``slopes[n] e_n + curvatures[n]
    e_n^2 / 2``, up to a constant.

    Parameters
    ----------
    slope : ndarray of shape (p,)
    curvature : ndarray of shape (p, p)
        Sums over all rows, times their base weights.
    slopes, curvatures : ndarray of shape (n_rows,)
    spread : ndarray of shape (n_rows,)
        Standard deviation over the draws of what the quadratic leaves of a row, in nats, times the
        row's base weight.
    residual : ndarray of shape (n_draws,)
        What it leaves of all rows, in nats, up to a constant.
    """

    slope: np.ndarray
    curvature: np.ndarray
    slopes: np.ndarray
    curvatures: np.ndarray
    spread: np.ndarray
    residual: np.ndarray


def average(rows: RowsInMemory, center: np.ndarray, draws: np.ndarray) -> AveragedRows:
    """Approximate every row by the quadratic that is closest to it on average over draws.

    As a function of its predictor, which is normal around ``x_n . center`` with the variance that
    the draws have: the projection on Hermite polynomials of degree 2, by seven nodes of
    Gauss-Hermite quadrature.  By Stein's identity its coefficients are the averages of the slope
    and of the curvature.  One pass: O(N p (S + p)) for a dense design, memory O(N + p^2).

    Parameters
    ----------
    rows : RowsInMemory
    center : ndarray of shape (p,)
        About which it is expanded.
    draws : ndarray of shape (n_draws, p)
        Of the coefficients.
    """
    size = max(_BLOCK_ENTRIES // max(len(draws), draws.shape[1]), 256)
    away = draws - center

    def of_block(start: int) -> AveragedRows:
        return _of_block(rows, slice(start, start + size), center, away)

    n_dims, each = len(center), list[np.ndarray]()
    slope, curvature = np.zeros(n_dims), np.zeros((n_dims, n_dims))
    residual = np.zeros(len(draws))
    for part in in_threads(of_block, range(0, len(rows), size)):
        slope += part.slope
        curvature += part.curvature
        residual += part.residual
        each.append(np.stack([part.slopes, part.curvatures, part.spread]))
    slopes, curvatures, spread = np.concatenate(each, axis=1)
    return AveragedRows(slope, curvature, slopes, curvatures, spread, residual)


def _of_block(
    rows: RowsInMemory, block: slice, center: np.ndarray, away: np.ndarray
) -> AveragedRows:
    design, base_weights = rows.design(block), rows.base_weights[block]
    middle = design @ center + rows.offset(block)
    moved = np.asarray((design @ away.T).T)  # (n_draws, n_rows)
    width = moved.std(axis=0) if len(away) > 1 else np.zeros(len(middle))
    width = np.maximum(width, _LEAST_WIDTH * (1 + np.abs(middle)))
    at_nodes = rows.loglik(middle + _NODES[:, None] * width, block)
    slopes = (_MASSES * _NODES) @ at_nodes / width
    curvatures = (_MASSES * (_NODES**2 - 1)) @ at_nodes / width**2
    left = rows.loglik(middle + moved, block) - slopes * moved - curvatures / 2 * moved**2
    left = left - left.mean(axis=0)
    weighted = base_weights * curvatures
    return AveragedRows(
        slope=np.asarray(design.T @ (base_weights * slopes)).ravel(),
        curvature=gram(design, weighted),
        slopes=slopes,
        curvatures=curvatures,
        spread=base_weights * left.std(axis=0),
        residual=left @ base_weights,
    )


def gram(design: Matrix, weights: np.ndarray) -> np.ndarray:
    """Return the sum of weighted outer products of rows, (p, p)."""
    if isinstance(design, np.ndarray):
        gram: np.ndarray = design.T @ (weights[:, None] * design)
        return gram
    return np.asarray((design.T @ design.multiply(weights[:, None]).tocsr()).todense())
