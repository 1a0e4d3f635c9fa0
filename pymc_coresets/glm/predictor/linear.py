"""Read a generalised linear model from a graph: design matrix, coefficients, offset, link."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import TensorVariable, Variable, graph_inputs
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.given import fix_variables
from pymc_coresets.glm.golden import evenly_spread, spread_rows
from pymc_coresets.glm.predictor.affine import Matrix, joined
from pymc_coresets.glm.predictor.affine_rules import affine_map
from pymc_coresets.glm.predictor.labels import coefficient_names
from pymc_coresets.glm.predictor.link import Link
from pymc_coresets.glm.predictor.model_parts import LinearPredictor, refuse_not_finite
from pymc_coresets.glm.predictor.node import observed_rows, possible_predictors, why_not_one
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import Observations

__all__ = [
    "LinearPredictor",
    "compare",
    "design_of",
    "find_linear_predictor",
    "fix_variables",
    "points_to_compare",
    "row_graph_of",
]

_MAX_ROWS = 200  # on which the derivation is checked
_JITTERS = (0.0, 0.1, 0.5)  # on the unconstrained scale, as `verify` has them
_PROBES = np.array([-1e9, -1.0, -0.5, 0.0, 0.5, 1.0, 1e9])


def find_linear_predictor(observations: Observations) -> LinearPredictor:
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
    LinearPredictor
        Its log-likelihood was compared with the model's own, for some rows at three points.

    Raises
    ------
    UnsupportedModelError
        If there are two predictors, a free scale or dispersion, several numbers for each row, or
        a predictor that is not linear.
    InvalidDataError
        If the design matrix, the offset or the log-likelihood has NaN or infinite entries.

    Notes
    -----
    The predictor is the node of the graph that all paths from the free variables to the
    log-likelihood lead through.  Data that are added to it or multiply it belong to it; a link
    function and the observed values do not.

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
    >>> found.design
    array([[1., 0.],
           [1., 1.],
           [1., 2.]])
    >>> found.offset.round(3)
    array([0.   , 0.693, 1.386])
    >>> found.loglik(np.array([0.0])).round(3)
    array([[-1.   ],
           [-1.   ],
           [-5.787]])
    """
    found = _first_real(observations, row_graph_of(observations))
    _verify(found)
    return found


def row_graph_of(observations: Observations) -> RowGraph:
    """Return what the parts of the log-likelihood depend on, for the rows that the model holds."""
    used = set(graph_inputs([observations.loglik]))
    rows: dict[Variable, np.ndarray] = {}
    rows |= {r.placeholder: r.values for r in observations.rows if r.placeholder in used}
    rows[observations.n_rows] = np.asarray(observations.n_obs)
    return RowGraph([v for v in observations.parameters.values() if v in used], rows)


def _first_real(observations: Observations, graph: RowGraph) -> LinearPredictor:
    """Take the first node whose log-density is finite on both sides of zero, or else the first."""
    observed = observed_rows(observations)
    refused, found = [], []
    for node in possible_predictors(observations.loglik, graph, observed):
        try:
            predictor = _derive(node, graph, observations)
        except UnsupportedModelError as error:
            refused.append(error)
            continue
        values = _probe(predictor)
        if _is_linear(values):
            continue  # the whole log-likelihood, as in exponential families without covariates
        found.append(predictor)
        if np.isfinite(values[1:-1]).all():
            return predictor
    if found:
        return found[0]
    reason = why_not_one(observations.loglik, graph, observed)
    raise refused[0] if refused and reason is None else UnsupportedModelError(reason)


def _derive(node: Variable, graph: RowGraph, observations: Observations) -> LinearPredictor:
    blocks, offset = design_of(node, graph, observations.n_obs)
    _refuse_all_rows(blocks, observations.n_obs)
    shapes = {v: graph.shape(v) for v in blocks}
    nodes = tuple(cast(TensorVariable, v) for v in blocks)
    raveled = [pt.cast(v.ravel(), "float64") for v in nodes]
    found = LinearPredictor(
        observations=observations,
        names=tuple(coefficient_names(shapes, observations.parameters, observations.model)),
        coefficients=pt.concatenate(raveled) if len(raveled) > 1 else raveled[0],
        nodes=nodes,
        design=joined(list(blocks.values())),
        offset=offset,
        link=Link.above(node, observations, shared=not graph.by_row(node)),
        node=node,
    )
    refuse_not_finite(found.design, found.offset, found.names, found.place)
    return found


def design_of(
    node: Variable, graph: RowGraph, n_obs: int
) -> tuple[Mapping[Variable, Matrix], np.ndarray]:
    """Derive the columns of each coefficient node and the offset (n_obs,), for a graph's rows."""
    affine = affine_map(node, graph)
    if not graph.by_row(node):
        affine = affine.take(np.zeros(n_obs, dtype=int))
    if affine.size != n_obs:
        raise UnsupportedModelError(
            f"The predictor has {affine.size} entries for {n_obs} observations."
        )
    return affine.blocks, np.zeros(n_obs) if affine.offset is None else affine.offset


def _refuse_all_rows(blocks: Mapping[Variable, Matrix], n_obs: int) -> None:
    """Refuse expressions that an operation without a rule computes for all rows at once."""
    for variable, matrix in blocks.items():
        if variable.owner is None or isinstance(matrix, np.ndarray) or matrix.nnz != n_obs:
            continue
        if len(np.unique(matrix.indices)) == n_obs:
            raise UnsupportedModelError(
                f"The operation {variable.owner.op} inside the linear predictor is not understood: "
                "it computes a value for each row from data and free variables. Write the "
                "predictor with sums, products, dot products and indexing, or use a method for "
                "general models."
            )


# -- checks ----------------------------------------------------------------------------------------


def _probe(found: LinearPredictor) -> np.ndarray:
    rows = spread_rows(found.observations.n_obs, _MAX_ROWS)
    return found.link.evaluate(_PROBES[:, None], rows, len(rows), compiled=False)


def _is_linear(values: np.ndarray) -> bool:
    """Whether the log-density of every row is a straight line, so that there is no link."""
    with np.errstate(invalid="ignore"):  # infinite values
        slopes = np.diff(values, axis=0) / np.diff(_PROBES)[:, None]
    return bool(np.allclose(slopes, slopes[0], rtol=1e-6, atol=1e-9))


def _verify(found: LinearPredictor) -> None:
    """Compare the log-density by the predictor with the model's own, at some rows and points."""
    rows = spread_rows(found.observations.n_obs, _MAX_ROWS)
    at, expected = points_to_compare(found.observations, found.coefficients, rows)
    eta = at @ found.design[rows].T + found.offset[rows]
    compare(found.link.evaluate(eta, rows, len(rows), compiled=False), expected, rows)


def compare(values: np.ndarray, expected: np.ndarray, rows: np.ndarray) -> None:
    """Refuse a predictor by which the log-likelihoods of some rows are others than the model's.

    Parameters
    ----------
    values, expected : ndarray of shape (n_points, n_rows)
        By the predictor, and from `points_to_compare`.
    rows : ndarray of int, of shape (n_rows,)
    """
    if not np.isfinite(expected).any():
        raise InvalidDataError(
            "The log-likelihood is not finite at the model's initial point and near it. Give a "
            "better one (initval=...), scale the covariates, or correct the values of given={...}."
        )
    wrong = ~np.isclose(values, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
    if wrong.any():
        s, n = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            f"The log-likelihood of observation {rows[n]} is {values[s, n]} by the linear "
            f"predictor, but {expected[s, n]} by the model: its structure is not understood. "
            "Please report the model, and use a method for general models."
        )


def points_to_compare(
    obs: Observations, coefficients: TensorVariable, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate coefficients (n_points, p) and the potentials of some rows (n_points, n_rows)."""
    space = obs.space
    spread = 2.0 * evenly_spread(space.n_dims) - 1.0
    draws = space.constrain(space.start + np.array(_JITTERS)[:, None] * spread)
    used = set(graph_inputs([obs.loglik]))
    arrays = [r for r in obs.rows if r.placeholder in used]
    inputs = [*obs.parameters.values(), obs.n_rows, *(r.placeholder for r in arrays)]
    outputs = [coefficients, pt.broadcast_to(obs.loglik, (obs.n_rows,))]
    function: Callable[..., Sequence[np.ndarray]] = pytensor.function(
        inputs, outputs, mode=PLAIN_MODE, on_unused_input="ignore"
    )
    data = [np.asarray(len(rows)), *(r.take(rows) for r in arrays)]
    points = [
        [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
        for s in range(draws.n_draws)
    ]
    with np.errstate(all="ignore"):
        results = [function(*point, *data) for point in points]
    return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])
