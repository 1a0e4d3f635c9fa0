"""Read a generalised linear model from a graph: design matrix, coefficients, offset, link."""

from collections.abc import Collection

import numpy as np
import pytensor.scalar as ps
from pytensor.graph import Variable, ancestors

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.golden import spread_rows
from pymc_coresets.glm.predictor.cut import Costs, contains, smallest_cut
from pymc_coresets.glm.predictor.designs import design_of, few_rows_of, observed_rows, row_graph_of
from pymc_coresets.glm.predictor.row_density import RowDensity
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.glm.predictor.several import Predictors, predictors_of
from pymc_coresets.reading.observations import Observations

_MAX_ROWS = 200  # on which the derivation is checked
_PROBES = np.array([-1e9, -1.0, -0.5, 0.0, 0.5, 1.0, 1e9])
# One number for each row, or else for all of them; those with observed values come last.
_OF_ROWS = Costs(free=1_002, common=1_002, with_response=1_003, repeated=1, most=1)
_OF_ALL = Costs(free=1_000, common=1_000, with_response=1_003, predictor=1_001, most=1)


def find_linear_predictor(observations: Observations) -> Predictors:
    """Find the linear predictor of a generalised linear model, however the user wrote it.

    For models whose likelihood depends on the free variables through one number per row that is
    linear in coefficients: logistic, probit, Poisson, robust and Gaussian regression with known
    scale, with groups, interactions, offsets and hierarchical priors.  Takes one pass over the data
    for the parts of the design matrix that have to be computed, and the memory of the design
    matrix: dense where it comes from covariates, sparse where columns come from index arrays.

    Parameters
    ----------
    observations : Observations
        What `find_observations` derived from the model.

    Returns
    -------
    Predictors
        One line, and no shared numbers.  Its log-likelihood was compared with the model's own, for
        some rows at three points.

    Raises
    ------
    UnsupportedModelError
        If there are two predictors, a free scale or dispersion, several numbers for each row, or
        a predictor that is not linear.
    InvalidDataError
        If the design matrix, the offset or the log-likelihood has NaN or infinite entries.

    Notes
    -----
    The predictor is the affine node without observed values that all paths from the free variables
    to the log-likelihood lead through, and of several the highest: data that are added to it or
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
    >>> found.lines[0].design
    array([[1., 0.],
           [1., 1.],
           [1., 2.]])
    >>> found.lines[0].offset.round(3)
    array([0.   , 0.693, 1.386])
    """
    graph = row_graph_of(observations)
    few, observed = few_rows_of(graph, observations), observed_rows(observations)
    chosen = None
    for costs in (_OF_ROWS, _OF_ALL):
        node = _predictor(observations.loglik, few, observed, costs)
        if node is None:
            continue
        found = _derived(node, graph, observations)
        values = _probe(found)
        if _is_linear(values):
            continue  # the whole log-likelihood, as in exponential families without covariates
        chosen = chosen or found
        if np.isfinite(values[1:-1]).all():  # on both sides of zero
            chosen = found
            break
    if chosen is None:
        raise UnsupportedModelError(_why_none(observations, graph, few, observed))
    chosen.verify()
    return chosen


def _predictor(
    loglik: Variable, few: RowGraph, observed: Collection[Variable], costs: Costs
) -> Variable | None:
    """Return the node that all paths from the free variables lead through, if there is one."""
    try:
        cut = smallest_cut(loglik, few, observed, costs)
        [node] = [*cut.predictors, *cut.shared]
        if cut.shared or contains(node, observed):
            return node
        if not observed:
            cut = smallest_cut(loglik, few, _perhaps_with_response(node, loglik, few), costs)
    except UnsupportedModelError:
        return None
    [node] = cut.highest
    return node


def _perhaps_with_response(node: Variable, loglik: Variable, graph: RowGraph) -> set[Variable]:
    """Return what is computed from a predictor and data that may be a response.

    In potentials, whose observed values are not known: all data but those that are added.
    """
    found = set[Variable]()
    for apply in io_toposort([node], [loglik]):
        data = [i for i in apply.inputs if graph.by_row(i) and not graph.depends(i)]
        is_added = isinstance(apply.op, ops.Elemwise) and isinstance(apply.op.scalar_op, ps.Add)
        if data and not is_added:
            found.update(v for v in apply.outputs if graph.depends(v))
    return found


def _derived(node: Variable, graph: RowGraph, observations: Observations) -> Predictors:
    found = predictors_of([node], graph, observations, RowDensity.above([node], {}, observations))
    if len(found.names) >= observations.n_obs:
        _refuse_all_rows(node, graph, observations.n_obs)
    return found


def _refuse_all_rows(node: Variable, graph: RowGraph, n_obs: int) -> None:
    """Refuse expressions that an operation without a rule computes for all rows at once."""
    for variable, matrix in design_of(node, graph, n_obs)[0].items():
        if variable.owner is None or isinstance(matrix, np.ndarray) or matrix.nnz != n_obs:
            continue
        if len(np.unique(matrix.indices)) == n_obs:
            raise UnsupportedModelError(
                f"The operation {variable.owner.op} inside the linear predictor is not understood: "
                "it computes a value for each row from data and free variables. Write the "
                "predictor with sums, products, dot products and indexing, or use a method for "
                "general models."
            )


def _probe(found: Predictors) -> np.ndarray:
    rows = spread_rows(found.observations.n_obs, _MAX_ROWS)
    return found.density.at_one(_PROBES[:, None], rows, len(rows), compiled=False)


def _is_linear(values: np.ndarray) -> bool:
    """Whether the log-density of every row is a straight line, so that there is no link."""
    with np.errstate(invalid="ignore"):  # infinite values
        slopes = np.diff(values, axis=0) / np.diff(_PROBES)[:, None]
    return bool(np.allclose(slopes, slopes[0], rtol=1e-6, atol=1e-9))


# -- why there is none -----------------------------------------------------------------------------


def _why_none(
    observations: Observations, graph: RowGraph, few: RowGraph, observed: Collection[Variable]
) -> str:
    """Explain what else enters the log-likelihood; raise where the predictor is not linear."""
    costs = Costs(with_response=10**6, only_affine=not observed, most=1_000)
    try:
        cut = smallest_cut(observations.loglik, few, observed, costs)
    except UnsupportedModelError:
        cut = None
    parts = [] if cut is None else [*cut.predictors, *cut.shared]
    if cut is not None and len(cut.predictors) == 1 and not cut.shared:
        design_of(cut.predictors[0], graph, observations.n_obs)  # says what is not linear
    if len(parts) < 2:
        return (
            "The free variables enter the log-likelihood of a row by several numbers, not by one "
            "linear predictor: several outcomes or categories, or a variable with several roles. "
            "Use a method for general models."
        )
    others = sorted(parts, key=lambda v: (graph.by_row(v), _n_below(v, graph)))[:-1]
    outside = [p for p in graph.parameters if _contains_any(p, others)]
    inside = [str(p.name) for p in graph.parameters if p not in outside]
    names, fixed = [str(p.name) for p in outside], ", ".join(f"{p.name!r}: ..." for p in outside)
    second = cut is not None and len(cut.predictors) > 1
    what = "another linear predictor" if second else "a scale or dispersion"
    return (
        f"The free variables {names!r} enter the likelihood besides the linear predictor of "
        f"{inside!r}, as {what}. Fix them (given={{{fixed}}}), or use a method for general models."
    )


def _contains_any(parameter: Variable, nodes: Collection[Variable]) -> bool:
    return any(parameter in ancestors([v]) for v in nodes)


def _n_below(variable: Variable, graph: RowGraph) -> int:
    below = set(ancestors([variable]))
    sizes = [np.prod(p.type.shape, dtype=int) for p in graph.parameters if p in below]
    return int(sum(sizes))
