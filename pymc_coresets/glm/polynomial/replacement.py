"""The model in which polynomial statistics replace the likelihood of all rows."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import sparse

from pymc_coresets.compat.pytensor_api import TensorVariable
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials
from pymc_coresets.glm.polynomial.multi_indices import monomial_levels
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics, weighted_monomials
from pymc_coresets.glm.predictor.linear import LinearPredictor
from pymc_coresets.glm.predictor.model_parts import coefficient_draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.rewriting.rewrite import replace_terms
from pymc_coresets.reading.unconstrained import Unconstrained

if TYPE_CHECKING:
    from pymc_coresets.glm.device_polynomials import DevicePolynomials

__all__ = [
    "POLYNOMIAL",
    "polynomial_model",
    "polynomials_on_device",
    "row_polynomials",
    "verify_polynomial_model",
]

#: Name of the potential that stands for the likelihood.
POLYNOMIAL = "polynomial_loglik"


def row_polynomials(found: LinearPredictor, degree: int, radius: float) -> RowPolynomials:
    """Prepare the polynomials of the rows of a generalised linear model.

    Nothing is compiled if few responses are distinct.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> row_polynomials(found, 2, 4.0).in_predictor(slice(0, 2)).round(3)
    array([[-0.762, -0.5  , -0.082],
           [-0.762,  0.5  , -0.082]])
    """

    def loglik(eta: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return found.loglik(eta, rows)
        # One row for each distinct response: too few to compile for.
        return found.link.evaluate(eta[:, None], rows, len(rows), compiled=False).T

    return RowPolynomials(
        loglik,
        response=[np.moveaxis(row.values, row.axis, 0) for row in found.response],
        offset=found.offset,
        degree=degree,
        radius=radius,
        place=found.place,
    )


def polynomials_on_device(found: LinearPredictor, degree: int) -> "DevicePolynomials | None":
    """Return what computes with the polynomials on a device.

    None where the backend has none, or the design is sparse: the processor adds up its products.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> polynomials_on_device(found, 2) is None
    True
    """
    if found.backend is None or not isinstance(found.design, np.ndarray):
        return None
    # JAX is optional, and takes a second to load.
    from pymc_coresets.glm.device_polynomials import DevicePolynomials  # noqa: PLC0415

    key = ("on the device", degree)
    return found.link.compiled(key, lambda: DevicePolynomials(found.link, degree))


def polynomial_model(found: LinearPredictor, statistics: PolynomialStatistics) -> pm.Model:
    """Replace the likelihood of all rows by its polynomial, as one potential of the coefficients.

    Parameters
    ----------
    found : LinearPredictor
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
    >>> from pymc_coresets.glm.polynomial.statistics import polynomial_statistics
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = polynomial_statistics(found.design, row_polynomials(found, 2, 4.0))
    >>> polynomial_model(found, statistics).potentials
    [polynomial_loglik]
    """
    graph = _polynomial_graph(statistics, found.coefficients)
    return replace_terms(found.observations, graph, POLYNOMIAL)


def _polynomial_graph(
    statistics: PolynomialStatistics, coefficients: TensorVariable
) -> TensorVariable:
    """Build ``sum_m phi_a(theta)^T M_m phi_c(theta)``; the moments are shared variables."""
    leading = statistics.leading_degree
    levels = monomial_levels(statistics.n_coefficients, -(-leading // 2))
    sides = [None, *weighted_monomials(coefficients, levels)]
    terms: list[TensorVariable] = [pt.constant(float(statistics.moments[0].item()))]
    for m in range(1, leading + 1):
        left, right, moment = sides[m // 2], sides[m - m // 2], statistics.moments[m]
        if left is None:
            terms.append(pytensor.shared(np.ascontiguousarray(moment[0])) @ right)
        elif sparse.issparse(moment):
            terms.append(_sparse_form(sparse.triu(moment, format="coo"), right))
        else:
            terms.append(left @ (pytensor.shared(moment) @ right))
    return sum(terms[1:], start=terms[0])


def _sparse_form(upper: sparse.coo_array, theta: TensorVariable) -> TensorVariable:
    """Build a quadratic form from its entries, by operations that every backend has."""
    i, j = upper.coords
    values = np.where(i == j, 1.0, 2.0) * upper.data
    return cast(TensorVariable, (pytensor.shared(values) * theta[i] * theta[j]).sum())


def verify_polynomial_model(
    found: LinearPredictor, statistics: PolynomialStatistics, model: pm.Model
) -> None:
    """Compare the model's potential with the statistics that it stands for.

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point.

    Examples
    --------
    >>> from pymc_coresets.glm.polynomial.statistics import polynomial_statistics
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = polynomial_statistics(found.design, row_polynomials(found, 2, 4.0))
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
