"""The quadratic of a coreset and the model that it is put into: read again, or of other priors."""

from dataclasses import replace

import numpy as np

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.predictor.several import Predictors, find_predictors
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.rewriting.quadratic import Quadratic

__all__ = ["carried_over", "put_back"]


def put_back(quadratic: Quadratic, observations: Observations) -> Quadratic:
    """Return a quadratic from a file, with the coefficients of its model.

    Raises
    ------
    InvalidDataError
        If the model has other coefficients.
    """
    found = find_predictors(observations)
    if found.names != quadratic.names:
        raise InvalidDataError(
            f"The linear predictor of the model has other coefficients, {_some(found.names)}, than "
            f"that of the coreset, {_some(quadratic.names)}: pass the model that it was built from."
        )
    return replace(quadratic, interface=found.coefficients)


def carried_over(quadratic: Quadratic, old: Observations, new: Observations) -> Quadratic:
    """Return the same quadratic for a model whose likelihood is the same, under other priors.

    Raises
    ------
    InvalidDataError
        If the models' linear predictors are written in other coefficients.
    """
    one, other = find_predictors(old), find_predictors(new)
    if not _written_alike(one, other):
        raise InvalidDataError(
            f"The linear predictor is written in other coefficients, {_some(other.names)}, than "
            f"that of the coreset's model, {_some(one.names)}, in which its quadratic is: write it "
            "as there, or build another coreset."
        )
    return replace(quadratic, interface=other.coefficients)


def _written_alike(one: Predictors, other: Predictors) -> bool:
    if one.n_shared != other.n_shared or len(one.lines) != len(other.lines):
        return False
    return all(
        np.array_equal(a.columns, b.columns)
        and a.design.shape == b.design.shape
        and abs(a.design - b.design).max() == 0
        for a, b in zip(one.lines, other.lines, strict=True)
    )


def _some(names: tuple[str, ...]) -> str:
    return repr(list(names[:3]))[:-1] + (", ...]" if len(names) > 3 else "]")
