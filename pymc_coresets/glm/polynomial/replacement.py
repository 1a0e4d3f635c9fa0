"""The model in which polynomial statistics replace the likelihood of all rows."""

from typing import cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.polynomial.forms import monomial_levels, weighted_monomials
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.several import Predictors, coefficient_draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewrite import replace_terms
from pymc_coresets.reading.unconstrained import Unconstrained

#: Name of the potential that stands for the likelihood.
POLYNOMIAL = "polynomial_loglik"


def polynomial_model(found: Predictors, statistics: PolynomialStatistics) -> pm.Model:
    """Replace the likelihood of all rows by its polynomial, as one potential of the coefficients.

    Parameters
    ----------
    found : Predictors
        Read from the user's model, which is not changed.
    statistics : PolynomialStatistics

    Returns
    -------
    pm.Model
        A model with the free variables of the user's: names, dims, coords, priors, transforms.

    Raises
    ------
    UnsupportedModelError
        If the model has symbolic initial values, or is itself a model of such statistics.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = PolynomialStatistics(
    ...     degree=2, radius=4.0, n_obs=3, moments=(np.zeros((1, 1)), np.ones((1, 1)), -np.eye(1)),
    ...     rising=np.array([0.0, 4.0, 0.0]), falling=np.array([0.0, 0.0, 16.0]),
    ... )
    >>> polynomial_model(found, statistics).potentials
    [polynomial_loglik]
    """
    graph = _polynomial_graph(found, statistics)
    return replace_terms(found.observations, graph, POLYNOMIAL)


def _polynomial_graph(found: Predictors, statistics: PolynomialStatistics) -> TensorVariable:
    """Build ``sum_m phi_a(theta)^T M_m phi_c(theta)``; the moments are shared variables."""
    leading = statistics.leading_degree
    constant = float(statistics.moments[0].item())
    if leading <= 2:
        quadratic = statistics.quadratic(found.names, found.coefficients)
        return cast(TensorVariable, quadratic.potential() + constant)
    levels = monomial_levels(statistics.n_coefficients, -(-leading // 2))
    sides = [pt.ones(1), *weighted_monomials(found.coefficients, levels)]
    terms = [
        sides[m // 2] @ (pytensor.shared(statistics.moments[m]) @ sides[m - m // 2])
        for m in range(1, leading + 1)
    ]
    return sum(terms, start=pt.constant(constant))


def verify_polynomial_model(
    found: Predictors, statistics: PolynomialStatistics, model: pm.Model
) -> None:
    """Compare the model's potential with the statistics that it stands for.

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = PolynomialStatistics(
    ...     degree=2, radius=4.0, n_obs=3, moments=(np.zeros((1, 1)), np.ones((1, 1)), -np.eye(1)),
    ...     rising=np.array([0.0, 4.0, 0.0]), falling=np.array([0.0, 0.0, 16.0]),
    ... )
    >>> verify_polynomial_model(found, statistics, polynomial_model(found, statistics))
    """
    space = Unconstrained(model)
    logp = model.compile_logp(vars=[model[POLYNOMIAL]], jacobian=False, mode=PLAIN_MODE)
    value = float(logp(space.point(space.start)))
    theta = coefficient_draws(found, space.constrain(space.start[None]))[0]
    expected = float(statistics.loglik(theta))
    if not np.isclose(value, expected, rtol=1e-6, atol=1e-8 * statistics.n_obs):
        raise UnsupportedModelError(
            f"The model of the polynomial has the log-likelihood {value} where the statistics "
            f"give {expected}: its structure is not understood. Please report the model."
        )
