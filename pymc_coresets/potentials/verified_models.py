"""Compare the model of a coreset with the potentials that it stands for."""

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewriting.rewrite import POTENTIAL, coreset_model
from pymc_coresets.rows.values import Rows

__all__ = ["verify_form", "verify_model"]


def verify_form(loglik: LogLikelihood) -> None:
    """Compare the model of a coreset of one row with the potential of that row.

    Raises
    ------
    UnsupportedModelError
        As `verify_model`.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> verify_form(LogLikelihood(find_observations(model)))
    """
    rows, weights = loglik.some_row, np.array([2.0])
    verify_model(loglik, coreset_model(loglik.observations, rows, weights), rows, weights)


def verify_model(loglik: LogLikelihood, model: pm.Model, rows: Rows, weights: np.ndarray) -> None:
    """Compare the potential of a coreset model with the weighted sum that it stands for.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials, which `verify` has accepted.
    model : pm.Model
        The result of `coreset_model` for `rows` and `weights`.
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
    >>> from pymc_coresets.reading.rewriting.rewrite import coreset_model
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> loglik, weights = LogLikelihood(find_observations(model)), np.array([3.0])
    >>> rows = loglik.source.take(np.array([1]))
    >>> small = coreset_model(loglik.observations, rows, weights)
    >>> verify_model(loglik, small, rows, weights)
    """
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
