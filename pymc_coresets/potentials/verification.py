"""Check what is derived from a model against PyMC, before anything relies on it."""

import numpy as np
import pymc as pm
import pytensor

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewrite import POTENTIAL
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows

__all__ = ["verify", "verify_model"]

_JITTERS = (0.0, 0.1, 0.5)  # on the unconstrained scale; PyMC jitters starting points by up to 1
_MAX_ROWS = 1_000


def verify(loglik: LogLikelihood, *, rng: np.random.Generator) -> None:
    """Compare the potentials with PyMC's own at random rows and points.

    Costs three evaluations of PyMC's elementwise log-likelihood of all rows: at the model's
    initial point, and near it.

    Raises
    ------
    InvalidDataError
        If the log-likelihood of some row is NaN or infinite at all points, as for missing data.
    UnsupportedModelError
        If the two differ: the model is one that the package does not understand.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> verify(LogLikelihood(find_observations(model)), rng=np.random.default_rng(1))
    """
    space = Unconstrained(loglik.observations.model)
    jitter = rng.uniform(-1, 1, size=(len(_JITTERS), space.n_dims))
    draws = space.constrain(space.start + np.array(_JITTERS)[:, None] * jitter)
    reference = _reference(loglik, draws)
    _refuse_bad_rows(loglik, reference)
    n_obs = loglik.observations.n_obs
    rows = np.sort(rng.choice(n_obs, min(n_obs, _MAX_ROWS), replace=False))
    values = loglik.matrix(draws, loglik.source.take(rows), finite=False)
    # Where PyMC's check of one row's parameters fails, it makes all rows infinite.
    comparable = np.isfinite(reference[rows])
    wrong = comparable & ~np.isclose(values, reference[rows], rtol=1e-6, atol=1e-8)
    if wrong.any():
        n, s = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            f"The log-likelihood of observation {rows[n]} comes out as {values[n, s]}, but PyMC "
            f"gives {reference[rows[n], s]}: its structure is not understood. Please report the "
            "model. Writing the likelihood as a pm.Potential with one value per row may help."
        )


def _reference(loglik: LogLikelihood, draws: Draws) -> np.ndarray:
    """PyMC's potentials of all rows, (n_obs, n_points), by NumPy."""
    obs = loglik.observations
    # Its stabilisations count: as written, log(1 - sigmoid(x)) is no reference for large x.
    inputs = list(obs.parameters.values())
    function = pytensor.function(inputs, obs.reference, mode=PLAIN_MODE, on_unused_input="ignore")
    columns = []
    for s in range(draws.n_draws):
        point = [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
        with np.errstate(all="ignore"):  # of infinite data, which are about to be named
            columns.append(np.broadcast_to(function(*point), obs.n_obs))
    return np.stack(columns, axis=1)


def _refuse_bad_rows(loglik: LogLikelihood, reference: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(reference).any(axis=1))
    if not bad.size:
        return
    suspects = loglik.non_finite_data(loglik.source.take(bad[:1]))
    found = f"The log-likelihood of {bad.size} observations is not finite, first of row {bad[0]}"
    if suspects:
        raise InvalidDataError(
            f"{found}, where the data are not finite in {suspects}. Leave these rows out, or "
            "impute them (a masked array as observed=...)."
        )
    raise InvalidDataError(
        f"{found}, at the model's initial point and near it. Give a better one (initval=...), "
        "scale the covariates, or correct observations that are impossible under the model."
    )


def verify_model(loglik: LogLikelihood, model: pm.Model, rows: Rows, weights: np.ndarray) -> None:
    """Compare the potential of a coreset model with the weighted sum that it stands for.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials, which `verify` has found right.
    model : pm.Model
        What `coreset_model` made of `rows` and `weights`.
    rows : Rows
    weights : ndarray of shape (size,)

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.reading.rewrite import coreset_model
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> loglik, weights = LogLikelihood(find_observations(model)), np.array([3.0])
    >>> rows = loglik.source.take(np.array([1]))
    >>> small = coreset_model(loglik.observations, rows, weights)
    >>> verify_model(loglik, small, rows, weights)
    """
    space = Unconstrained(model)
    potential = model.compile_logp(vars=[model[POTENTIAL]], jacobian=False, mode=PLAIN_MODE)
    value = float(potential(space.point(space.start)))
    expected = float(weights @ loglik.matrix(space.constrain(space.start[None]), rows)[:, 0])
    if not np.isclose(value, expected, rtol=1e-6, atol=1e-8 * weights.sum()):
        raise UnsupportedModelError(
            f"The coreset model has the log-likelihood {value} where the weighted rows give "
            f"{expected}: its structure is not understood. Please report the model."
        )
