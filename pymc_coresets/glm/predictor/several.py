"""The few numbers through which each row of a model sees the free variables."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.golden import spread_rows
from pymc_coresets.glm.predictor.affine import Matrix, joined
from pymc_coresets.glm.predictor.coordinates import Coordinate, Link, coefficient_names, links_below
from pymc_coresets.glm.predictor.cut import Costs, Cut, smallest_cut
from pymc_coresets.glm.predictor.designs import (
    compare,
    designs_of,
    few_rows_of,
    observed_rows,
    points_to_compare,
    refuse_not_finite,
    row_graph_of,
)
from pymc_coresets.glm.predictor.kinds_of_rows import MOST_OWN, MOST_TOGETHER, effects
from pymc_coresets.glm.predictor.row_density import RowDensity
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import interface_at

_log = logging.getLogger(__name__)

_COMPARED = 200
_DENSE_UP_TO = 1_000  # coefficients

#: Where rows see more than four numbers, and how many each may depend on: first what all rows see
#: as it is, whose designs take no memory, then predictors that are a matrix.
_OF_MANY = (
    (Costs(most=16), MOST_TOGETHER),
    (Costs(several=1_003, most=16), MOST_OWN),
)


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

    def at(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute the predictor without its offset at (n_draws, p), as (n_draws, n_rows)."""
        return np.asarray((self.design @ coefficients[:, self.columns].T).T)


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
    most_own : int
        On how many of the numbers that rows see each may depend, where they see more than four.
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    n_shared: int
    lines: tuple[Line, ...]
    nodes: tuple[Variable, ...]
    density: RowDensity
    most_own: int = MOST_OWN

    @property
    def n_seen(self) -> int:
        """How many numbers rows see, all of them together."""
        return self.n_shared + len(self.lines)

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

    def verify(self) -> None:
        """Compare the density with the model's own, for some rows at three points.

        Raises
        ------
        UnsupportedModelError
            If they differ.
        """
        which = spread_rows(self.observations.n_obs, _COMPARED)
        arrays: dict[Variable, np.ndarray] = {
            row.placeholder: row.take(which) for row in self.observations.rows
        }
        some = replace(
            self,
            lines=tuple(line.of(which) for line in self.lines),
            density=self.density.of_rows(arrays),
        )
        some.compare(arrays, len(which), lambda n: self.observations.place(int(which[n])))

    def compare(
        self, arrays: Mapping[Variable, np.ndarray], n_rows: int, place: Callable[[int], str]
    ) -> None:
        """Compare the density of all these rows with that of the model, see `verify`.

        Parameters
        ----------
        arrays : mapping of Variable to ndarray
            The rows, by the placeholders in the graph of the model.
        n_rows : int
        place : callable
            Says where one of the rows lies.
        """
        at, expected = points_to_compare(self.observations, self.coefficients, arrays, n_rows)
        shared, etas = at[:, : self.n_shared], [line.at(at) + line.offset for line in self.lines]
        values = self.density(shared, etas, slice(None), n_rows, compiled=False)
        compare(values, expected, place)
        if self.n_seen > MOST_TOGETHER:
            self._refuse_many_entries(n_rows, shared, etas)

    def _refuse_many_entries(self, n: int, shared: np.ndarray, etas: Sequence[np.ndarray]) -> None:
        m = self.n_shared

        def density(seen: np.ndarray) -> np.ndarray:
            return self.density(seen[:m, :, 0].T, [*seen[m:]], slice(None), n, compiled=False)

        own = np.zeros((self.n_seen, n), dtype=bool)
        for s, point in enumerate(shared):  # at the first of which products may be zero
            of_all = np.broadcast_to(point[:, None], (m, n))
            middle = np.concatenate([of_all, *(eta[s][None] for eta in etas)])
            own |= effects(density, middle, np.zeros_like(middle)) > 0
        most = int(own.sum(axis=0).max())
        if most > self.most_own:
            raise UnsupportedModelError(f"A row depends on {most} numbers of the free variables.")


def find_predictors(observations: Observations) -> Predictors:
    """Find the fewest numbers through which a row sees the free variables: four at most.

    For generalised linear models with or without a free scale, shape or dispersion; several
    predictors, as where mean and scale both depend on covariates; products of effects, as in item
    response; hierarchies and crossed factors, however written.  Rows may see more numbers where
    each depends on few of them: five at most, such as the predictor and the two cut points next to
    an ordered answer, or the utilities of five alternatives.  Time and memory as
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
    few, observed = few_rows_of(graph, observations), observed_rows(observations)
    try:
        cut = smallest_cut(observations.loglik, few, observed)
    except UnsupportedModelError:
        for costs, most_own in _OF_MANY:
            try:
                cut = smallest_cut(observations.loglik, few, observed, costs)
                return _of_cut(cut, graph, observations, most_own)
            except UnsupportedModelError as error:
                _log.info("%s", error.message)
        raise
    return _of_cut(cut, graph, observations)


def _of_cut(
    cut: Cut, graph: RowGraph, observations: Observations, most_own: int | None = None
) -> Predictors:
    coordinates = [Coordinate.of(v, observations, apart=most_own is not None) for v in cut.shared]
    shared = {c.variable: (c.value, c.backward) for c in coordinates}
    found_links = {v: links_below(v, graph, observations) for v in cut.predictors}
    links = {v: link for v, link in found_links.items() if link is not None}
    functions = {v: link.of for v, link in links.items()}
    density = RowDensity.above(cut.predictors, shared, observations, functions)
    found = predictors_of(cut.predictors, graph, observations, density, coordinates, links)
    found = found if most_own is None else replace(found, most_own=most_own)
    found.verify()
    return found


def predictors_of(
    nodes: Sequence[Variable],
    graph: RowGraph,
    observations: Observations,
    density: RowDensity,
    coordinates: "Sequence[Coordinate]" = (),
    links: Mapping[Variable, Link] | None = None,
) -> Predictors:
    """Derive predictors, and the coefficients that they are affine in, below their links.

    Raises
    ------
    UnsupportedModelError
        If one is not affine.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    derived = [
        ({_below(b, (links or {}).get(v)): design for b, design in blocks.items()}, offset)
        for v in nodes
        for blocks, offset in designs_of(v, graph, observations.n_obs)
    ]
    below = list(dict.fromkeys(v for blocks, _ in derived for v in blocks))
    m = sum(c.size for c in coordinates)
    shapes: dict[Variable, tuple[int, ...]] = {v: graph.shape(v) for v in below}
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
    ends = m + np.cumsum(sizes, dtype=int)
    place = {v: np.arange(e - n, e) for v, n, e in zip(below, sizes, ends, strict=True)}
    names = coefficient_names(shapes, observations.parameters, observations.model)
    graphs = [*(c.forward for c in coordinates), *(cast(TensorVariable, v) for v in below)]
    parts = [pt.cast(v.ravel(), "float64") for v in graphs]
    found = Predictors(
        observations=observations,
        names=(*(name for c in coordinates for name in c.names), *names),
        coefficients=pt.concatenate(parts) if len(parts) > 1 else parts[0],
        n_shared=m,
        lines=tuple(
            Line(np.concatenate([place[v] for v in blocks]), joined(list(blocks.values())), offset)
            for blocks, offset in derived
        ),
        nodes=tuple(nodes),
        density=density,
    )
    found.refuse_not_finite(observations.place)
    return found


def _below(node: Variable, link: Link | None) -> Variable:
    return node if link is None else link.below


def coefficient_draws(found: Predictors, draws: DrawsLike) -> np.ndarray:
    """Compute the coefficients (n_draws, n_coefficients) at draws of the free variables.

    Examples
    --------
    >>> import pymc as pm
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
