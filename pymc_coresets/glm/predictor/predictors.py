"""Predictors: the few numbers through which each row depends on the free variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations_with_replacement

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable
from pytensor.tensor import TensorVariable
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.predictor.affine import Matrix
from pymc_coresets.glm.predictor.row_density import (
    MOST_OWN,
    MOST_TOGETHER,
    RowDensity,
    distinct_rows,
    effects,
)
from pymc_coresets.glm.predictor.row_graph import evenly_spread, spread_rows
from pymc_coresets.numerics import ROUNDING, differing
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Curvature, interface_at

#: Largest number of coefficients for which a dense matrix of their pairs is kept, of 8 MB.
_DENSE_UP_TO = 1_000
#: Numbers in a block of rows: with its scaled copy, it fits into the cache of a processor.
_GRAM_ENTRIES = 2**19


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A predictor of each row, affine in some of the coefficients.

    Parameters
    ----------
    columns : ndarray of int, of shape (k,)
        Which coefficients.
    design : ndarray or csr_array, of shape (n_rows, k)
    offset : ndarray of shape (n_rows,)
    """

    columns: np.ndarray
    design: Matrix
    offset: np.ndarray

    def of(self, rows: slice | np.ndarray) -> "LinearPredictor":
        """Return the predictor of some rows."""
        return LinearPredictor(self.columns, self.design[rows], self.offset[rows])

    def refuse_not_finite(self, names: Sequence[str], place: Callable[[int], str]) -> None:
        """Raise `InvalidDataError`, naming the column, if it is not finite in some row."""
        if not np.isfinite(self.offset).all():
            [n, *_] = np.flatnonzero(~np.isfinite(self.offset))
            raise InvalidDataError(
                f"The offset of the linear predictor is {self.offset[n]} in {place(int(n))}. "
                "Correct the data (such as an exposure of zero, whose logarithm is infinite), "
                "or leave the row out.",
                topic="regressions",
            )
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(self.design.sum()):  # that of finite numbers is finite, or overflows
                return
            total = self.design.sum(axis=0)
        for k in map(int, np.flatnonzero(~np.isfinite(total))):
            column = np.asarray(self.design[:, [k]].sum(axis=1)).ravel()
            bad = np.flatnonzero(~np.isfinite(column))
            if bad.size:
                raise InvalidDataError(
                    f"The covariate of {names[k]!r} is {column[bad[0]]} in "
                    f"{place(int(bad[0]))}. Leave such rows out, or impute them.",
                    topic="regressions",
                )

    def in_widths(self, columns: np.ndarray) -> "LinearPredictor":
        """Return the same over a width: the offset is the first of its columns, and zero then."""
        first = self.offset[:, None]
        design: Matrix
        if isinstance(self.design, np.ndarray):
            design = np.hstack([first, self.design])
        else:
            design = sparse.csr_array(sparse.hstack([sparse.csr_array(first), self.design]))
        return LinearPredictor(columns, design, np.zeros_like(self.offset))

    def at(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute the predictor without its offset at (n_draws, p), as (n_draws, n_rows)."""
        return np.asarray((self.design @ coefficients[:, self.columns].T).T)


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictors:
    """A model whose rows depend on the free variables through few numbers, affine in c.

    Attributes
    ----------
    observations : Observations
    names : tuple of str
        A label for each coefficient; first those that enter all rows directly.
    coefficients : TensorVariable
        c, of shape (p,): a graph of ``observations.parameters``.  Shared scalars are on their
        unconstrained scale, such as the logarithm of a standard deviation.
    n_shared : int
        Number m of coefficients that enter all rows directly.
    predictors : tuple of LinearPredictor
        The predictors.
    nodes : tuple of Variable
        The same, in the graph of ``observations.loglik``.
    density : RowDensity
    most_own : int
        Largest number of predictors that a row depends on, if there are more than four.
    is_quadratic : bool
        Whether rows are quadratic in their numbers, see `parabolas.in_widths`.
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    n_shared: int
    predictors: tuple[LinearPredictor, ...]
    nodes: tuple[Variable, ...]
    density: RowDensity
    most_own: int = MOST_OWN
    is_quadratic: bool = False

    @property
    def n_seen(self) -> int:
        """Number of predictors and shared coefficients."""
        return self.n_shared + len(self.predictors)

    @property
    def entries_a_row(self) -> int:
        """Entries of the designs per row (non-zero ones of sparse designs), at least 1."""
        designs = [predictor.design for predictor in self.predictors]
        total = sum(d.size if isinstance(d, np.ndarray) else d.nnz for d in designs)
        return max(total // self.observations.n_obs, 1)

    @property
    def is_sparse(self) -> bool:
        """Whether there are many coefficients, few pairs of which occur in the same row."""
        large = len(self.names) > _DENSE_UP_TO
        return large and all(sparse.issparse(predictor.design) for predictor in self.predictors)

    def refuse_not_finite(self, place: Callable[[int], str]) -> None:
        """Raise `InvalidDataError`, naming the row, if a predictor is not finite."""
        for predictor in self.predictors:
            predictor.refuse_not_finite([self.names[k] for k in predictor.columns], place)


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Distinct rows of a model, with their case weights.

    Parameters
    ----------
    found : Predictors
    which : ndarray of int
        Numbers of the rows in ``found``, ascending.
    case_weights : ndarray of float64
    where : callable, optional
        Returns the location of a row, for messages.
    """

    found: Predictors
    which: np.ndarray
    case_weights: np.ndarray
    where: Callable[[int], str] = "row {}".format

    def __len__(self) -> int:
        return len(self.case_weights)

    def take(self, some: slice | np.ndarray) -> "RowsInMemory":
        """Return some of the rows."""
        return replace(self, which=self.which[some], case_weights=self.case_weights[some])

    @property
    def place(self) -> slice | np.ndarray:
        """Positions of the rows: a slice if they are consecutive, which avoids copies."""
        first, last = self.which[[0, -1]] if len(self) else (0, -1)
        return slice(first, last + 1) if last - first + 1 == len(self) else self.which

    @cached_property
    def predictors(self) -> tuple[LinearPredictor, ...]:
        """The predictors of these rows."""
        return tuple(predictor.of(self.place) for predictor in self.found.predictors)

    def gram(self, weights: np.ndarray) -> Curvature:
        """Sum ``X_n' weights[:, :, n] X_n`` over the rows, as (p, p), for weights (k, k, n).

        Sparse if the designs are, and p is large.
        """
        p, k = len(self.found.names), range(len(weights))
        is_sparse = self.found.is_sparse
        total: Curvature = sparse.csr_array((p, p)) if is_sparse else np.zeros((p, p))
        for i, j in combinations_with_replacement(k, 2):
            (one, x), (other, z) = self._columns(i), self._columns(j)
            own = weights[i, j]
            some = np.flatnonzero(own)
            if 2 * len(some) < len(own):  # skip rows that do not depend on both numbers
                if not len(some):
                    continue
                own, x, z = own[some], x[some], z[some]
            part = weighted_gram(x, own) if i == j else weighted_product(x, own, z)
            if isinstance(total, np.ndarray):
                part = part if isinstance(part, np.ndarray) else part.toarray()
                total[np.ix_(one, other)] += part
                if i != j:
                    total[np.ix_(other, one)] += part.T
                continue
            entries = sparse.coo_array(part)
            at = one[entries.row], other[entries.col]
            placed = sparse.csr_array((entries.data, at), shape=(p, p))
            total = total + (placed if i == j else placed + placed.T)
        return total

    def _columns(self, i: int) -> tuple[np.ndarray, Matrix]:
        """Return the coefficients in number i of each row, and the design matrix."""
        m = self.found.n_shared
        if i >= m:
            return self.predictors[i - m].columns, self.predictors[i - m].design
        ones = np.ones((len(self), 1))
        return np.array([i]), sparse.csr_array(ones) if self.found.is_sparse else ones

    def seen(self, away: np.ndarray) -> np.ndarray:
        """Return the changes of rows' numbers for changes (S, p) of coefficients, as (k, S, n)."""
        m, shape = self.found.n_shared, (len(away), len(self))
        shared = [np.broadcast_to(e[:, None], shape) for e in away[:, :m].T]
        return np.stack([*shared, *(predictor.at(away) for predictor in self.predictors)])

    def slope(self, weights: np.ndarray) -> np.ndarray:
        """Sum ``X_n' weights[:, n]`` over the rows, as (p,), for weights (k, n)."""
        total = np.zeros(len(self.found.names))
        for i, own in enumerate(weights):
            columns, design = self._columns(i)
            total[columns] += np.asarray(design.T @ own).ravel()
        return total

    @property
    def response(self) -> list[np.ndarray]:
        """Other inputs of the rows' log-density; the rows come first."""
        arrays = [np.moveaxis(r.take(self.place), r.axis, 0) for r in self.found.density.rows]
        return arrays or [np.zeros(len(self))]

    def numbers(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the rows' numbers at (S, p) coefficients, including offsets, as (k, S, n)."""
        numbers = self.seen(coefficients)
        for i, predictor in enumerate(self.predictors, self.found.n_shared):
            numbers[i] += predictor.offset
        return numbers

    def density(self, seen: np.ndarray, *, compiled: bool = True) -> np.ndarray:
        """Evaluate the log-density at rows' numbers (k, K, n) or (k, K, 1), as (K, n)."""
        return self.found.density(seen, self.place, len(self), compiled=compiled)

    def kinds_at(self, eta: np.ndarray) -> tuple[np.ndarray, slice | np.ndarray, np.ndarray]:
        """Evaluate the log-density at values of one predictor, once per kind of equal rows.

        Nothing is compiled for up to 4,096 kinds; if there are more, each row is its own kind.

        Parameters
        ----------
        eta : ndarray of shape (n_eta,)

        Returns
        -------
        values : ndarray of shape (n_kinds, n_eta)
        numbers : ndarray of int64, of shape (n_rows,), or slice
            The kind of each row.
        first : ndarray of int64, of shape (n_kinds,)
            A row of each kind.
        """
        at, kinds = eta[None, :, None], distinct_rows(self.response)
        if kinds is None:
            values = self.density(at).T
            return values, slice(None), np.arange(len(values))
        numbers, first = kinds
        return self.take(first).density(at, compiled=False).T, numbers, first

    def compare(self, arrays: Mapping[Variable, np.ndarray]) -> None:
        """Compare the density of these rows with that of the model, at three points.

        Parameters
        ----------
        arrays : mapping of Variable to ndarray
            The rows, by the placeholders in the graph of the model.

        Raises
        ------
        UnsupportedModelError
            If they differ, or a row depends on too many numbers.
        InvalidDataError
            If the model's density is not finite at any point.
        """
        at, expected = self._at_points(arrays)
        seen = self.numbers(at)
        values = self.density(seen, compiled=False)
        if not np.isfinite(expected).any():
            raise InvalidDataError(
                "The log-likelihood is not finite at or near the model's initial point. Give a "
                "better one (initval=...), scale the covariates, or correct the values of "
                "given={...}.",
                topic="regressions",
            )
        for s, n in differing(values, expected)[:1]:
            raise UnsupportedModelError(
                f"The log-likelihood of {self.where(int(n))} is {values[s, n]} by the linear "
                f"predictor, but {expected[s, n]} by the model, whose structure is not understood. "
                "Please report the model, and use a method for general models.",
                topic="regressions",
            )
        if self.found.n_seen > MOST_TOGETHER:
            own = np.zeros((self.found.n_seen, len(self)), dtype=bool)
            for middle in seen.swapaxes(0, 1):  # at the first of which products may be zero
                density = partial(self.density, compiled=False)
                own |= effects(density, middle, np.zeros(middle.shape)) > 0
            most = int(own.sum(axis=0).max())
            if most > self.found.most_own:
                raise UnsupportedModelError(
                    f"A row depends on {most} numbers of the free variables.", topic="regressions"
                )

    def _at_points(self, arrays: Mapping[Variable, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate coefficients (n_points, p) and the model's log-density (n_points, n_rows)."""
        obs = self.found.observations
        # On the unconstrained scale, as in `verify_rows`.
        jitters = np.array([[0.0], [0.1], [0.5]]) * (2.0 * evenly_spread(obs.space.n_dims) - 1.0)
        draws = obs.space.constrain(obs.space.start + jitters)
        outputs = [self.found.coefficients, pt.broadcast_to(obs.loglik, (obs.n_rows,))]
        function = numpy_function([*obs.parameters.values(), obs.n_rows, *arrays], outputs)
        points = [
            [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
            for s in range(draws.n_draws)
        ]
        with np.errstate(all="ignore"):
            results = [function(*p, np.asarray(len(self)), *arrays.values()) for p in points]
        return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])


def verify_predictors(found: Predictors, which: np.ndarray | None = None) -> None:
    """Compare the density with the model's own, for some rows at three points.

    Parameters
    ----------
    found : Predictors
    which : ndarray of int, optional
        The rows; 200 by default, spread evenly.

    Raises
    ------
    UnsupportedModelError
        If they differ.
    """
    observations = found.observations
    which = spread_rows(observations.n_obs, 200) if which is None else which
    rows = RowsInMemory(
        found, which, np.ones(len(which)), lambda n: observations.place(int(which[n]))
    )
    rows.compare({row.placeholder: row.take(which) for row in observations.rows})


def coefficient_draws(found: Predictors, draws: DrawsLike) -> np.ndarray:
    """Compute the coefficients (n_draws, n_coefficients) at draws of the free variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_predictors
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("a") * np.arange(3.0)
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1, 1])
    >>> found = find_predictors(find_observations(model))
    >>> coefficient_draws(found, {"a": [1.0, 2.0]})
    array([[1.],
           [2.]])
    """
    return interface_at(found.coefficients, found.observations, draws)


# -- sums of products ------------------------------------------------------------------------------


def weighted_gram(x: Matrix, weights: np.ndarray) -> Matrix:
    """Sum ``weights[n] x_n x_n'`` over rows, as (p, p); sparse if the rows are.

    Nothing as large as the rows is copied.

    Parameters
    ----------
    x : ndarray or csr_array, of shape (n, p)
    weights : ndarray of shape (n,)
        Of any signs.

    Notes
    -----
    The symmetric product of BLAS takes half the time of a general one, but does not support
    weights: rows are scaled by their square roots, for each sign separately.  If all weights are
    equal, no scaling is needed.

    Examples
    --------
    >>> weighted_gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -3.0]))
    array([[1., 2.],
           [2., 1.]])
    """
    if not isinstance(x, np.ndarray):
        return weighted_product(x, weights, x)
    n, p = x.shape
    total = np.zeros((p, p), order="F")
    step = max(64, _GRAM_ENTRIES // max(p, 1))
    with np.errstate(over="ignore", invalid="ignore"):  # callers check for finite sums
        for start in range(0, n, step):
            block = slice(start, start + step)
            _add_gram(total, np.asarray(x[block], dtype=float), weights[block])
    return np.triu(total) + np.triu(total, 1).T


def _add_gram(total: np.ndarray, x: np.ndarray, weights: np.ndarray) -> None:
    """Add the upper triangle, in place."""
    low, high = weights.min(), weights.max()
    if high - low <= ROUNDING * max(-low, high):
        dsyrk(float(low + high) / 2, x.T, beta=1.0, c=total, overwrite_c=1)
        return
    for sign in (-1.0, 1.0):
        chosen = weights * sign > 0
        if chosen.any():
            which = slice(None) if chosen.all() else chosen
            scaled = x[which] * np.sqrt(np.abs(weights[which]))[:, None]
            dsyrk(sign, scaled.T, beta=1.0, c=total, overwrite_c=1)


def weighted_product(x: Matrix, weights: np.ndarray, z: Matrix) -> Matrix:
    """Sum ``weights[n] x_n z_n'`` over rows, as (p, q); sparse if both are.

    Examples
    --------
    >>> weighted_product(np.ones((2, 1)), np.array([1.0, 2.0]), np.array([[1.0], [3.0]]))
    array([[7.]])
    """
    if isinstance(x, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            return (x * weights[:, None]).T @ z
    scaled = x.copy()
    scaled.data = scaled.data * np.repeat(weights, np.diff(x.indptr))
    return sparse.csr_array(scaled.T) @ z
