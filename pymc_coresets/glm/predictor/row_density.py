"""The log-density of a row as a function of its predictors, and groups of equal rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph import Variable, clone_replace, graph_inputs, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import checked_tensor
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.row_graph import is_single, n_predictors
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.numerics import ROUNDING
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.rows.memory import numbered_rows

type Array = NDArray[np.float64]

#: Up to this many numbers, each row is assumed to depend on all of them.
MOST_TOGETHER = 4
#: Largest number of numbers that a row may depend on.
MOST_OWN = 5

_ONE_AT_A_TIME = Lock()  # for functions that reuse their output buffers


@dataclass(frozen=True, eq=False, kw_only=True)
class RowDensity:
    """log p(y_n | shared, eta_1n, ..., eta_rn), in nats, for any rows.

    Attributes
    ----------
    graph : TensorVariable
        Of shape (n_rows,), for the rows in the placeholders.
    shared : tuple of TensorVariable
        Inputs, on the unconstrained scale, in the shapes of the variables.
    etas : tuple of TensorVariable
        Inputs: each predictor, of shape (n_rows,), or a number that all rows share.
    n_rows : TensorVariable
        Input: the number of rows.
    rows : tuple of RowArray
        The other arrays that `graph` depends on.

    Notes
    -----
    A pickle holds the graph, which is compiled once in each process, see `Kernel`.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(2.0))
    >>> observations = find_observations(model)
    >>> density = RowDensity.above([observations.parameters["mu"]], {}, observations)
    >>> density(np.zeros((1, 1, 1)), slice(0, 2), 2, compiled=False).round(3)
    array([[-0.919, -1.419]])
    """

    graph: TensorVariable
    shared: tuple[TensorVariable, ...]
    etas: tuple[TensorVariable, ...]
    n_rows: TensorVariable
    rows: tuple[RowArray, ...]
    _made: dict[Any, Any] = field(default_factory=dict)  # for these rows and for others

    @classmethod
    def above(
        cls,
        predictors: Sequence[Variable],
        shared: Mapping[Variable, tuple[TensorVariable, Variable]],
        observations: Observations,
        links: Mapping[Variable, Callable[[TensorVariable], TensorVariable]] | None = None,
    ) -> "RowDensity":
        """Cut the graph of the log-likelihood.

        Parameters
        ----------
        predictors : sequence of Variable
            With one number per row, or several in a matrix; or a single one for all rows.
        shared : mapping of Variable to tuple of TensorVariable and Variable
            For each free variable that enters all rows: an input, and the graph that replaces it.
        observations : Observations
        links : mapping of Variable to callable, optional
            For predictors that are replaced by a function of the input.
        """
        cut: dict[Variable, Variable] = {v: place for v, (_, place) in shared.items()}
        etas: list[TensorVariable] = []
        for node in predictors:
            of = (links or {}).get(node, _itself)
            if is_single(node):
                etas.append(checked_tensor(node.type()))
                cut[node] = of(etas[-1])
                continue
            own = [pt.vector("eta", dtype=node.type.dtype) for _ in range(n_predictors(node))]
            cut[node] = _in_place_of(node, [of(eta) for eta in own])
            etas += own
        [graph] = clone_replace([observations.loglik], cut, rebuild_strict=False)
        values = tuple(value for value, _ in shared.values())
        inputs = set(graph_inputs([graph]))
        if inputs & set(observations.parameters.values()):
            raise UnsupportedModelError(
                "Rows depend on free variables outside their predictors.", topic="regressions"
            )
        return cls(
            graph=pt.broadcast_to(graph, (observations.n_rows,)),
            shared=values,
            etas=tuple(etas),
            n_rows=observations.n_rows,
            rows=tuple(r for r in observations.rows if r.placeholder in inputs),
        )

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_made": {"kernel": self._kernel}}

    def of_rows(self, arrays: Mapping[Variable, np.ndarray]) -> "RowDensity":
        """Return the density of other rows, from arrays by their placeholders."""
        rows = tuple(replace(r, values=arrays[r.placeholder]) for r in self.rows)
        return replace(self, rows=rows)

    def __call__(
        self,
        seen: np.ndarray,
        rows: np.ndarray | slice,
        n_rows: int,
        *,
        compiled: bool = True,
    ) -> np.ndarray:
        """Evaluate at rows' numbers (k, K, n_rows) or (k, K, 1), as (K, n_rows)."""
        given, start, n_points = list[np.ndarray](), 0, seen.shape[1]
        if not n_rows:  # which have no values of what all rows share
            return np.empty((n_points, 0))
        for v in (*self.shared, *self.etas):
            size = 1 if None in v.type.shape else int(np.prod(v.type.shape, dtype=int))
            if None in v.type.shape:
                own = np.broadcast_to(seen[start], (n_points, n_rows))
            else:  # of all rows
                own = seen[start : start + size, :, 0].T.reshape(-1, *v.type.shape)
            given.append(np.ascontiguousarray(own, dtype=v.type.dtype))
            start += size
        given.append(np.asarray(n_rows))
        arrays = [np.ascontiguousarray(r.take(rows)) for r in self.rows]
        with np.errstate(all="ignore"):  # outside a link's domain
            if compiled:
                [found] = self._kernel.program(*given, *arrays)
            else:
                with _ONE_AT_A_TIME:
                    [found] = self.made("by NumPy", self._by_numpy)(*given, *arrays)
        return np.broadcast_to(found, (n_points, n_rows))

    def made[T](self, name: object, make: Callable[[], T]) -> T:
        """Return an object made from the density, cached for these rows and for others."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    @property
    def _kernel(self) -> Kernel:
        return self.made("kernel", lambda: Kernel([], *self._at_draws, {}))

    def _by_numpy(self) -> Callable[..., Sequence[np.ndarray]]:
        return numpy_function(*self._at_draws)

    @property
    def _at_draws(self) -> tuple[list[Variable], list[Variable]]:
        """The inputs and the graph for any number of draws."""
        several: dict[Variable, Variable] = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape))
            for v in (*self.shared, *self.etas)
        }
        graph = vectorize_graph(self.graph, several)
        return [*several.values(), self.n_rows, *(r.placeholder for r in self.rows)], [graph]


def _itself(eta: TensorVariable) -> TensorVariable:
    return eta


def _in_place_of(node: Variable, etas: Sequence[TensorVariable]) -> Variable:
    """Give vectors of all rows the shape of the variable they replace."""
    shape = [n for n in node.type.shape if n != 1]
    axes = iter(range(len(shape)))
    together = etas[0] if len(shape) == 1 else pt.stack(etas, axis=1 - shape.index(None))
    order = ["x" if n == 1 else next(axes) for n in node.type.shape]
    in_place: Variable = together.dimshuffle(order)
    return in_place


# -- groups of equal rows --------------------------------------------------------------------------


def distinct_rows(
    arrays: Sequence[np.ndarray], most: int = 4_096, *, beginning: int = 1_000
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Number the distinct rows of some columns, and return the position of the first of each.

    Returns None if there are more than `most`, or the first rows suggest it.

    Parameters
    ----------
    arrays : sequence of ndarray, each of shape (n_rows, ...)
        At least one.
    most : int, default 4096
    beginning : int, default 1000
        Number of first rows; if all of them differ, equal rows are taken to be rare.

    Examples
    --------
    >>> distinct_rows([np.array([5, 3, 5]), np.array([0.5, 0.0, 0.5])])
    (array([0, 1, 0]), array([0, 1]))
    """
    n_rows, few = len(arrays[0]), min(len(arrays[0]), beginning)
    if n_rows > most and len(numbered_rows([a[:few] for a in arrays], few)[1]) == few:
        return None  # rows of which hardly any two are equal
    numbers, first = numbered_rows(arrays, n_rows)
    return None if len(first) > most else (numbers, first)


def effects(density: Callable[[Array], Array], middle: Array, widths: Array) -> Array:
    """Return the change of each row's log-density with each of its numbers.

    Changes to values that are not finite do not count: they may come from a check of all numbers,
    such as that cut points ascend.

    Parameters
    ----------
    density : callable
        From numbers (k, n_points, n_rows) to log-densities (n_points, n_rows).
    middle : ndarray of shape (k, n_rows)
    widths : ndarray of shape (k, n_rows)
        Step sizes; at least a thousandth of a number's size.

    Returns
    -------
    ndarray of shape (k, n_rows)
        In nats; 0 where a row does not depend on a number.

    Examples
    --------
    >>> middle = np.zeros((3, 1))
    >>> effects(lambda seen: seen[0] - 2 * seen[2], middle, np.ones((3, 1))).ravel()
    array([1., 0., 2.])
    """
    found, steps = np.zeros(middle.shape), np.array([[1.0], [-1.0], [0.03], [-0.03]])
    widths = np.maximum(widths, 1e-3 * (1 + np.abs(middle)))
    base = density(middle[:, None])
    least = ROUNDING * (1 + np.abs(base))
    with np.errstate(invalid="ignore"):
        for j, width in enumerate(widths):
            seen = np.repeat(middle[:, None], len(steps), axis=1)
            seen[j] += steps * width
            change = np.abs(density(seen) - base)
            counts = np.isfinite(change) & (change > least)
            found[j] = np.where(counts, change, 0.0).max(axis=0)
    return found


def kinds_by_entries(size: Array) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Group rows by the numbers that they depend on (the five most important, if more).

    Parameters
    ----------
    size : ndarray of shape (k, n_rows)
        From `effects`.

    Yields
    ------
    own : ndarray of int64
        Numbers that some rows depend on, ascending.
    which : ndarray of int64
        Those rows, ascending.

    Examples
    --------
    >>> for own, which in kinds_by_entries(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0]])):
    ...     own, which
    (array([1]), array([2]))
    (array([0]), array([0, 1]))
    """
    order = np.argsort(-size, axis=0, kind="stable")[:MOST_OWN]
    is_own = np.zeros(size.shape, dtype=bool)
    np.put_along_axis(is_own, order, values=True, axis=0)
    is_own &= size > 0
    kinds, numbers = np.unique(is_own.T, axis=0, return_inverse=True)
    for kind, own in enumerate(kinds):
        yield np.flatnonzero(own), np.flatnonzero(numbers.ravel() == kind)
