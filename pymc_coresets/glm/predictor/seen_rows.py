"""What rows see of the free variables: rows that the model holds, and rows that are read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from operator import add
from threading import Lock
from typing import Any

import numpy as np
from pytensor.graph import Variable
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.glm.predictor.affine import Matrix, affine_map, designs_of, joined
from pymc_coresets.glm.predictor.predictors import Line, Predictors
from pymc_coresets.glm.predictor.row_density import distinct_rows
from pymc_coresets.glm.predictor.row_graph import RowGraph, row_graph_of
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Curvature
from pymc_coresets.rows.values import Rows

_ONE_AT_A_TIME = Lock()
_BLOCK_ENTRIES = 2**22  # of float64
_GRAM_ENTRIES = 2**19  # the same, of a block and its scaled copy, which stay in the cache
_BLOCK_ROWS = (64, 2**17)  # at least and at most
_EQUAL = 64 * np.finfo(float).eps  # sums that differ by less are equal but for rounding
_N_COMPARED = 100  # of the first and of the last rows


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Distinct rows of a model, with how many rows each of them stands for.

    Parameters
    ----------
    found : Predictors
    which : ndarray of int
        Numbers of the rows in ``found``, ascending.
    base_weights : ndarray of float64
    where : callable, optional
        Says where one of them lies, for messages.
    """

    found: Predictors
    which: np.ndarray
    base_weights: np.ndarray
    where: Callable[[int], str] = "row {}".format

    def __len__(self) -> int:
        return len(self.base_weights)

    def take(self, some: slice | np.ndarray) -> "RowsInMemory":
        """Return some of the rows."""
        return replace(self, which=self.which[some], base_weights=self.base_weights[some])

    @property
    def place(self) -> slice | np.ndarray:
        """Where they lie: a slice where they are consecutive, since that copies nothing."""
        first, last = self.which[[0, -1]] if len(self) else (0, -1)
        return slice(first, last + 1) if last - first + 1 == len(self) else self.which

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The predictors of these rows."""
        return tuple(line.of(self.place) for line in self.found.lines)

    def gram(self, weights: np.ndarray) -> Curvature:
        """Sum ``X_n' weights[:, :, n] X_n`` over the rows, as (p, p), for weights (k, k, n).

        Sparse where the designs are, and p is large.
        """
        p, k = len(self.found.names), range(len(weights))
        is_sparse = self.found.is_sparse
        total: Curvature = sparse.csr_array((p, p)) if is_sparse else np.zeros((p, p))
        for i, j in combinations_with_replacement(k, 2):
            (one, x), (other, z) = self._columns(i), self._columns(j)
            own = weights[i, j]
            some = np.flatnonzero(own)
            if 2 * len(some) < len(own):  # of those that do not depend on both numbers, nothing
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
        """Return the coefficients that number i of each row sees, and the design matrix."""
        m = self.found.n_shared
        if i >= m:
            return self.lines[i - m].columns, self.lines[i - m].design
        ones = np.ones((len(self), 1))
        return np.array([i]), sparse.csr_array(ones) if self.found.is_sparse else ones

    def seen(self, away: np.ndarray) -> np.ndarray:
        """Return how far the numbers that rows see move by (S, p) coefficients, as (k, S, n)."""
        m, shape = self.found.n_shared, (len(away), len(self))
        shared = [np.broadcast_to(e[:, None], shape) for e in away[:, :m].T]
        return np.stack([*shared, *(line.at(away) for line in self.lines)])

    def slope(self, weights: np.ndarray) -> np.ndarray:
        """Sum ``X_n' weights[:, n]`` over the rows, as (p,), for weights (k, n)."""
        total = np.zeros(len(self.found.names))
        for i, own in enumerate(weights):
            columns, design = self._columns(i)
            total[columns] += np.asarray(design.T @ own).ravel()
        return total

    @property
    def response(self) -> list[np.ndarray]:
        """All that their log-density depends on besides what they see; the rows come first."""
        arrays = [np.moveaxis(r.take(self.place), r.axis, 0) for r in self.found.density.rows]
        return arrays or [np.zeros(len(self))]

    def density(self, eta: np.ndarray, *, compiled: bool = True) -> np.ndarray:
        """Evaluate the log-density at one predictor, (K, n) or (K, 1), as (K, n)."""
        return self.found.density.at_one(eta, self.place, len(self), compiled=compiled)

    def kinds_at(
        self, eta: np.ndarray
    ) -> tuple[np.ndarray, slice | np.ndarray, slice | np.ndarray]:
        """Evaluate the log-density at values of one predictor, once for rows that are equal.

        Nothing is compiled for up to 4 096 kinds of rows; if there are more, each row is one.

        Parameters
        ----------
        eta : ndarray of shape (n_eta,)

        Returns
        -------
        values : ndarray of shape (n_kinds, n_eta)
        numbers : ndarray of int64, of shape (n_rows,), or slice
            The kind of each row.
        first : ndarray of int64, of shape (n_kinds,), or slice
            A row of each kind.
        """
        kinds = distinct_rows(self.response)
        numbers, first = (slice(None), slice(None)) if kinds is None else kinds
        values = self.take(first).density(eta[:, None], compiled=kinds is None)
        return values.T, numbers, first


@dataclass(frozen=True, eq=False)
class SeenRows:
    """What any rows of some data see of the free variables.

    Parameters
    ----------
    found : Predictors
        What those rows see that the model holds.
    elsewhere : bool, default False
        Whether the rows are read, and their designs computed from their data by the same rules
        whenever they are needed; without compilation for each block.
    where : callable, optional
        Says where a row lies, for messages; other processes know its number only.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("b") * x, observed=[0, 1, 1])
    >>> observations = find_observations(model)
    >>> some = LogLikelihood(observations).in_memory.take(np.array([2]))
    >>> seen = SeenRows(find_linear_predictor(observations), elsewhere=True)
    >>> seen.of(some).lines[0].design
    array([[2.]])
    """

    found: Predictors
    elsewhere: bool = False
    where: Callable[[int], str] = "row {:,}".format

    def __getstate__(self) -> dict[str, Any]:
        return {"found": self.found, "elsewhere": self.elsewhere}  # nothing compiled, and no rows

    def block_rows(self, width: int) -> int:
        """Return how many rows a block has, for which so many numbers are computed for each row.

        They stay in the cache where rows are cut from memory, which copies nothing; where rows are
        read, their designs may take 32 MB.
        """
        least, most = _BLOCK_ROWS
        if self.elsewhere:
            width = max(self.found.entries_a_row, width)
        else:
            most = max(least, most // 4)
        return int(np.clip(2 ** max(0, (_BLOCK_ENTRIES // width).bit_length() - 1), least, most))

    def of(self, rows: Rows) -> RowsInMemory:
        """Return what some rows see.

        Raises
        ------
        InvalidDataError
            If a design matrix or an offset is not finite.
        """

        def where(number: int) -> str:
            return self.where(int(rows.positions[number]))

        if not self.elsewhere:
            among, which = self.found.observations.positions, rows.positions
            which = which if among is None else np.searchsorted(among, which)
            return RowsInMemory(self.found, which, rows.base_weights, where)
        arrays = _placed(rows, self.found.observations)
        here = replace(
            self.found,
            lines=tuple(self._lines(arrays, len(rows))),
            density=self.found.density.of_rows(arrays),
        )
        here.refuse_not_finite(where)
        return RowsInMemory(here, np.arange(len(rows)), rows.base_weights, where)

    def _lines(self, arrays: dict[Variable, np.ndarray], n_rows: int) -> Iterator[Line]:
        with _ONE_AT_A_TIME:  # what is compiled keeps its results until the next call
            graph, nodes, compute = self._graph
            computed = compute(n_rows, *arrays.values())
        values: dict[Variable, np.ndarray] = {
            self.found.observations.n_rows: np.asarray(n_rows),
            **arrays,
            **dict(zip(graph.computed, computed, strict=True)),
        }
        here = graph.of_rows(values)
        held = iter(self.found.lines)
        for predictor, own in zip(self.found.nodes, nodes, strict=True):
            for columns, offset in designs_of(predictor, here, n_rows):
                line, design = next(held), joined([columns[node] for node in own])
                yield Line(line.columns, _like(line.design, design), offset)

    @cached_property
    def _graph(self) -> tuple[RowGraph, list[list[Variable]], Callable[..., list[np.ndarray]]]:
        """The graph of the held rows, the coefficients of each predictor, and what it computes."""
        observations = self.found.observations
        graph = row_graph_of(observations)
        nodes = [list(affine_map(v, graph).blocks) for v in self.found.nodes]
        graph.computed = list(dict.fromkeys(graph.computed))
        placeholders = [row.placeholder for row in observations.rows]
        compute = numpy_function([observations.n_rows, *placeholders], graph.computed)
        return graph, nodes, compute


def _sum(parts: Iterable[Any]) -> Any:  # noqa: ANN401
    return reduce(add, parts)


@dataclass(frozen=True, eq=False)
class BlockSums[T]:
    """Adds up what a function makes of blocks of rows, see `Pass`.

    Parameters
    ----------
    size : int
        Number of rows of a block.
    work : callable
        From rows to what adds up.
    add : callable, optional
        Adds up what it makes of consecutive blocks.

    Examples
    --------
    >>> sums = BlockSums(2, lambda rows: rows.base_weights.sum())
    >>> float(sums.joined(map(sums.begin(), Rows(np.arange(3), np.ones(3)).blocks(2))))
    3.0
    """

    size: int
    work: Callable[[Rows], T]
    add: Callable[[Iterable[T]], T] = _sum

    def begin(self) -> Callable[[Rows], T]:
        """Return the function of a block."""
        return self.work

    def joined(self, parts: Iterable[T]) -> T:
        """Add up blocks, in their order."""
        return self.add(parts)


def _placed(rows: Rows, observations: Observations) -> dict[Variable, np.ndarray]:
    """Return the arrays of rows by their placeholders, with the rows along the axes of these."""
    return {
        row.placeholder: np.ascontiguousarray(np.moveaxis(array, 0, row.axis))
        for row, array in zip(observations.rows, rows.arrays, strict=True)
    }


def _like(held: Matrix, design: Matrix) -> Matrix:
    """Keep all blocks dense, or all sparse: as many entries are 0 in one as in another."""
    if isinstance(held, np.ndarray):
        return design if isinstance(design, np.ndarray) else design.toarray()
    return type(held)(design)


def seen_rows_of(loglik: LogLikelihood, find: Callable[[Observations], Predictors]) -> SeenRows:
    """Find what the rows see of the free variables.

    For rows elsewhere the template tells it, and some of them are compared with the model.

    Parameters
    ----------
    loglik : LogLikelihood
    find : callable
        `find_predictors` or `find_linear_predictor`.

    Raises
    ------
    UnsupportedModelError
        If it does not find what it looks for, or rows elsewhere differ.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    found = find(loglik.observations)
    if loglik.source is loglik.in_memory:
        return SeenRows(found)
    seen = SeenRows(found, elsewhere=True, where=loglik.source.place)
    n = loglik.n_rows
    some = np.union1d(np.arange(n)[:_N_COMPARED], np.arange(max(0, n - _N_COMPARED), n))
    rows = loglik.source.at(some)
    here = seen.of(rows)
    here.found.compare(_placed(rows, loglik.observations), len(rows), here.where)
    return seen


# -- sums of products ------------------------------------------------------------------------------


def weighted_gram(x: Matrix, weights: np.ndarray) -> Matrix:
    """Sum ``weights[n] x_n x_n'`` over rows, as (p, p); sparse where the rows are.

    Nothing as large as the rows is copied.

    Parameters
    ----------
    x : ndarray or csr_array, of shape (n, p)
    weights : ndarray of shape (n,)
        Of any signs.

    Notes
    -----
    The symmetric product of BLAS takes half the time of a general one, but knows no weights: the
    rows are scaled by the roots of these, for each sign separately.  For canonical links all are
    the same, and there is nothing to scale.

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
    with np.errstate(over="ignore", invalid="ignore"):  # whoever needs finite sums refuses them
        for start in range(0, n, step):
            block = slice(start, start + step)
            _add_gram(total, np.asarray(x[block], dtype=float), weights[block])
    return np.triu(total) + np.triu(total, 1).T


def _add_gram(total: np.ndarray, x: np.ndarray, weights: np.ndarray) -> None:
    """Add the upper triangle, in place."""
    low, high = weights.min(), weights.max()
    if high - low <= _EQUAL * max(-low, high):
        dsyrk(float(low + high) / 2, x.T, beta=1.0, c=total, overwrite_c=1)
        return
    for sign in (-1.0, 1.0):
        chosen = weights * sign > 0
        if chosen.any():
            which = slice(None) if chosen.all() else chosen
            scaled = x[which] * np.sqrt(np.abs(weights[which]))[:, None]
            dsyrk(sign, scaled.T, beta=1.0, c=total, overwrite_c=1)


def weighted_product(x: Matrix, weights: np.ndarray, z: Matrix) -> Matrix:
    """Sum ``weights[n] x_n z_n'`` over rows, as (p, q); sparse where both are.

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
