"""A quadratic log-likelihood: what a sum over all rows comes to without any of them.

Its matrix is dense or sparse; every backend compiles the graphs of its products.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Self

import numpy as np
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pytensor import OpFromGraph
from pytensor.graph import Variable, graph_inputs
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import Graphs
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.folding import simplified, written_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import of_points

type Curvature = np.ndarray | sparse.csr_array


def as_dense(matrix: Curvature) -> np.ndarray:
    """Return a matrix as an array."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


@dataclass(frozen=True, kw_only=True, eq=False)
class Quadratic:
    """``q(c) = slope . d + d' curvature d / 2`` with ``d = c(theta) - center``, in nats.

    Parameters
    ----------
    names : tuple of str
        A label for each entry of c.
    center, slope : ndarray of shape (p,)
    curvature : ndarray or csr_array, of shape (p, p)
        Symmetric; negative definite where the log-likelihood has a maximum.  Sparse where few pairs
        of coefficients meet in a row, as those of crossed factors of many levels.
    interface : TensorVariable, optional
        c, of shape (p,): a graph of ``Observations.parameters``; None in a file.

    Examples
    --------
    >>> q = Quadratic(
    ...     names=("a",), center=np.ones(1), slope=np.zeros(1), curvature=-np.eye(1)
    ... )
    >>> q.at(np.array([[1.0], [3.0]]))
    array([ 0., -2.])
    """

    names: tuple[str, ...]
    center: np.ndarray
    slope: np.ndarray
    curvature: Curvature
    interface: TensorVariable | None = None

    def at(self, coefficients: np.ndarray) -> np.ndarray:
        """Evaluate at coefficients (n_draws, p); the result is (n_draws,), in nats."""
        return self.values_and_slopes(coefficients)[0]

    def slopes_at(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the derivatives at coefficients (n_draws, p), in the same shape."""
        return self.values_and_slopes(coefficients)[1]

    def values_and_slopes(self, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate at coefficients (n_draws, p), with the derivatives: one product serves both."""
        with np.errstate(invalid="ignore", over="ignore"):  # searches shorten steps so far out
            away = coefficients - self.center
            curved = (self.curvature @ away.T).T
            values = away @ self.slope + np.einsum("sp,sp->s", curved, away) / 2
        return values, self.slope + curved

    @property
    def grams(self) -> tuple[Curvature]:
        """The negative curvature, as the only matrix of a sum."""
        return (-self.curvature,)

    def shares_at(self, coefficients: np.ndarray) -> np.ndarray:
        """Return its share of the curvature at coefficients (n_draws, p): always one."""
        return np.ones((len(coefficients), 1))

    def at_draws(self, observations: Observations, draws: DrawsLike) -> np.ndarray:
        """Evaluate at draws of the free variables; the result is (n_draws,), in nats."""
        return self.at(interface_at(self.graph, observations, draws))

    @property
    def graph(self) -> TensorVariable:
        """The interface."""
        assert self.interface is not None  # `Coreset` puts it back
        return self.interface

    @property
    def values(self) -> dict[str, np.ndarray]:
        """The values of the shared variables in `potential`, by name."""
        return {f"coreset_{name}": value for name, value in self._numbers.items()}

    @property
    def _numbers(self) -> dict[str, np.ndarray]:
        numbers = {"center": self.center, "slope": self.slope}
        if isinstance(self.curvature, np.ndarray):
            return numbers | {"curvature": self.curvature}
        entries = self.curvature.tocoo()
        numbers["curvature"] = entries.data
        for name, places in zip(("rows", "columns"), entries.coords, strict=True):
            numbers[f"curvature_{name}"] = places.astype(np.int32)
        return numbers

    def potential(self) -> TensorVariable:
        """Return the graph of q, whose numbers are shared variables."""
        center, slope, *matrix = (
            pytensor.shared(value, name=name) for name, value in self.values.items()
        )
        away = self.graph - center
        potential: TensorVariable = away @ slope + half_form(matrix, away)
        return potential

    @property
    def stored(self) -> xr.Dataset:
        """Its numbers, as a group of a file."""
        dims: dict[str, Any] = {"center": "coefficient", "slope": "coefficient"}
        if isinstance(self.curvature, np.ndarray):
            dims["curvature"] = ("coefficient", "other")
        data = {name: (dims.get(name, "entry"), v) for name, v in self._numbers.items()}
        return xr.Dataset(data, {"coefficient": list(self.names)})

    @classmethod
    def restored(cls, stored: xr.Dataset) -> Self:
        """Return that of a file, still without its coefficients."""
        values = {str(name): array.to_numpy() for name, array in stored.data_vars.items()}
        center, slope, curvature = values["center"], values["slope"], values["curvature"]
        finite = all(np.isfinite(numbers).all() for numbers in (center, slope, curvature))
        if curvature.ndim == 1:
            places = (values["curvature_rows"], values["curvature_columns"])
            curvature = sparse.csr_array((curvature, places), shape=(len(center), len(center)))
        if curvature.shape != (len(center), len(center)) or not finite:
            raise ValueError("its quadratic has another shape, or entries that are not finite")
        names = tuple(map(str, stored["coefficient"].to_numpy()))
        return cls(names=names, center=center, slope=slope, curvature=curvature)

    @classmethod
    def zero(cls, names: tuple[str, ...], interface: TensorVariable, *, is_sparse: bool) -> Self:
        """Return the quadratic that is zero everywhere."""
        zeros = np.zeros(len(names))
        shape = (len(names), len(names))
        curvature = sparse.csr_array(shape) if is_sparse else np.zeros(shape)
        return cls(names=names, center=zeros, slope=zeros, curvature=curvature, interface=interface)

    @property
    def uncorrelated(self) -> "Quadratic":
        """A quadratic with its maximum at the same center, and no correlations."""
        diagonal = sparse.diags_array(-np.abs(self.curvature.diagonal()))
        is_dense = isinstance(self.curvature, np.ndarray)
        curvature = diagonal.toarray() if is_dense else sparse.csr_array(diagonal)
        return replace(self, slope=np.zeros_like(self.slope), curvature=curvature)

    def about(self, center: np.ndarray) -> "Quadratic":
        """Return the same function, up to a constant, written about another center.

        Examples
        --------
        >>> q = Quadratic(
        ...     names=("a",), center=np.zeros(1), slope=np.zeros(1), curvature=-np.eye(1)
        ... )
        >>> q.about(np.array([2.0])).slope
        array([-2.])
        """
        return replace(
            self, center=center, slope=self.slope + self.curvature @ (center - self.center)
        )

    def plus(self, other: "Quadratic") -> "Quadratic":
        """Add that of other rows in the same coefficients, up to a constant; keep the center.

        Raises
        ------
        ValueError
            If the coefficients have other names, or another order.
        """
        if other.names != self.names:
            raise ValueError("the quadratics are of other coefficients, or in another order")
        return self.without(replace(other, slope=-other.slope, curvature=-other.curvature))

    def without(self, other: "Quadratic") -> "Quadratic":
        """Take off another in the same coefficients, up to a constant; keep the center."""
        moved = other.about(self.center)
        return self.minus(moved.slope, moved.curvature)

    def order_of(self, names: Sequence[str]) -> np.ndarray | None:
        """Say where each of these names stands among the coefficients; None if they are others.

        Examples
        --------
        >>> zeros = np.zeros(2)
        >>> q = Quadratic(names=("a", "b"), center=zeros, slope=zeros, curvature=-np.eye(2))
        >>> q.order_of(("b", "a")), q.order_of(("b", "c"))
        (array([1, 0]), None)
        """
        if tuple(names) == self.names:
            return np.arange(len(self.names))
        place = {name: k for k, name in enumerate(self.names)}
        if len(place) < len(self.names) or sorted(names) != sorted(place):
            return None
        return np.array([place[name] for name in names])

    def ordered(self, order: np.ndarray, interface: TensorVariable) -> "Quadratic":
        """Return the same with its coefficients in another order, that of `interface`."""
        return replace(
            self,
            names=tuple(self.names[k] for k in order),
            center=self.center[order],
            slope=self.slope[order],
            curvature=self.curvature[order][:, order],
            interface=interface,
        )

    def minus(self, slope: np.ndarray, curvature: Curvature) -> "Quadratic":
        """Take off what rows that are kept add to it about the same center."""
        return replace(self, slope=self.slope - slope, curvature=self.curvature - curvature)


def interface_at(
    interface: TensorVariable, observations: Observations, draws: DrawsLike
) -> np.ndarray:
    """Compute what the rows see of the free variables, (n_draws, p), at draws of these.

    Parameters
    ----------
    interface : TensorVariable of shape (p,)
        A graph of ``observations.parameters``.
    observations : Observations
    draws : Draws, DataTree, Dataset, or mapping of str to array_like
    """
    used = set(graph_inputs([interface]))
    parameters = {n: v for n, v in observations.parameters.items() if v in used}
    values = Draws.of(draws, {n: v.type.shape for n, v in parameters.items()}).values
    [found] = _at_draws(interface, *parameters.values())(
        *(np.asarray(values[n], v.type.dtype) for n, v in parameters.items())
    )
    return found


@lru_cache(maxsize=8)
def _at_draws(
    interface: TensorVariable, *parameters: TensorVariable
) -> Callable[..., list[np.ndarray]]:
    return of_points(parameters, ops.checked_tensors(simplified([interface])), written_function)


class _SymmetricProduct(OpFromGraph):
    """A graph of gathers and a scatter, and in Numba's mode one loop, six times as fast."""


@ops.register_funcify_and_cache_key(_SymmetricProduct)  # type: ignore[untyped-decorator]
def _loop(*_: object, **__: object) -> tuple[Any, str]:
    @ops.numba_njit
    def product(
        entries: np.ndarray, rows: np.ndarray, columns: np.ndarray, x: np.ndarray
    ) -> np.ndarray:
        total = np.zeros(len(x))
        for k in range(len(entries)):
            total[rows[k]] += entries[k] * x[columns[k]]
        return total

    return product, f"{__name__} symmetric product 2"  # PyTensor's cache imports it


@cache
def _operation() -> _SymmetricProduct:
    entries, x = pt.vector("entries", dtype="float64"), pt.vector("x", dtype="float64")
    rows, columns = pt.vector("rows", dtype="int32"), pt.vector("columns", dtype="int32")
    product = pt.zeros_like(x)[rows].inc(entries * x[columns])

    def pullback(inputs: Graphs, _: Graphs, cotangents: Graphs) -> list[Variable]:
        # Without a derivative for the matrix: it is data.
        none: Any = [ops.disconnected_type()] * 3
        return [*none, operation(*inputs[:3], *cotangents)]

    operation = _SymmetricProduct(
        [entries, rows, columns, x],
        [product],
        pullback=pullback,
        connection_pattern=[[False], [False], [False], [True]],
    )
    return operation


def symmetric_product(
    entries: Variable, rows: Variable, columns: Variable, x: TensorVariable
) -> TensorVariable:
    """Return the graph of ``A @ x``, for a symmetric matrix A in coordinate format.

    PyTensor's own sparse product has no gradient in JAX's mode, and is slow in Numba's.

    Parameters
    ----------
    entries : Variable of float64, of shape (n_entries,)
    rows, columns : Variable of int32, of shape (n_entries,)
        Both triangles are listed.
    x : TensorVariable of float64, of shape (p,)

    Examples
    --------
    >>> import pytensor
    >>> numbers = pt.vector("v"), pt.ivector("i"), pt.ivector("j"), pt.vector("x")
    >>> product = pytensor.function(list(numbers), symmetric_product(*numbers))
    >>> product([2.0, 5.0, 5.0], [0, 0, 1], [0, 1, 0], [1.0, 1.0])
    array([7., 5.])
    """
    return ops.checked_tensor(_operation()(entries, rows, columns, x))


@cache
def _half_form(*, is_sparse: bool) -> OpFromGraph:
    matrix: list[TensorVariable] = [pt.matrix("matrix", dtype="float64")]
    if is_sparse:
        matrix = [pt.vector(dtype="float64"), pt.vector(dtype="int32"), pt.vector(dtype="int32")]
    x = pt.vector("x", dtype="float64")

    def pullback(inputs: Graphs, _: Graphs, cotangents: Graphs) -> list[Variable]:
        none: Any = [ops.disconnected_type()] * len(matrix)
        return [*none, cotangents[0] * _product(*ops.checked_tensors(inputs))]

    return OpFromGraph(
        [*matrix, x],
        [x @ _product(*matrix, x) / 2],
        inline=True,
        pullback=pullback,
        connection_pattern=[*([False] for _ in matrix), [True]],
    )


def _product(*matrix_and_x: TensorVariable) -> TensorVariable:
    if len(matrix_and_x) > 2:
        return symmetric_product(*matrix_and_x)
    matrix, x = matrix_and_x
    return ops.checked_tensor(matrix @ x)


def half_form(matrix: Sequence[Variable], x: TensorVariable) -> TensorVariable:
    """Return the graph of ``x' A x / 2`` for a symmetric matrix A.

    Its gradient is the product ``A x``, which the value has computed: one pass over A, where the
    gradient of the written formula, which knows of no symmetry, makes three.

    Parameters
    ----------
    matrix : sequence of Variable
        A itself, or what `symmetric_product` takes.
    x : TensorVariable of float64, of shape (p,)

    Examples
    --------
    >>> from pymc_coresets.reading.folding import numpy_function
    >>> A, x = pt.matrix("A"), pt.vector("x")
    >>> form = half_form([A], x)
    >>> both = numpy_function([A, x], [form, pt.grad(form, x)])
    >>> both(np.array([[2.0, 1.0], [1.0, 4.0]]), np.ones(2))
    [array(4.), array([3., 5.])]
    """
    return ops.checked_tensor(_half_form(is_sparse=len(matrix) > 1)(*matrix, x))
