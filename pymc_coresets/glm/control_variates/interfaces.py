"""The quadratic of a coreset and the model that it is put into: read again, or another one."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from pytensor.graph import Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.control_variates.by_gradients import FreeCoordinates
from pymc_coresets.glm.control_variates.expansion import Interface
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Quadratic, interface_at

__all__ = ["Coefficients", "carried_over", "interface_of", "put_back", "written_in"]


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What the rows of a model see of the free variables, as a quadratic has it.

    Parameters
    ----------
    names : tuple of str
    coefficients : TensorVariable
        A graph of ``observations.parameters``, of shape (p,).
    observations : Observations
    """

    names: tuple[str, ...]
    coefficients: TensorVariable
    observations: Observations


def interface_of(observations: Observations) -> Interface:
    """Return what rows see of the free variables: few predictors, or all coordinates.

    Raises
    ------
    UnsupportedModelError
        If a variable that they depend on is discrete.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    try:
        return find_predictors(observations)
    except UnsupportedModelError:
        return FreeCoordinates.of(observations)


def put_back(quadratic: Quadratic, observations: Observations) -> Quadratic:
    """Return a quadratic from a file, with the coefficients of its model.

    Raises
    ------
    InvalidDataError
        If the model has other coefficients.
    """
    found = interface_of(observations)
    order = quadratic.order_of(found.names)
    if order is None:
        raise InvalidDataError(
            f"The rows of the model depend on other coefficients, {_some(found.names)}, than "
            f"that of the coreset, {_some(quadratic.names)}: pass the model that it was built from."
        )
    return quadratic.ordered(order, found.coefficients)


def carried_over(quadratic: Quadratic, old: Observations, new: Observations) -> Quadratic:
    """Return the same quadratic for a model whose likelihood is the same.

    What rows see are functions of the free variables that the likelihood depends on.  These have
    the same names in both models, whatever their priors and whichever rows the models hold.
    """
    swaps: dict[Variable, Variable] = {
        v: new.parameters[name] for name, v in old.parameters.items() if name in new.parameters
    }
    [interface] = clone_replace([quadratic.graph], swaps, rebuild_strict=False)
    return replace(quadratic, interface=cast(TensorVariable, interface))


def written_in(
    found: Coefficients,
    quadratic: Quadratic,
    observations: Observations,
    draws: DrawsLike,
) -> Quadratic:
    """Return a quadratic in the coefficients of another model, which must be the same.

    Parameters
    ----------
    found : Coefficients
        Of the other model, with the same free variables.
    quadratic : Quadratic
    observations : Observations
        Of the model that it belongs to.
    draws : Draws
        Where the coefficients of both are compared.

    Raises
    ------
    InvalidDataError
        If the coefficients have other names, or other values at a draw.
    """
    order = quadratic.order_of(found.names)
    if order is not None:
        values = interface_at(quadratic.graph, observations, draws)[:, order]
        expected = interface_at(found.coefficients, found.observations, draws)
        if np.allclose(values, expected, rtol=1e-6, atol=1e-8):
            return quadratic.ordered(order, found.coefficients)
    raise InvalidDataError(
        f"The linear predictor is written in other coefficients, {_some(found.names)}, than that "
        f"of the coreset's model, {_some(quadratic.names)}, in which its quadratic is: write it as "
        "there, or build another coreset."
    )


def _some(names: tuple[str, ...]) -> str:
    return repr(list(names[:3]))[:-1] + (", ...]" if len(names) > 3 else "]")
