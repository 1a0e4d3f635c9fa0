"""Design matrices of predictors, checks of them, and what log-likelihoods are computed from."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, ancestors, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.golden import evenly_spread, spread_rows
from pymc_coresets.glm.predictor.affine import Matrix, affine_map
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import Observations

_TRIED = 60  # rows on which predictors are tried, not all of them
_JITTERS = (0.0, 0.1, 0.5)  # on the unconstrained scale, as `verify` has them


def row_graph_of(observations: Observations) -> RowGraph:
    """Return what the parts of the log-likelihood depend on, for the rows that the model holds.

    Raises
    ------
    UnsupportedModelError
        If variables of units are integrated out.
    """
    if observations.units is not None:
        raise UnsupportedModelError(
            "There is no linear predictor of units, which see all variables through integrals: "
            "keep these as parameters (integrate=False), or use method='auto'."
        )
    used = set(graph_inputs([observations.loglik]))
    rows: dict[Variable, np.ndarray] = {}
    rows |= {r.placeholder: r.values for r in observations.rows if r.placeholder in used}
    rows[observations.n_rows] = np.asarray(observations.n_obs)
    return RowGraph([v for v in observations.parameters.values() if v in used], rows)


def few_rows_of(graph: RowGraph, observations: Observations) -> RowGraph:
    """Return the same for a few of the rows."""
    some = spread_rows(observations.n_obs, _TRIED)
    few: dict[Variable, np.ndarray] = {observations.n_rows: np.asarray(len(some))}
    few |= {r.placeholder: r.take(some) for r in observations.rows if r.placeholder in graph.rows}
    return graph.of_rows(few)


def design_of(
    node: Variable, graph: RowGraph, n_obs: int
) -> tuple[Mapping[Variable, Matrix], np.ndarray]:
    """Derive the columns of each coefficient node and the offset (n_obs,), for a graph's rows."""
    [design] = designs_of(node, graph, n_obs)
    return design


def designs_of(
    node: Variable, graph: RowGraph, n_obs: int
) -> Iterator[tuple[Mapping[Variable, Matrix], np.ndarray]]:
    """Derive the same for each of the predictors that a variable has, which may be a matrix."""
    affine, n_lines = affine_map(node, graph), n_predictors(node)
    if not graph.by_row(node):
        affine = affine.take(np.zeros(n_obs, dtype=int))
    if affine.size != n_obs * n_lines:
        raise UnsupportedModelError(
            f"The predictor has {affine.size} entries for {n_obs} observations."
        )
    places = np.arange(affine.size).reshape(affine.shape)
    if n_lines > 1:
        places = np.moveaxis(places, node.type.shape.index(None), -1)
    for own in places.reshape(n_lines, n_obs):
        line = affine.take(own)
        yield line.blocks, np.zeros(n_obs) if line.offset is None else line.offset


def n_predictors(node: Variable) -> int:
    """Return how many numbers a variable has for each row: one, unless it is a matrix."""
    numbers = [n for n in node.type.shape if n != 1]
    return int(sum(n for n in numbers if n is not None)) if len(numbers) == 2 else 1


def observed_rows(observations: Observations) -> set[Variable]:
    """Find the placeholders of arrays that are computed from observed values, not covariates.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("b") * np.array([1.0, 2.0])
    ...     y = pm.Normal("y", mu, 1.0, observed=np.array([0.0, 1.0]))
    >>> observations = find_observations(model)
    >>> [r.values for r in observations.rows if r.placeholder in observed_rows(observations)]
    [array([0., 1.])]
    """
    model = observations.model
    names = {term.name for term in observations.terms}
    values = [_data(model.rvs_to_values[rv]) for rv in model.observed_RVs if rv.name in names]
    found: set[Variable] = set()
    for row in observations.rows:
        below = [_data(v) for v in ancestors([row.source])]
        if any(_same(a, b) for a in [row.values, *below] for b in values):
            found.add(row.placeholder)
    return found


def _data(variable: Variable) -> np.ndarray | None:
    if isinstance(variable, Constant):
        return np.asarray(variable.data) if hasattr(variable.type, "ndim") else None
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return None


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None or one.ndim == 0 or one.shape != other.shape:
        return False
    return one is other or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


# -- checks ----------------------------------------------------------------------------------------


def refuse_not_finite(
    design: Matrix, offset: np.ndarray, names: Sequence[str], place: Callable[[int], str]
) -> None:
    """Raise `InvalidDataError` if a design matrix or an offset is not finite in some row."""
    if not np.isfinite(offset).all():
        [n, *_] = np.flatnonzero(~np.isfinite(offset))
        raise InvalidDataError(
            f"The offset of the linear predictor is {offset[n]} in {place(int(n))}. Correct "
            "the data (such as an exposure of zero, of which the logarithm is taken), or leave the "
            "row out."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(design.sum()):  # that of finite numbers is finite, or overflows
            return
        total = design.sum(axis=0)
    for k in map(int, np.flatnonzero(~np.isfinite(total))):
        column = np.asarray(design[:, [k]].sum(axis=1)).ravel()
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise InvalidDataError(
                f"The covariate of {names[k]!r} is {column[bad[0]]} in "
                f"{place(int(bad[0]))}. Leave such rows out, or impute them."
            )


def compare(values: np.ndarray, expected: np.ndarray, place: Callable[[int], str]) -> None:
    """Refuse a predictor by which the log-likelihoods of some rows are others than the model's.

    Parameters
    ----------
    values, expected : ndarray of shape (n_points, n_rows)
        By the predictor, and by the model.
    place : callable
        Says where one of the rows lies, which may be impossible at a point.
    """
    if not np.isfinite(expected).any():
        raise InvalidDataError(
            "The log-likelihood is not finite at the model's initial point and near it. Give a "
            "better one (initval=...), scale the covariates, or correct the values of given={...}."
        )
    wrong = np.isfinite(expected) & ~np.isclose(values, expected, rtol=1e-6, atol=1e-8)
    if wrong.any():
        s, n = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            f"The log-likelihood of {place(int(n))} is {values[s, n]} by the linear "
            f"predictor, but {expected[s, n]} by the model: its structure is not understood. "
            "Please report the model, and use a method for general models."
        )


def points_to_compare(
    obs: Observations,
    coefficients: TensorVariable,
    arrays: Mapping[Variable, np.ndarray],
    n_rows: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate coefficients (n_points, p) and the potentials of some rows (n_points, n_rows)."""
    space = obs.space
    spread = 2.0 * evenly_spread(space.n_dims) - 1.0
    draws = space.constrain(space.start + np.array(_JITTERS)[:, None] * spread)
    inputs = [*obs.parameters.values(), obs.n_rows, *arrays]
    outputs = [coefficients, pt.broadcast_to(obs.loglik, (obs.n_rows,))]
    function: Callable[..., Sequence[np.ndarray]] = pytensor.function(
        inputs, outputs, mode=PLAIN_MODE, on_unused_input="ignore"
    )
    data = [np.asarray(n_rows), *arrays.values()]
    points = [
        [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
        for s in range(draws.n_draws)
    ]
    with np.errstate(all="ignore"):
        results = [function(*point, *data) for point in points]
    return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])
