"""Rows that are normal in their predictor: numbers in which they are quadratic, at any width."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import checked_tensor
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory, verify_predictors
from pymc_coresets.glm.predictor.row_density import RowDensity
from pymc_coresets.reading.pushdown import RowArray

type Array = np.ndarray

#: Steps to the maximum of a parabola: the first takes out its distance, the last its rounding.
_STEPS = 3
#: Widths from its peak at which a parabola is compared with its height: so far that rounding of
#: the latter does not count, even where rows are a million times as wide as at first.
_FAR = 2.0**10
#: Rows that are compared with the model at a time.
_BLOCK_ROWS = 2**17


@dataclass(frozen=True, eq=False, kw_only=True)
class Parabolas:
    """Log-densities of rows that are quadratic in one of their numbers, at the other numbers.

    Parameters
    ----------
    peaks : ndarray of shape (n_rows,)
        Where each is highest.
    heights : ndarray of shape (n_rows,)
        Its value there, in nats.
    precisions : ndarray of shape (n_rows,)
        Its negative curvature.
    """

    peaks: Array
    heights: Array
    precisions: Array

    @classmethod
    def of(cls, density: Callable[[Array], Array], numbers: Array, which: int) -> Self:
        """Find them by differences of values.

        Parameters
        ----------
        density : callable
            From numbers (k, n_points, n_rows) to log-densities (n_points, n_rows).
        numbers : ndarray of shape (k, n_rows)
        which : int
            Which of these varies.
        """
        peaks, steps = numbers[which].copy(), np.ones(numbers.shape[1])
        with np.errstate(all="ignore"):  # NaN where there is no maximum
            for _ in range(_STEPS):
                seen = np.repeat(numbers[:, None], 3, axis=1)
                seen[which] = peaks + np.array([[-1.0], [0.0], [1.0]]) * steps
                below, here, above = density(seen)
                precisions = (2 * here - below - above) / steps**2
                peaks = peaks + (above - below) / (2 * steps * precisions)
                steps = 1 / np.sqrt(precisions)
        return cls(peaks=peaks, heights=here, precisions=precisions)

    @property
    def are_proper(self) -> bool:
        """Whether each has a maximum."""
        every = (self.peaks, self.heights, self.precisions)
        return all(np.isfinite(v).all() for v in every) and bool((self.precisions > 0).all())

    def at(self, values: Array) -> Array:
        """Evaluate at values (..., n_rows) of that number."""
        found: Array = self.heights - self.precisions * np.square(values - self.peaks) / 2
        return found


def derivatives_of(rows: RowsInMemory, numbers: Array) -> tuple[Array, Array]:
    """Return slopes (3, n_rows) and curvatures (3, 3, n_rows) of rows that are quadratic.

    Parameters
    ----------
    rows : RowsInMemory
        In the numbers of `in_widths`.
    numbers : ndarray of shape (3, n_rows)
        At which the slopes are.
    """
    peaks, _, precisions = rows.response
    _, root, eta = numbers
    pull = precisions * (root * peaks - eta)
    zero, one = np.zeros_like(pull), np.ones_like(pull)
    slopes = np.stack([one, -peaks * pull, pull])
    curved = [-precisions * peaks**2, precisions * peaks, -precisions]
    curvatures = [[zero, zero, zero], [zero, curved[0], curved[1]], [zero, curved[1], curved[2]]]
    return slopes, np.array(curvatures)


@dataclass(frozen=True, eq=False, kw_only=True)
class _OfParabolas(RowDensity):
    """The density of rows by their parabolas, which are computed for any rows.

    Attributes
    ----------
    of : RowDensity
        By the model, in the predictor itself.
    n_before : int
        Number of shared numbers of the latter.
    """

    of: RowDensity
    n_before: int

    def of_rows(self, arrays: Mapping[Variable, Array]) -> "_OfParabolas":
        """Return the density of other rows, from arrays by their placeholders."""
        of = self.of.of_rows(arrays)
        found = _parabolas(of, self.n_before)
        values = (found.peaks, found.heights, found.precisions)
        rows = [replace(row, values=own) for row, own in zip(self.rows, values, strict=True)]
        return replace(self, of=of, rows=tuple(rows))


def _parabolas(density: RowDensity, n_shared: int) -> Parabolas:
    """Return the parabolas of all rows that a density holds, where shared numbers are zero.

    There scales are one, whatever the data are.
    """
    first = density.rows[0]
    n_rows = first.values.shape[first.axis]
    numbers = np.zeros((n_shared + 1, n_rows))
    return Parabolas.of(
        lambda seen: density(seen, slice(0, n_rows), n_rows, compiled=False), numbers, n_shared
    )


def in_widths(found: Predictors) -> Predictors | None:
    """Return numbers in which rows are quadratic, whatever their width; None if there are none.

    Rows that are normal in their predictor, ``a(s) + b_n - r(s) v_n (eta_n - e_n)^2 / 2`` with
    shared numbers s such as a standard deviation, are so in ``a``, ``sqrt(r)`` and ``sqrt(r)
    eta_n``: as ``a + b_n - v_n (sqrt(r) eta_n - sqrt(r) e_n)^2 / 2``.  The last one is linear in
    the coefficients times ``sqrt(r)``.  So a single quadratic is the log-likelihood of all rows.

    Parameters
    ----------
    found : Predictors
        In memory.

    Returns
    -------
    Predictors, or None
        None if rows have several predictors, or a known width, or are not normal, or if widths of
        rows depend on s in different ways.  Their log-densities were compared with the model's, for
        all rows at three points.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_predictors
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     b, noise = pm.Normal("b", shape=2), pm.HalfNormal("noise")
    ...     y = pm.Normal("y", b[0] + b[1] * np.arange(3.0), noise, observed=[0.0, 1.0, 5.0])
    >>> in_widths(find_predictors(find_observations(model))).names
    ('height', '1 / width', 'b[0] / width', 'b[1] / width')
    """
    m, density = found.n_shared, found.density
    has_one = len(found.predictors) == 1 and len(density.etas) == 1 and density.etas[0].ndim == 1
    if not (m and has_one and density.rows):
        return None
    own = _parabolas(density, m)
    if not own.are_proper:
        return None
    height, root = _height_and_root(found, own)
    parts = [height[None], root[None], found.coefficients[m:] * root]
    predictor = found.predictors[0]
    result = replace(
        found,
        names=("height", "1 / width", *(f"{name} / width" for name in found.names[m:])),
        coefficients=checked_tensor(pt.concatenate(parts)),
        n_shared=2,
        predictors=(predictor.in_widths(np.append(1, predictor.columns - m + 2)),),
        density=_density_of(density, own, m),
        is_quadratic=True,
    )
    try:
        for start in range(0, found.observations.n_obs, _BLOCK_ROWS):
            end = min(start + _BLOCK_ROWS, found.observations.n_obs)
            verify_predictors(result, np.arange(start, end))
    except (UnsupportedModelError, InvalidDataError):
        return None
    return result


def _height_and_root(found: Predictors, own: Parabolas) -> tuple[TensorVariable, TensorVariable]:
    """Return graphs of ``a`` and ``sqrt(r)``, as they are for the first row."""
    m, density, start = found.n_shared, found.density, 0
    given: dict[Variable, Variable] = {density.n_rows: pt.constant(1, dtype="int64")}
    for v in density.shared:
        size = math.prod(v.type.shape)
        part = found.coefficients[start : start + size].reshape(v.type.shape)
        given[v], start = part.astype(v.type.dtype), start + size
    assert start == m
    for row in density.rows:
        given[row.placeholder] = pt.constant(row.take(slice(0, 1)))
    [eta], width = density.etas, 1 / np.sqrt(own.precisions[:1])

    def at(value: Array) -> TensorVariable:
        place = pt.constant(value.astype(eta.type.dtype))
        [graph] = clone_replace([density.graph], given | {eta: place}, rebuild_strict=False)
        return checked_tensor(checked_tensor(graph)[0].astype("float64"))

    above, below = at(own.peaks[:1]), at(own.peaks[:1] + _FAR * width)
    root = pt.sqrt(2 * (above - below)) / _FAR
    return checked_tensor(above - own.heights[0]), checked_tensor(root)


def _density_of(density: RowDensity, own: Parabolas, n_shared: int) -> RowDensity:
    """Return the density of rows in numbers in which they are quadratic."""
    height, root = (pt.scalar(name, dtype="float64") for name in ("height", "root"))
    eta, *data = (
        pt.vector(name, dtype="float64") for name in ("eta", "peak", "height", "precision")
    )
    peaks, heights, precisions = data
    graph = height + heights - precisions * (eta - root * peaks) ** 2 / 2
    values = (own.peaks, own.heights, own.precisions)
    return _OfParabolas(
        graph=checked_tensor(pt.broadcast_to(graph, (density.n_rows,))),
        shared=(height, root),
        etas=(eta,),
        n_rows=density.n_rows,
        rows=tuple(RowArray(v, v, each, 0) for v, each in zip(data, values, strict=True)),
        of=density,
        n_before=n_shared,
    )
