"""Fix free variables of a model at values that the user gives."""

from collections.abc import Mapping

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.reading.user_model import carry_over, convertible


def fix_variables(model: pm.Model, given: Mapping[str, ArrayLike]) -> pm.Model:
    """Fix free variables at values, such as a scale that is not part of the linear predictor.

    Parameters
    ----------
    model : pm.Model
        It is not changed.
    given : mapping of str to array_like
        Name of each free variable to fix, and its value: of the variable's shape, on its own
        (constrained) scale.

    Returns
    -------
    pm.Model
        A model with data in place of the variables, and without their priors.

    Raises
    ------
    InvalidOptionError
        If `given` is no mapping, a name is no free variable of the model, or a value is not
        finite or has another shape or type.
    UnsupportedModelError
        If an initial value of the model is symbolic.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    ...     y = pm.Normal("y", pm.Normal("mu"), sigma, observed=[0.0, 1.0])
    >>> [v.name for v in fix_variables(model, {"sigma": 2.0}).free_RVs]
    ['mu']
    """
    if not isinstance(given, Mapping):
        raise InvalidOptionError(
            f"given is a {type(given).__name__}, but must map names of free variables to their "
            'values, as in given={"sigma": 1.0}.'
        )
    values = {name: _value(name, value, model) for name, value in given.items()}
    if not values:
        return model
    fixed: pm.Model = pm.do(convertible(model), values)
    carry_over(model, fixed)
    return fixed


def _value(name: str, value: ArrayLike, model: pm.Model) -> np.ndarray:
    free = {rv.name: rv for rv in model.free_RVs}
    if name not in free:
        found = "is no free variable" if name in model.named_vars else "is no variable"
        raise InvalidOptionError(
            f"given: {name!r} {found} of the model. Its free variables are {list(free)!r}."
        )
    dtype = np.dtype(free[name].type.dtype)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # a nested list that is no array, or a whole tree
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise InvalidOptionError(f"given[{name!r}] is no number or array of numbers: {value!r}.")
    shape = tuple(int(n) for n in model.eval_rv_shapes()[name])
    if array.shape != shape:
        raise InvalidOptionError(
            f"given[{name!r}] has shape {array.shape}; the variable has {shape}."
        )
    if not np.isfinite(array).all():
        raise InvalidOptionError(f"given[{name!r}] has NaN or infinite entries.")
    if dtype.kind in "biu" and not np.array_equal(array, array.astype(dtype)):
        raise InvalidOptionError(f"given[{name!r}] must hold whole numbers, not {value!r}.")
    return array.astype(dtype)
