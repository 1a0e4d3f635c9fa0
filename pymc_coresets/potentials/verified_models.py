"""Compare the model of a coreset with the potentials that it stands for."""

import numpy as np

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewriting.rewrite import POTENTIAL, coreset_model

__all__ = ["verify_form"]


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
