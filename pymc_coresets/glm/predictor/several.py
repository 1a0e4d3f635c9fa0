"""The log-density of a row as a function of a few predictors and of scalars that rows share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import sparse

from pymc_coresets.compat.pytensor_api import (
    Constant,
    TensorVariable,
    Variable,
    clone_replace,
    graph_inputs,
    vectorize_graph,
)
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.golden import spread_rows
from pymc_coresets.glm.predictor.affine import Matrix, joined
from pymc_coresets.glm.predictor.cut import smallest_cut
from pymc_coresets.glm.predictor.labels import coefficient_names
from pymc_coresets.glm.predictor.linear import compare, design_of, points_to_compare, row_graph_of
from pymc_coresets.glm.predictor.model_parts import refuse_not_finite
from pymc_coresets.glm.predictor.node import observed_rows
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.potentials.kernel import Kernel
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.row_arrays import RowArray

__all__ = ["Line", "Predictors", "RowDensity", "find_predictors"]

_TRIED = 60  # rows on which predictors are tried, not all of them
_COMPARED = 200
_DENSE_UP_TO = 1_000  # coefficients


@dataclass(frozen=True, eq=False)
class Line:
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

    def of(self, rows: slice | np.ndarray) -> "Line":
        """Return that of some rows."""
        return Line(self.columns, self.design[rows], self.offset[rows])

    def among(self, p: int) -> sparse.csr_array:
        """Return the design, which is sparse, with a column for each of all p coefficients."""
        own = sparse.csr_array(self.design)
        parts = (own.data, self.columns[own.indices], own.indptr)
        return sparse.csr_array(parts, shape=(own.shape[0], p))

    def at(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute the predictor without its offset at (n_draws, p), as (n_draws, n_rows)."""
        return np.asarray((self.design @ coefficients[:, self.columns].T).T)


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
        Inputs: each predictor, of shape (n_rows,).
    n_rows : TensorVariable
        Input: the number of rows.
    rows : tuple of RowArray
        The arrays that `graph` depends on besides.

    Notes
    -----
    A pickle holds the graph, which is compiled once in each process, see `Kernel`.
    """

    graph: TensorVariable
    shared: tuple[TensorVariable, ...]
    etas: tuple[TensorVariable, ...]
    n_rows: TensorVariable
    rows: tuple[RowArray, ...]
    _kernels: list[Kernel] = field(default_factory=list)  # one, of these rows and of others

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_kernels": [self._kernel]}

    def of_rows(self, arrays: Mapping[Variable, np.ndarray]) -> "RowDensity":
        """Return the density of other rows, from arrays by their placeholders."""
        rows = tuple(replace(r, values=arrays[r.placeholder]) for r in self.rows)
        return replace(self, rows=rows)

    def __call__(
        self,
        shared: np.ndarray,
        etas: Sequence[np.ndarray],
        rows: np.ndarray | slice,
        n_rows: int,
        *,
        compiled: bool = True,
    ) -> np.ndarray:
        """Evaluate at shared numbers (K, m) and predictors (K, n_rows); as (K, n_rows)."""
        values, start = list[np.ndarray](), 0
        for v in self.shared:
            size = int(np.prod(v.type.shape, dtype=int))
            part = shared[:, start : start + size].reshape(-1, *v.type.shape)
            values.append(np.ascontiguousarray(part, dtype=v.type.dtype))
            start += size
        grids = [
            np.ascontiguousarray(eta, dtype=v.type.dtype)
            for v, eta in zip(self.etas, etas, strict=True)
        ]
        arrays = [np.ascontiguousarray(r.take(rows)) for r in self.rows]
        function = self._kernel.program if compiled else self._plain
        with np.errstate(all="ignore"):  # outside a link's domain
            [found] = function(*values, *grids, np.asarray(n_rows), *arrays)
        return np.broadcast_to(found, (len(shared), n_rows))

    @property
    def _kernel(self) -> Kernel:
        if not self._kernels:
            inputs, graph = self._at_draws
            self._kernels.append(Kernel([], inputs, [graph], {}))
        return self._kernels[0]

    @property
    def _plain(self) -> Callable[..., Sequence[np.ndarray]]:
        inputs, graph = self._at_draws
        function: Callable[..., Sequence[np.ndarray]] = pytensor.function(
            inputs, [graph], mode=PLAIN_MODE, on_unused_input="ignore"
        )
        return function

    @property
    def _at_draws(self) -> tuple[list[Variable], Variable]:
        """The inputs and the graph for any number of draws."""
        several: dict[Variable, Variable] = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape))
            for v in (*self.shared, *self.etas)
        }
        graph = vectorize_graph(self.graph, several)
        return [*several.values(), self.n_rows, *(r.placeholder for r in self.rows)], graph


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictors:
    """A model whose rows see the free variables through few numbers, affine in coefficients c.

    Attributes
    ----------
    observations : Observations
    names : tuple of str
        A label for each coefficient; first those that all rows see as they are.
    coefficients : TensorVariable
        c, of shape (p,): a graph of ``observations.parameters``.  Shared scalars are on their
        unconstrained scale, such as the logarithm of a standard deviation.
    n_shared : int
        Number m of coefficients that all rows see as they are.
    lines : tuple of Line
        The predictors.
    nodes : tuple of Variable
        The same, in the graph of ``observations.loglik``.
    density : RowDensity
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    n_shared: int
    lines: tuple[Line, ...]
    nodes: tuple[Variable, ...]
    density: RowDensity

    @property
    def entries_a_row(self) -> int:
        """How many entries of the designs belong to a row: those that are not zero, of sparse ones.

        One at least.
        """
        designs = [line.design for line in self.lines]
        total = sum(d.size if isinstance(d, np.ndarray) else d.nnz for d in designs)
        return max(total // self.observations.n_obs, 1)

    @property
    def is_sparse(self) -> bool:
        """Whether few pairs of coefficients meet in rows, of so many that this matters."""
        large = len(self.names) > _DENSE_UP_TO
        return large and all(sparse.issparse(line.design) for line in self.lines)

    def refuse_not_finite(self, place: Callable[[int], str]) -> None:
        """Raise `InvalidDataError` if a predictor is not finite in some row, with its place."""
        for line in self.lines:
            names = tuple(self.names[k] for k in line.columns)
            refuse_not_finite(line.design, line.offset, names, place)


def find_predictors(observations: Observations) -> Predictors:
    """Find the fewest numbers through which a row sees the free variables: four at most.

    For generalised linear models with or without a free scale, shape or dispersion; several
    predictors, as where mean and scale both depend on covariates; products of effects, as in item
    response; hierarchies and crossed factors, however written.  Time and memory as
    `find_linear_predictor`.

    Raises
    ------
    UnsupportedModelError
        If there are more numbers, or one that is not affine.
    InvalidDataError
        If a design matrix or an offset is not finite.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> x = np.array([0.0, 1.0, 2.0])
    >>> with pm.Model() as model:
    ...     b, noise = pm.Normal("b", shape=2), pm.HalfNormal("noise")
    ...     y = pm.Normal("y", b[0] + b[1] * x, noise, observed=np.array([0, 1, 5]))
    >>> found = find_predictors(find_observations(model))
    >>> found.names
    ('noise_log__', 'b[0]', 'b[1]')
    >>> found.lines[0].design
    array([[1., 0.],
           [1., 1.],
           [1., 2.]])
    """
    graph = row_graph_of(observations)
    some = spread_rows(observations.n_obs, _TRIED)
    few: dict[Variable, np.ndarray] = {observations.n_rows: np.asarray(len(some))}
    few |= {r.placeholder: r.take(some) for r in observations.rows if r.placeholder in graph.rows}
    observed = observed_rows(observations)
    cut = smallest_cut(observations.loglik, graph.of_rows(few), observed)
    coordinates = [_Coordinate.of(v, observations) for v in cut.shared]
    lines, nodes = _lines(cut.predictors, graph, observations.n_obs)
    m = sum(c.size for c in coordinates)
    shapes: dict[Variable, tuple[int, ...]] = {v: graph.shape(v) for v in nodes}
    names = coefficient_names(shapes, observations.parameters, observations.model)
    parts = [pt.cast(v.ravel(), "float64") for v in [*(c.forward for c in coordinates), *nodes]]
    found = Predictors(
        observations=observations,
        names=(*(name for c in coordinates for name in c.names), *names),
        coefficients=pt.concatenate(parts) if len(parts) > 1 else parts[0],
        n_shared=m,
        lines=tuple(Line(line.columns + m, line.design, line.offset) for line in lines),
        nodes=cut.predictors,
        density=_density(cut.predictors, coordinates, observations),
    )
    found.refuse_not_finite(observations.place)
    rows = spread_rows(observations.n_obs, _COMPARED)
    at, expected = points_to_compare(observations, found.coefficients, rows)
    etas = [line.of(rows).at(at) + line.offset[rows] for line in found.lines]
    compare(found.density(at[:, :m], etas, rows, len(rows), compiled=False), expected, rows)
    return found


@dataclass(frozen=True, eq=False)
class _Coordinate:
    """A free variable that all rows see, on its unconstrained scale where that needs nothing."""

    variable: Variable
    forward: TensorVariable
    value: TensorVariable
    backward: Variable
    name: str

    @classmethod
    def of(cls, variable: Variable, observations: Observations) -> "_Coordinate":
        [name] = [n for n, v in observations.parameters.items() if v is variable]
        model: pm.Model = observations.model
        rv = model[name]
        transform, stands = model.rvs_to_transforms[rv], model.rvs_to_values[rv]
        if transform is not None:
            inputs = rv.owner.inputs
            forward = cast(TensorVariable, transform.forward(variable, *inputs))
            value = pt.tensor(dtype=forward.type.dtype, shape=stands.type.shape)
            backward = transform.backward(value, *inputs)
            others = {v for v in graph_inputs([forward, backward]) if not isinstance(v, Constant)}
            if others <= {variable, value} and None not in value.type.shape:
                return cls(variable, forward, value, backward, str(stands.name))
        value = pt.tensor(dtype=variable.type.dtype, shape=variable.type.shape)
        return cls(variable, cast(TensorVariable, variable), value, value, name)

    @property
    def size(self) -> int:
        return int(np.prod(self.value.type.shape, dtype=int))

    @property
    def names(self) -> tuple[str, ...]:
        if not self.value.type.ndim:
            return (self.name,)
        return tuple(f"{self.name}[{k}]" for k in range(self.size))


def _lines(
    predictors: Sequence[Variable], graph: RowGraph, n_obs: int
) -> tuple[list[Line], list[TensorVariable]]:
    """Derive every predictor, and the coefficient nodes that they are affine in."""
    derived = [design_of(v, graph, n_obs) for v in predictors]
    nodes = dict.fromkeys(v for blocks, _ in derived for v in blocks)
    ends = np.cumsum([int(np.prod(graph.shape(v), dtype=int)) for v in nodes])
    place = {v: np.arange(s, e) for v, s, e in zip(nodes, [0, *ends[:-1]], ends, strict=True)}
    lines = [
        Line(np.concatenate([place[v] for v in blocks]), joined(list(blocks.values())), offset)
        for blocks, offset in derived
    ]
    return lines, [cast(TensorVariable, v) for v in nodes]


def _density(
    predictors: Sequence[Variable], coordinates: Sequence[_Coordinate], observations: Observations
) -> RowDensity:
    etas = tuple(pt.vector("eta", dtype=v.type.dtype) for v in predictors)
    cut: dict[Variable, Variable] = {c.variable: c.backward for c in coordinates}
    for node, eta in zip(predictors, etas, strict=True):
        cut[node] = eta.dimshuffle(["x" if n == 1 else 0 for n in node.type.shape])
    [graph] = clone_replace([observations.loglik], cut, rebuild_strict=False)
    inputs = set(graph_inputs([graph]))
    if inputs & set(observations.parameters.values()):
        raise UnsupportedModelError("The rows see free variables besides their predictors.")
    return RowDensity(
        graph=pt.broadcast_to(graph, (observations.n_rows,)),
        shared=tuple(c.value for c in coordinates),
        etas=etas,
        n_rows=observations.n_rows,
        rows=tuple(r for r in observations.rows if r.placeholder in inputs),
    )
