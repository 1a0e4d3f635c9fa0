"""Search for the fewest numbers through which rows depend on free variables, or a single one."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Variable, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.compat.wording import describe
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.affine import designs_of, joined
from pymc_coresets.glm.predictor.cut import (
    FEWEST,
    Coordinate,
    Costs,
    Cut,
    Link,
    contains,
    links_below,
    smallest_cut,
)
from pymc_coresets.glm.predictor.parabolas import in_widths
from pymc_coresets.glm.predictor.predictors import LinearPredictor, Predictors, verify_predictors
from pymc_coresets.glm.predictor.row_density import MOST_OWN, MOST_TOGETHER, RowDensity
from pymc_coresets.glm.predictor.row_graph import (
    RowGraph,
    coefficient_names,
    evenly_spread,
    few_rows_of,
    observed_rows,
    row_graph_of,
    spread_rows,
)
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import interface_at

_log = logging.getLogger(__name__)


def find_predictors(observations: Observations) -> Predictors:
    """Find the fewest numbers through which a row depends on the free variables, at most four.

    For generalised linear models with or without a free scale, shape or dispersion; several
    predictors, as for a mean and a scale that both depend on covariates; products of effects, as in
    item response; hierarchies and crossed factors, in any parametrisation.  There may be more
    numbers if each row depends on at most five of them, such as the predictor and the two cut
    points next to an ordered answer, or the utilities of five alternatives.  Time and memory as
    for `find_linear_predictor`.

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
    >>> found.predictors[0].design
    array([[1., 0.],
           [1., 1.],
           [1., 2.]])
    """
    search, errors = _Search.of(observations), list[UnsupportedModelError]()
    # Each row may depend on all of up to four numbers, or on few of more.  Numbers that enter all
    # rows directly are tried first, as their designs take no memory, then predictor matrices.
    for costs, most_own in (
        (FEWEST, MOST_TOGETHER),
        (Costs(most=16), MOST_TOGETHER),
        (Costs(several=1_003, most=16), MOST_OWN),
    ):
        try:
            cut = search.cut(costs, search.observed)
            found = replace(search.at_cut(cut, apart=costs is not FEWEST), most_own=most_own)
            verify_predictors(found)
        except UnsupportedModelError as error:
            _log.info("%s", error.message)
            errors.append(error)
        else:
            return found
    raise errors[0]


def find_interface(observations: Observations) -> Predictors:
    """Find the numbers that rows depend on, and those in which they are quadratic, if there are.

    Raises
    ------
    UnsupportedModelError, InvalidDataError
        See `find_predictors`.
    """
    found = find_predictors(observations)
    return in_widths(found) or found


def find_linear_predictor(observations: Observations) -> Predictors:
    """Find the linear predictor of a generalised linear model, in any parametrisation.

    For models whose likelihood depends on the free variables through one number per row that is
    linear in coefficients: logistic, probit, Poisson, robust and Gaussian regression with known
    scale, with groups, interactions, offsets and hierarchical priors.  Takes one pass over the data
    for the parts of the design matrix that have to be computed, and the memory of the design
    matrix: dense if it comes from covariates, sparse if columns come from index arrays.

    Parameters
    ----------
    observations : Observations
        Result of `find_observations` for the model.

    Returns
    -------
    Predictors
        One linear predictor, and no shared numbers.  Its log-likelihood was compared with the
        model's own, for some rows at three points.

    Raises
    ------
    UnsupportedModelError
        If there are two predictors, a free scale or dispersion, several numbers for each row, or
        a predictor that is not linear.
    InvalidDataError
        If the design matrix, the offset or the log-likelihood has NaN or infinite entries.

    Notes
    -----
    The predictor is the affine node without observed values on all paths from the free variables to
    the log-likelihood, and of several the one nearest to the latter: data that are added to it or
    multiply it belong to it; a link function and the observed values do not.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> x, exposure = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 4.0])
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a"), pm.Normal("b")
    ...     eta = a + b * x + np.log(exposure)
    ...     y = pm.Poisson("y", pm.math.exp(eta), observed=np.array([0, 1, 5]))
    >>> found = find_linear_predictor(find_observations(model))
    >>> found.names
    ('a', 'b')
    >>> found.predictors[0].design
    array([[1., 0.],
           [1., 1.],
           [1., 2.]])
    >>> found.predictors[0].offset.round(3)
    array([0.   , 0.693, 1.386])
    """
    search, chosen = _Search.of(observations), list[Predictors]()
    probes = np.array([-1e9, -1.0, -0.5, 0.0, 0.5, 1.0, 1e9])
    # One number for each row, or else for all of them; those with observed values come last.
    for costs in (
        Costs(free=1_002, common=1_002, with_response=1_003, repeated=1, most=1),
        Costs(free=1_000, common=1_000, with_response=1_003, predictor=1_001, most=1),
    ):
        for node in search.highest(costs):
            found = search.of_nodes([node])
            if len(found.names) >= observations.n_obs:
                _refuse_all_rows(node, search)
            rows = spread_rows(observations.n_obs, 200)
            values = found.density(probes[None, :, None], rows, len(rows), compiled=False)
            if _is_linear(probes, values):
                continue  # the whole log-likelihood, as in exponential families without covariates
            chosen.append(found)
            if np.isfinite(values[1:-1]).all():  # on both sides of zero
                verify_predictors(found)
                return found
    if not chosen:
        raise UnsupportedModelError(_why_none(search), topic="regressions")
    verify_predictors(chosen[0])
    return chosen[0]


@dataclass(frozen=True, eq=False)
class _Search:
    """The graph of the rows of a model, of a few of them too, and which arrays are observed."""

    observations: Observations
    graph: RowGraph
    few: RowGraph
    observed: set[Variable]

    @classmethod
    def of(cls, observations: Observations) -> Self:
        graph = row_graph_of(observations)
        few = few_rows_of(graph, observations)
        return cls(observations, graph, few, observed_rows(observations))

    def cut(self, costs: Costs, observed: set[Variable]) -> Cut:
        return smallest_cut(self.observations.loglik, self.few, observed, costs)

    def highest(self, costs: Costs) -> Iterator[Variable]:
        """Yield the node on all paths from the free variables, if there is one."""
        with suppress(UnsupportedModelError):
            cut = self.cut(costs, self.observed)
            [node] = [*cut.predictors, *cut.shared]
            if not (cut.shared or contains(node, self.observed)):
                if not self.observed:
                    cut = self.cut(costs, self._perhaps_with_response(node))
                [node] = cut.highest
            yield node

    def _perhaps_with_response(self, node: Variable) -> set[Variable]:
        """Return the variables computed from a predictor and data that may be a response.

        In log-likelihoods, whose observed values are unknown: all data except added terms.
        """
        found, graph = set[Variable](), self.few
        for apply in io_toposort([node], [self.observations.loglik]):
            data = [i for i in apply.inputs if graph.by_row(i) and not graph.depends(i)]
            is_added = isinstance(apply.op, ops.Elemwise) and isinstance(apply.op.scalar_op, ps.Add)
            if data and not is_added:
                found.update(v for v in apply.outputs if graph.depends(v))
        return found

    def at_cut(self, cut: Cut, *, apart: bool) -> Predictors:
        """Return the predictors and shared numbers of a cut, on unconstrained scales."""
        observations = self.observations
        shared = [Coordinate.of(v, observations, apart=apart) for v in cut.shared]
        links = {
            v: link for v in cut.predictors for link in links_below(v, self.graph, observations)
        }
        return self.of_nodes(cut.predictors, shared, links)

    def of_nodes(
        self,
        nodes: Sequence[Variable],
        shared: Sequence[Coordinate] = (),
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
        observations, links = self.observations, links or {}
        derived = [
            ({links[v][0] if v in links else b: x for b, x in blocks.items()}, offset)
            for v in nodes
            for blocks, offset in designs_of(v, self.graph, observations.n_obs)
        ]
        below = list(dict.fromkeys(v for blocks, _ in derived for v in blocks))
        m = sum(c.size for c in shared)
        shapes: dict[Variable, tuple[int, ...]] = {v: self.graph.shape(v) for v in below}
        sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
        ends = m + np.cumsum(sizes, dtype=int)
        place = {v: np.arange(e - n, e) for v, n, e in zip(below, sizes, ends, strict=True)}
        names = coefficient_names(shapes, observations.parameters, observations.model)
        graphs = [*(c.forward for c in shared), *(ops.checked_tensor(v) for v in below)]
        parts = [pt.cast(v.ravel(), "float64") for v in graphs]
        found = Predictors(
            observations=observations,
            names=(*(name for c in shared for name in c.names), *names),
            coefficients=pt.concatenate(parts) if len(parts) > 1 else parts[0],
            n_shared=m,
            predictors=tuple(
                LinearPredictor(
                    np.concatenate([place[v] for v in blocks]),
                    joined(list(blocks.values())),
                    offset,
                )
                for blocks, offset in derived
            ),
            nodes=tuple(nodes),
            density=RowDensity.above(
                nodes,
                {c.variable: (c.value, c.backward) for c in shared},
                observations,
                {v: of for v, (_, of) in links.items()},
            ),
        )
        found.refuse_not_finite(observations.place)
        return found


def _is_linear(at: np.ndarray, values: np.ndarray) -> bool:
    """Whether the log-density of every row is linear in the predictor, so there is no link."""
    with np.errstate(invalid="ignore"):  # infinite values
        slopes = np.diff(values, axis=0) / np.diff(at)[:, None]
    return bool(np.allclose(slopes, slopes[0], rtol=1e-6, atol=1e-9))


# -- models without such numbers -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FreeCoordinates:
    """The free variables that rows depend on, on their unconstrained scale.

    Attributes
    ----------
    names : tuple of str
    coefficients : TensorVariable of shape (p,)
    columns : ndarray of int64, of shape (p,)
        Their positions among all coordinates of the model.
    """

    names: tuple[str, ...]
    coefficients: TensorVariable
    columns: np.ndarray

    is_sparse = False
    entries_a_row = 1

    @classmethod
    def of(cls, observations: Observations) -> "FreeCoordinates":
        """Find them.

        Raises
        ------
        UnsupportedModelError
            If one is discrete, or has no unconstrained scale of its own.
        """
        used = set(graph_inputs([observations.loglik]))
        seen = {n: v for n, v in observations.parameters.items() if v in used}
        found = [Coordinate.of(v, observations) for v in seen.values()]
        parts = [pt.cast(c.forward.ravel(), "float64") for c in found]
        coefficients = ops.checked_tensor(pt.concatenate(parts))
        space = observations.space
        columns = np.concatenate([space.columns[name].ravel() for name in seen])
        at = space.start + evenly_spread(space.n_dims) * space.continuous
        values = interface_at(coefficients, observations, space.constrain(at[None]))[0]
        is_other = values.shape != columns.shape or not np.allclose(values, at[columns])
        if is_other or not space.continuous[columns].all():
            raise UnsupportedModelError(
                f"Rows depend on variables without continuous coordinates of their own (at least "
                f"one of {list(seen)!r}): use method='auto'.",
                topic="regressions",
            )
        return cls(tuple(name for c in found for name in c.names), coefficients, columns)


def interface_of(
    observations: Observations, names: Sequence[str] = ()
) -> Predictors | FreeCoordinates:
    """Return the coefficients that rows depend on: few predictors, or all coordinates.

    Parameters
    ----------
    observations : Observations
    names : sequence of str, optional
        Of the coefficients in a file: some have those of `find_predictors`, from versions that did
        not look for numbers in which rows are quadratic.

    Raises
    ------
    UnsupportedModelError
        If a variable that they depend on is discrete.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    try:
        found = find_predictors(observations)
        return found if sorted(names) == sorted(found.names) else in_widths(found) or found
    except UnsupportedModelError:
        return FreeCoordinates.of(observations)


# -- why there is none -----------------------------------------------------------------------------


def _refuse_all_rows(node: Variable, search: _Search) -> None:
    """Raise for expressions that an operation without a rule computes for all rows at once."""
    n_obs = search.observations.n_obs
    [(blocks, _)] = designs_of(node, search.graph, n_obs)
    for variable, matrix in blocks.items():
        if ops.is_input(variable) or isinstance(matrix, np.ndarray) or matrix.nnz != n_obs:
            continue
        if len(np.unique(matrix.indices)) == n_obs:
            raise UnsupportedModelError(
                f"The linear predictor is not understood: {describe(variable)} "
                "computes a value for each row from data and free variables. Write the "
                "predictor with sums, products, dot products and indexing, or use a method for "
                "general models.",
                topic="regressions",
            )


def _why_none(search: _Search) -> str:
    """Explain what else enters the log-likelihood; raise if the predictor is not linear."""
    graph, cut = search.graph, Cut((), (), ())
    with suppress(UnsupportedModelError):
        costs = Costs(with_response=10**6, only_affine=not search.observed, most=1_000)
        cut = search.cut(costs, search.observed)
    parts = [*cut.predictors, *cut.shared]
    if len(parts) == 1 and cut.predictors:
        list(designs_of(parts[0], graph, search.observations.n_obs))  # raises if one is not linear
    if len(parts) < 2:
        return (
            "The free variables enter the log-likelihood of a row through several numbers, not one "
            "linear predictor: several outcomes or categories, or a variable with several roles. "
            "Use a method for general models."
        )

    def size(part: Variable) -> tuple[bool, int]:
        below = [p for p in graph.parameters if contains(part, [p])]
        return graph.by_row(part), int(sum(np.prod(p.type.shape, dtype=int) for p in below))

    *others, _ = sorted(parts, key=size)
    outside = [p for p in graph.parameters if any(contains(part, [p]) for part in others)]
    inside = [str(p.name) for p in graph.parameters if p not in outside]
    names, fixed = [str(p.name) for p in outside], ", ".join(f"{p.name!r}: ..." for p in outside)
    what = "another linear predictor" if len(cut.predictors) > 1 else "a scale or dispersion"
    return (
        f"The free variables {names!r} enter the likelihood as {what}, in addition to the linear "
        f"predictor of {inside!r}. Fix them (given={{{fixed}}}), or use a method for general "
        "models."
    )
