"""The potentials of a user's model, compared with PyMC before anything relies on them."""

from collections.abc import Callable

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import RowsToRead, Sampled, likelihood_of_rows
from pymc_coresets.potentials.verification import verify
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewriting.rewrite import POTENTIAL, WEIGHTS, coreset_model
from pymc_coresets.reading.user_model import given_model


def full_model(model: pm.Model | None) -> pm.Model:
    """Return the model that was passed or that of the context, which is no coreset's.

    Raises
    ------
    InvalidOptionError
        If it is no model, or None outside of any model's context.
    UnsupportedModelError
        If it is the model of a coreset.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     full_model(None) is model
    True
    """
    found = given_model(model)
    if WEIGHTS in found.named_vars:
        raise UnsupportedModelError("This is the model of a coreset already. Give the full model.")
    return found


def likelihood_of_model(
    model: pm.Model,
    wanted: RowsToRead | None = None,
    *,
    rng: np.random.Generator,
    watch: Callable[[int, int], None] | None = None,
    sampled: Sampled | None = None,
) -> LogLikelihood:
    """Take a model apart, and compare what comes of it with PyMC.

    Parameters
    ----------
    model : pm.Model
        With all rows, or a template of them.
    wanted : RowsToRead, optional
    rng : numpy.random.Generator
    watch, sampled
        See `likelihood_of_rows`.

    Returns
    -------
    LogLikelihood

    Raises
    ------
    UnsupportedModelError, InvalidDataError
        As `verify`, `find_observations` and `likelihood_of_rows` do.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> likelihood_of_model(model, rng=np.random.default_rng(1)).n_rows
    3
    """
    wanted = RowsToRead() if wanted is None else wanted
    if wanted.rows is not None:
        return likelihood_of_rows(model, wanted, rng=rng, watch=watch, sampled=sampled)
    loglik = LogLikelihood(wanted.found_in(model), backend=wanted.evaluated_by)
    verify(loglik, rng=rng)
    return loglik.collapsed(collapse=wanted.collapse)


def verify_form(loglik: LogLikelihood) -> None:
    """Compare the model of a coreset of one row with the potential of that row.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials, which `verify` has accepted.

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> verify_form(LogLikelihood(find_observations(model)))
    """
    rows, weights = loglik.some_row, np.array([2.0])
    model = coreset_model(loglik.observations, rows, weights)
    space = loglik.observations.space
    potential = model.compile_logp(vars=[model[POTENTIAL]], jacobian=False, mode=PLAIN_MODE)
    value = float(potential(space.point(space.start)))
    expected = float(weights @ loglik.matrix(space.constrain(space.start[None]), rows)[:, 0])
    rtol, atol = 1e-6 + loglik.slack, (1e-8 + loglik.slack) * weights.sum()
    if not np.isclose(value, expected, rtol=rtol, atol=atol, equal_nan=True):
        raise UnsupportedModelError(
            f"The coreset model has the log-likelihood {value} where the weighted rows give "
            f"{expected}: the package does not understand this model. Please report it."
        )
