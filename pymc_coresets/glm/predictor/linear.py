"""Read a generalised linear model from a graph: design matrix, coefficients, offset, link."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import TensorVariable, Variable, graph_inputs
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.given import fix_variables
from pymc_coresets.glm.golden import evenly_spread, spread_rows
from pymc_coresets.glm.predictor.affine import Matrix, joined
from pymc_coresets.glm.predictor.affine_rules import affine_map
from pymc_coresets.glm.predictor.labels import coefficient_names
from pymc_coresets.glm.predictor.link import Link
from pymc_coresets.glm.predictor.node import observed_rows, possible_predictors, why_not_one
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.unconstrained import Unconstrained

__all__ = ["LinearPredictor", "find_linear_predictor", "fix_variables"]

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_MAX_ROWS = 200  # on which the derivation is checked
_JITTERS = (0.0, 0.1, 0.5)  # on the unconstrained scale, as `verify` has them
_PROBES = np.array([-1e9, -1.0, -0.5, 0.0, 0.5, 1.0, 1e9])


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearPredictor:
    """A generalised linear model: log p(y_n | theta) = phi_n(eta_n), eta = X c(theta) + offset.

    Attributes
    ----------
    observations : Observations
        The observations that it was read from.
    names : tuple of str
        A label for each coefficient: ``"a"``, ``"beta[age]"`` (coordinates where the variable has
        dims), ``"beta[3]"``.
    coefficients : TensorVariable
        c, of shape (p,): a graph of ``observations.parameters``.
    nodes : tuple of TensorVariable
        The parts of `coefficients`, raveled in C order: free variables, or expressions of them that
        all rows share.
    design : ndarray or csr_array, of shape (n_obs, p)
        X, in float64.  It may be the user's own array: do not write to it.
    offset : ndarray of shape (n_obs,)
        The part of the predictor that does not depend on coefficients, such as a log exposure.
    link : Link
        phi; `loglik` evaluates it.
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    nodes: tuple[TensorVariable, ...]
    design: Matrix
    offset: np.ndarray
    link: Link = field(repr=False)

    @property
    def response(self) -> tuple[RowArray, ...]:
        """The arrays that phi_n depends on: outcomes, numbers of trials and the like."""
        return self.link.rows

    def predictor(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute eta = X c + offset.

        Parameters
        ----------
        coefficients : ndarray of shape (p,) or (n_draws, p)

        Returns
        -------
        ndarray of shape (n_obs,) or (n_obs, n_draws)

        Raises
        ------
        InvalidOptionError
            If `coefficients` has another shape.
        """
        c = np.asarray(coefficients, dtype=float)
        if c.ndim not in (1, 2) or c.shape[-1] != len(self.names):
            raise InvalidOptionError(
                f"coefficients must have shape ({len(self.names)},) or (n_draws, "
                f"{len(self.names)}), not {c.shape}."
            )
        eta: np.ndarray = self.design @ c.T
        eta += self.offset if c.ndim == 1 else self.offset[:, None]
        return eta

    def loglik(self, eta: np.ndarray, rows: np.ndarray | slice | None = None) -> np.ndarray:
        """Compute phi_n(eta) = log p(y_n | eta), in nats, for some rows (or all).

        Compiled at the first call, for any rows.  Takes a few nanoseconds per entry, and a megabyte
        besides the result.

        Parameters
        ----------
        eta : ndarray of shape (K,) or (n_rows, K)
            K values of the predictor: the same for all rows, or each row's own.
        rows : ndarray of int, or slice, optional
            Positions along the observation axis; all by default.

        Returns
        -------
        ndarray of shape (n_rows, K)
            In Fortran order.  It may hold infinite values and NaN.

        Raises
        ------
        InvalidOptionError
            If `eta` has another shape.
        """
        everything = range(self.observations.n_obs)
        chosen = rows if isinstance(rows, np.ndarray) else everything[rows or slice(None)]
        n_rows = len(chosen)
        eta = np.asarray(eta, dtype=float)
        if eta.ndim not in (1, 2) or (eta.ndim == 2 and len(eta) != n_rows):
            raise InvalidOptionError(f"eta must have shape (K,) or ({n_rows}, K), not {eta.shape}.")
        out = np.empty((eta.shape[-1], n_rows))
        step = max(64, _BLOCK_ENTRIES // max(1, len(out)))
        for start in range(0, n_rows, step):
            block = slice(start, min(start + step, n_rows))
            values = eta[:, None] if eta.ndim == 1 else eta[block].T
            out[:, block] = self.link.evaluate(values, _some(chosen, block), block.stop - start)
        return out.T


def _some(rows: range | np.ndarray, block: slice) -> slice | np.ndarray:
    """Return a block of the rows, as a slice where possible, since slices copy nothing."""
    some = rows[block]
    if not isinstance(some, range):
        return some
    return slice(some.start, some.stop, some.step) if some.step > 0 else np.array(some)


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
    used = set(graph_inputs([observations.loglik]))
    rows: dict[Variable, np.ndarray] = {}
    rows |= {r.placeholder: r.values for r in observations.rows if r.placeholder in used}
    rows[observations.n_rows] = np.asarray(observations.n_obs)
    graph = RowGraph([v for v in observations.parameters.values() if v in used], rows)
    found = _first_real(observations, graph)
    _verify(found)
    return found


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
    affine = affine_map(node, graph)
    shared = not graph.by_row(node)
    if shared:
        affine = affine.take(np.zeros(observations.n_obs, dtype=int))
    if affine.size != observations.n_obs:
        raise UnsupportedModelError(
            f"The predictor has {affine.size} entries for {observations.n_obs} observations."
        )
    _refuse_all_rows(affine.blocks, observations.n_obs)
    shapes = {v: graph.shape(v) for v in affine.blocks}
    nodes = tuple(cast(TensorVariable, v) for v in affine.blocks)
    raveled = [pt.cast(v.ravel(), "float64") for v in nodes]
    names = tuple(coefficient_names(shapes, observations.parameters, observations.model))
    offset = np.zeros(affine.size) if affine.offset is None else affine.offset
    design = joined(list(affine.blocks.values()))
    _refuse_not_finite(design, offset, names)
    return LinearPredictor(
        observations=observations,
        names=names,
        coefficients=pt.concatenate(raveled) if len(raveled) > 1 else raveled[0],
        nodes=nodes,
        design=design,
        offset=offset,
        link=Link.above(node, observations, shared=shared),
    )


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


def _refuse_not_finite(design: Matrix, offset: np.ndarray, names: Sequence[str]) -> None:
    if not np.isfinite(offset).all():
        [n, *_] = np.flatnonzero(~np.isfinite(offset))
        raise InvalidDataError(
            f"The offset of the linear predictor is {offset[n]} in row {n}. Correct the data "
            "(such as an exposure of zero, of which the logarithm is taken), or leave the row out."
        )
    total = design.sum(axis=0)  # a sum of finite numbers is finite, or overflows
    for k in map(int, np.flatnonzero(~np.isfinite(total))):
        column = np.asarray(design[:, [k]].sum(axis=1)).ravel()
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise InvalidDataError(
                f"The covariate of {names[k]!r} is {column[bad[0]]} in row {bad[0]}. Leave such "
                "rows out, or impute them."
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
    obs = found.observations
    rows = spread_rows(obs.n_obs, _MAX_ROWS)
    coefficients, reference = _reference(found, rows)
    eta = coefficients @ found.design[rows].T + found.offset[rows]
    values = found.link.evaluate(eta, rows, len(rows), compiled=False)
    if not np.isfinite(reference).any():
        raise InvalidDataError(
            "The log-likelihood is not finite at the model's initial point and near it. Give a "
            "better one (initval=...), scale the covariates, or correct the values of given={...}."
        )
    wrong = ~np.isclose(values, reference, rtol=1e-6, atol=1e-8, equal_nan=True)
    if wrong.any():
        s, n = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            f"The log-likelihood of observation {rows[n]} is {values[s, n]} by the linear "
            f"predictor, but {reference[s, n]} by the model: its structure is not understood. "
            "Please report the model, and use a method for general models."
        )


def _reference(found: LinearPredictor, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the coefficients (n_points, p) and the model's potentials (n_points, n_rows)."""
    obs = found.observations
    space = Unconstrained(obs.model)
    spread = 2.0 * evenly_spread(space.n_dims) - 1.0
    draws = space.constrain(space.start + np.array(_JITTERS)[:, None] * spread)
    used = set(graph_inputs([obs.loglik]))
    arrays = [r for r in obs.rows if r.placeholder in used]
    inputs = [*obs.parameters.values(), obs.n_rows, *(r.placeholder for r in arrays)]
    outputs = [found.coefficients, pt.broadcast_to(obs.loglik, (obs.n_rows,))]
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
