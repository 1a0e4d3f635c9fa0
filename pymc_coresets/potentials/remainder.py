"""What a model's log-density has besides the rows that are summarised: priors, and the rest."""

from collections.abc import Callable

import numpy as np

from pymc_coresets.compat.pytensor_api import Variable, clone_replace
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import Unconstrained

__all__ = ["refuse_unweighted", "remainder_density", "remainder_graph"]


def remainder_graph(observations: Observations) -> Variable:
    """Return it as a function of the model's value variables, Jacobians included.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> remainder_graph(find_observations(model)).type.ndim
    0
    """
    model, terms = observations.model, {term.name for term in observations.terms}
    others = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in terms]
    logp: Variable = model.logp(vars=others)
    if observations.unweighted is None:
        return logp
    variables: dict[Variable, Variable] = {
        observations.parameters[rv.name]: rv for rv in model.free_RVs
    }
    in_model = clone_replace([observations.unweighted], variables, rebuild_strict=False)
    [value] = model.replace_rvs_by_values(in_model)
    both: Variable = logp + value
    return both


def remainder_density(
    observations: Observations, space: Unconstrained
) -> Callable[[np.ndarray], np.ndarray]:
    """Return it as a function of points (n_points, D) on the unconstrained scale, in nats.

    Not compiled: some tenths of a millisecond for each point, after a second.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> density = remainder_density(find_observations(model), Unconstrained(model))
    >>> density(np.zeros((1, 1))).round(4)
    array([-0.9189])
    """
    variables = space.model.value_vars
    function = numpy_function(variables, [remainder_graph(observations)])

    def at(x: np.ndarray) -> float:
        point = space.point(x)
        [value] = function(*(point[v.name] for v in variables))
        return float(value)

    return lambda points: np.array([at(x) for x in points])


def refuse_unweighted(observations: Observations) -> None:
    """Refuse log-densities that are one number and have a part that is in no row.

    Raises
    ------
    UnsupportedModelError
    """
    if observations.unweighted is not None:
        raise UnsupportedModelError(
            f"A part of {[term.name for term in observations.terms]!r} belongs to no row, so that "
            "the rows alone are not all of the likelihood: use the model of all rows for this."
        )
