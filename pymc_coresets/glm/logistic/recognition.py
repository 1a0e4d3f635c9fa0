"""Recognise a logistic regression, and read its labels."""

from collections.abc import Callable

import numpy as np

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.logistic.signed_rows import LogisticRows
from pymc_coresets.glm.predictor.linear import LinearPredictor

__all__ = ["logistic_rows"]

_GRID = np.array([-6.0, -2.0, -0.5, 0.0, 1.0, 3.0, 6.0])  # of the linear predictor
_BLOCK = 2**16


def logistic_rows(predictor: LinearPredictor) -> LogisticRows:
    """Read the design, labels and offset of a logistic regression, however it was written.

    For every row, the likelihood is evaluated at seven values of the linear predictor and must be
    ``-log(1 + exp(-y eta))`` with a label y of -1 or 1.  It may be written as a Bernoulli variable
    with ``logit_p`` or ``p``, or as a potential, with labels 0 and 1 or any others.

    Parameters
    ----------
    predictor : LinearPredictor
        From `find_linear_predictor`.

    Returns
    -------
    LogisticRows

    Raises
    ------
    UnsupportedModelError
        If a row has another likelihood; the message names the row and the values.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("b") * np.array([2.0, 3.0])
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1])
    >>> logistic_rows(find_linear_predictor(find_observations(model))).labels
    array([-1.,  1.])
    """
    n_obs = predictor.n_obs
    labels = np.empty(n_obs)
    for start in range(0, n_obs, _BLOCK):
        block = slice(start, min(start + _BLOCK, n_obs))
        loglik = predictor.loglik(_GRID, rows=block)
        labels[block] = _labels(loglik, start, predictor.place)
    offset = predictor.offset if predictor.offset.any() else None
    return LogisticRows(
        design=predictor.design, labels=labels, offset=offset, names=predictor.names
    )


def _labels(loglik: np.ndarray, start: int, place: Callable[[int], str]) -> np.ndarray:
    labels = np.where(loglik[:, -1] > loglik[:, 0], 1.0, -1.0)
    expected = -np.logaddexp(0, -labels[:, None] * _GRID)
    wrong = ~np.isclose(loglik, expected, rtol=1e-6, atol=0)
    if wrong.any():
        n, k = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            "method='sensitivity' needs a logistic regression with one trial per row, but the "
            f"log-likelihood of {place(start + int(n))} is {loglik[n, k]:.6g} nats at a linear "
            f"predictor of {_GRID[k]:g}, and not {expected[n, k]:.6g}. Write binomial counts as "
            "one row for each trial (build_coreset(collapse=True) merges equal ones); for other "
            "likelihoods use method='auto'."
        )
    return labels
