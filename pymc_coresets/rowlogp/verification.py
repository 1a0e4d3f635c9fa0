"""Comparison of the log-likelihood derived from a model with PyMC's."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable, ancestors, graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import ParameterValueError
from pymc_coresets.compat.pytensor_api import NullType, io_toposort
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.numerics import ABSOLUTE, RELATIVE, ROUNDING
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function, numpy_mode, performed
from pymc_coresets.reading.likelihood.row_terms import total_of
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray
from pymc_coresets.reading.selection_rules import is_black_box
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows

_SHOWN = 5  # rows that a message names


def verify_rows(loglik: LogLikelihood, *, rng: np.random.Generator) -> None:
    """Compare the log-likelihoods with PyMC's own at random rows and points.

    Costs six evaluations of PyMC's elementwise log-likelihood of all rows: at the model's initial
    point, three times near it, and twice far out, where every coordinate of the unconstrained
    space has either sign.  Points where PyMC's log-likelihood is not finite are left out.

    Raises
    ------
    InvalidDataError
        If the log-likelihood of some row is NaN or infinite at all points, as for missing data.
    UnsupportedModelError
        If the two differ, so that the package does not understand the model; or if no point is
        found where the log-likelihood of all rows is finite.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> verify_rows(LogLikelihood(find_observations(model)), rng=np.random.default_rng(1))
    """
    space = loglik.observations.space
    near, far = (space.constrain(x) for x in points_around(space, rng))
    reference = reference_of(loglik.observations)
    at_near, at_far = reference(near), reference(far)
    if not np.isfinite(at_near).all():
        _refuse_bad_data(loglik, near)
        refuse_impossible_rows(loglik, space)
    if not np.isfinite(at_near).any(axis=1).all():
        near = space.constrain(_tries(space, rng))
        at_near = reference(near)
        if not np.isfinite(at_near).any(axis=1).all():
            raise _nowhere_finite(loglik.observations, space, near.n_draws)
    _compare_sum(loglik.observations, near, at_near)
    n_obs = loglik.observations.n_obs
    # A sample is enough: a mistake affects all rows, or all rows of a kind.
    rows = np.sort(rng.choice(n_obs, min(n_obs, 1_000), replace=False))
    _compare(loglik, near, at_near, rows, rtol=RELATIVE, atol=ABSOLUTE)
    # In the tails of distribution functions, all digits but the first may differ.
    _compare(loglik, far, at_far, rows, rtol=0.02, atol=1e-3)


def points_around(space: Unconstrained, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return points near the initial one, (4, D), and far from zero on either side, (2, D).

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    >>> [x.shape for x in points_around(Unconstrained(model), np.random.default_rng(1))]
    [(4, 1), (2, 1)]
    """
    shape = (3, space.n_dims)
    signs = np.where(space.continuous, rng.choice([-1.0, 1.0], size=shape), 0.0)
    first, near, far = signs * rng.uniform(0.2, 1.0, size=shape)
    start = space.start
    fixed = np.where(space.continuous, 0.0, start)
    return (  # PyMC jitters starting points by up to 1
        start + np.array([0.0 * first, 0.1 * first, 0.5 * near, -0.5 * near]),
        fixed + 4.0 * np.array([far, -far]),
    )


def points_near(space: Unconstrained, rng: np.random.Generator) -> Draws:
    """Return four points near the initial one.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    >>> points_near(Unconstrained(model), np.random.default_rng(1)).n_draws
    4
    """
    return space.constrain(points_around(space, rng)[0])


def _tries(space: Unconstrained, rng: np.random.Generator) -> np.ndarray:
    """More points around the initial one, at distances of different magnitudes."""
    shape = (30, space.n_dims)
    sizes = np.exp(rng.uniform(np.log(0.02), np.log(2.0), size=shape))
    signs = np.where(space.continuous, rng.choice([-1.0, 1.0], size=shape), 0.0)
    tries: np.ndarray = space.start + signs * sizes
    return tries


def reference_of(obs: Observations) -> Callable[[Draws], np.ndarray]:
    """Compile PyMC's log-likelihoods of all rows, or of prototypes, for NumPy.

    Returns
    -------
    callable
        Of draws; it returns an array of shape (n_obs, n_draws).

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(2.0))
    >>> reference_of(find_observations(model))(Draws({"mu": np.zeros(1)})).round(3)
    array([[-0.919],
           [-1.419]])
    """
    at_draws = _by_pymc(obs)

    def reference(draws: Draws) -> np.ndarray:
        columns = []
        for found in at_draws(draws):
            if isinstance(found, IndexError):
                raise _out_of_range(obs, found) from found
            values = np.nan if isinstance(found, Exception) else found  # singular matrices far out
            columns.append(np.broadcast_to(values, obs.n_obs))
        return np.stack(columns, axis=1)

    return reference


def _by_pymc(
    obs: Observations, made: Callable[..., Callable[..., list[np.ndarray]]] = performed
) -> Callable[[Draws], Iterator[np.ndarray | Exception]]:
    """Compile PyMC's log-likelihoods, for values at each draw, or the errors in their place."""
    inputs = [*obs.parameters.values(), *obs.prototypes.inputs.values()]
    given = obs.prototypes.values.values()
    function = made(inputs, [obs.reference])

    def at_draws(draws: Draws) -> Iterator[np.ndarray | Exception]:
        for point in _each(draws, obs):
            try:
                yield function(*point, *given)[0]
            except (np.linalg.LinAlgError, ParameterValueError, IndexError) as error:
                yield error

    return at_draws


def _out_of_range(obs: Observations, error: IndexError) -> InvalidDataError:
    """Return an error that names the rows whose codes are out of range."""
    reason = str(error).splitlines()[0]
    codes = [int(number) for number in re.findall(r"index (-?\d+) is out of bounds", reason)]
    whole = [row for row in obs.rows if row.values.dtype.kind in "iu" and row.values.ndim == 1]
    found = [np.flatnonzero(np.isin(row.values, codes)) for row in whole]
    bad = [rows for rows in found if rows.size]
    where = "".join(f" of {_named_rows(obs, rows)}" for rows in bad[:1])
    return InvalidDataError(
        f"A code{where} asks for an entry that a variable does not have: {reason}. Codes count "
        "from 0: correct them, or give the variable more entries."
    )


def _each(draws: Draws, obs: Observations) -> list[list[np.ndarray]]:
    return [
        [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
        for s in range(draws.n_draws)
    ]


def _compare(
    loglik: LogLikelihood,
    draws: Draws,
    reference: np.ndarray,
    rows: np.ndarray,
    *,
    rtol: float,
    atol: float,
) -> None:
    # Where PyMC's check of one row's parameters fails, it makes all rows infinite.
    finite = np.isfinite(reference)
    used = np.flatnonzero(finite.any(axis=0))
    if not used.size:
        return
    expected, finite = reference[np.ix_(rows, used)], finite[np.ix_(rows, used)]
    values = loglik.matrix(draws.take(used), loglik.in_memory.take(rows), finite=False)
    near = np.isclose(values, expected, rtol=rtol, atol=atol)
    # A probability of 1e-13, which 1 - (1 - p) has no digits of.
    vanished = np.isneginf(values) & (expected < -30.0)
    wrong = finite & ~near & ~vanished
    with np.errstate(invalid="ignore"):  # infinite values
        apart = np.abs(values - expected)
    if wrong.any():  # or large terms cancel, so that neither value has a correct digit?
        rounding = rounding_of(loglik.observations, draws.take(used))[rows]
        wrong &= ~(apart <= rounding)
    if wrong.any():  # or PyMC's own value is NaN, because infinite terms are subtracted?
        checks = _failing_checks(loglik.observations, draws.take(used))
        wrong[:, [bool(check) for check in checks]] = False
    if wrong.any():
        n, s = np.argwhere(wrong)[0]
        remedy = (
            "the package does not understand this model. Please report it. Writing the likelihood "
            "as a pm.Potential with one value per row may help."
        )
        nodes = io_toposort([], [loglik.observations.loglik])
        boxes = sorted({type(node.op).__name__ for node in nodes if is_black_box(node.op)})
        if boxes:
            remedy = f"{boxes!r} does not work row by row, as a coreset's likelihood has to."
        raise UnsupportedModelError(
            f"The log-likelihood of observation {rows[n]} comes out as {values[n, s]}, but PyMC "
            f"gives {expected[n, s]}: {remedy}"
        )


def rounding_of(obs: Observations, draws: Draws) -> np.ndarray:
    """Bound the rounding error of PyMC's log-likelihoods, (n_obs, n_draws), to first order.

    The error of a sum is that of its largest term; it changes the log-likelihood in proportion to
    the derivative.  Where p = 1e-16, the last digit of ``p = 1 - exp(-exp(eta))`` determines all of
    ``log(p)``.
    """
    sums = [
        node
        for node in io_toposort([], [obs.reference])
        if isinstance(node.op, ops.Elemwise)
        and isinstance(node.op.scalar_op, ps.Add | ps.Sub)
        and node.outputs[0].type.shape[:1] == (obs.n_obs,)
        and node.outputs[0].type.dtype.startswith("float")
    ]
    if not sums:
        return np.zeros((obs.n_obs, draws.n_draws))
    gradients: Any = pt.grad(
        obs.reference.sum(),
        [node.outputs[0] for node in sums],
        disconnected_inputs="ignore",
        return_disconnected="zero",
        null_gradients="return",
    )
    errors = [_error_of(node, gradient) for node, gradient in zip(sums, gradients, strict=True)]
    of_rows = sum(pt.reshape(error, (obs.n_obs, -1)).sum(axis=1) for error in errors)
    found: np.ndarray = reference_of(replace(obs, reference=of_rows))(draws)
    return ROUNDING * found


def _error_of(node: Apply, gradient: Variable) -> TensorVariable:
    """Return the largest term of a sum, times the derivative of the log-likelihood by it."""
    slope = pt.ones(()) if isinstance(gradient.type, NullType) else pt.abs(gradient)
    error = slope * reduce(pt.maximum, [pt.abs(term) for term in node.inputs])
    not_finite = pt.isinf(error) | pt.isnan(error)  # others cancel, or are wrong
    return ops.checked_tensor(pt.switch(not_finite, 0.0, error))


def _compare_sum(obs: Observations, draws: Draws, at_draws: np.ndarray) -> None:
    """Compare a scalar log-density with the sum of its rows and log-prior."""
    if not obs.log_densities:
        return
    graphs = [total_of(obs.log_densities), *obs.unweighted]
    function = performed(list(obs.parameters.values()), graphs)
    for point, of_rows in zip(_each(draws, obs), at_draws.T, strict=True):
        total, *parts = function(*point)
        found, size = of_rows.sum() + sum(parts), np.abs(of_rows).sum()
        if np.isfinite(total) and not np.isclose(found, total, rtol=1e-6, atol=1e-9 * size):
            raise UnsupportedModelError(
                f"The terms of {[t.name for t in obs.terms]} add up to {found}, but PyMC gives "
                f"{total}: the package does not understand this model. Please report it."
            )


# -- rows and points without a finite log-likelihood -----------------------------------------------


def _refuse_bad_data(loglik: LogLikelihood, draws: Draws) -> None:
    """Name the rows and their data, if these cause the difference."""
    obs = loglik.observations
    finite = np.isfinite(loglik.matrix(draws, finite=False))
    for name, not_finite in _non_finite_data(obs).items():
        bad = np.flatnonzero(not_finite & ~finite.all(axis=1))
        if bad.size:
            raise InvalidDataError(
                f"The log-likelihood of {_named_rows(obs, bad)} is NaN or infinite, where the data "
                f"are not finite in {name}. Leave these rows out, or impute them (a masked array "
                "as observed=...)."
            )


def refuse_impossible_rows(loglik: LogLikelihood, space: Unconstrained) -> None:
    """Name the first row whose log-likelihood is finite at none of four points.

    Reads all rows once. It is called if the log-likelihood of all rows was not finite.

    Parameters
    ----------
    loglik : LogLikelihood
    space : Unconstrained
        Of a model with the same free variables.

    Raises
    ------
    InvalidDataError
        If some rows, but not all, have no finite log-likelihood at any of four points.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
    >>> from pymc_coresets.rows.memory import InMemoryRows
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", np.array([0, 1]))
    ...     likelihood = pm.Bernoulli("likelihood", pm.Beta("p", 1, 1), observed=y)
    >>> rows = InMemoryRows([np.array([0, 2, 1])])
    >>> loglik = likelihood_of_prototypes(model, {"y": np.zeros((), int)}).reading(rows)
    >>> refuse_impossible_rows(loglik, Unconstrained(model))
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: The log-likelihood of observation 1 is NaN or
    infinite at the model's initial point and near it. Give a better one (initval=...), scale the
    covariates, or correct observations that are impossible under the model.
    (docs: troubleshooting#the-data-and-the-model)
    """
    near = points_near(space, np.random.default_rng(0))
    n_rows, first = loglik.of_all(near, _never_finite, _all_never_finite)
    if 0 < n_rows < loglik.n_rows:
        others = f" and of {n_rows - 1:,} more" if n_rows > 1 else ""
        raise InvalidDataError(
            f"The log-likelihood of {loglik.source.place(first)}{others} is NaN or infinite at the "
            "model's initial point and near it. Give a better one (initval=...), scale the "
            "covariates, or correct observations that are impossible under the model."
        )


def _never_finite(values: np.ndarray, rows: Rows) -> tuple[int, int]:
    """Return how many rows have no finite value at any draw, and the first one's position."""
    bad = np.flatnonzero(~np.isfinite(values).any(axis=0))
    return bad.size, int(rows.positions[bad[0]]) if bad.size else -1


def _all_never_finite(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = [part for part in parts if part[0]]
    return sum(n for n, _ in found), found[0][1] if found else -1


def _named_rows(obs: Observations, rows: np.ndarray) -> str:
    if obs.sets and len(rows) <= _SHOWN:
        return ", ".join(obs.place(int(row)) for row in rows)
    shown = ", ".join(map(str, obs.positions_of(rows)[:_SHOWN]))
    if len(rows) == 1:
        return f"row {shown}"
    return f"{len(rows)} rows ({shown}{', ...' if len(rows) > _SHOWN else ''})"


def _non_finite_data(obs: Observations) -> dict[str, np.ndarray]:
    """For each array with NaN or infinite values, find the rows, (n_obs,) of bool."""
    used = set(graph_inputs([obs.loglik]))
    found: dict[str, np.ndarray] = {}
    for array in obs.rows:
        if array.placeholder in used and _given_non_finite(array.source):
            values = np.moveaxis(array.values, array.axis, 0).reshape(obs.n_obs, -1)
            bad = ~np.isfinite(values).all(axis=1)
            name = _in_words(array)
            found[name] = found.get(name, False) | bad
    return found


def _in_words(array: RowArray) -> str:
    """Name an array; by its shape, and the columns that are not finite, if it has no name."""
    if array.name != UNNAMED:
        return repr(array.name)
    words = f"{UNNAMED} of shape {array.values.shape}"
    if array.values.ndim == 2:
        finite = np.isfinite(array.values).all(axis=array.axis)
        words += f" (column {', '.join(map(str, np.flatnonzero(~finite)))})"
    return words


def _given_non_finite(source: Variable) -> bool:
    """Whether any data that `source` is computed from are not finite: `source` itself may be."""
    return any(
        isinstance(v, TensorConstant) and v.type.ndim > 0 and not np.isfinite(v.data).all()
        for v in ancestors([source])
    )


def _nowhere_finite(obs: Observations, space: Unconstrained, n_tries: int) -> UnsupportedModelError:
    """Name PyMC's parameter check that fails at the initial point, if one does."""
    [check] = _failing_checks(obs, space.constrain(space.start[None]))
    reason = f" ({check})" if check else ""
    return UnsupportedModelError(
        f"The log-likelihood of {[t.name for t in obs.terms]} is finite neither at the model's "
        f"initial point{reason} nor at {n_tries} points around it. Give a point where it is "
        "(initval=...), or parametrise the model so that its parameters are valid everywhere."
    )


def _failing_checks(obs: Observations, draws: Draws) -> list[str]:
    """Name PyMC's parameter check that fails at each draw, if one does."""
    reasons = []
    as_written = partial(numpy_function, mode=numpy_mode("None"))
    for found in _by_pymc(obs, as_written)(draws):
        is_check = isinstance(found, ParameterValueError)
        reason = f"PyMC's check {str(found)!r} fails" if is_check else str(found)
        reasons.append(reason if isinstance(found, Exception) else "")
    return reasons
