"""The log-density of a model, compiled as PyMC does it for its samplers."""

from collections.abc import Callable

import numpy as np
import pymc as pm
from pytensor import Mode

__all__ = ["compiled_density"]


def compiled_density(
    model: pm.Model, mode: Mode | None = None
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return a function of points (n_dims,), unconstrained: the log-density and its gradient."""
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode, trust_input=True)
    function.set_extra_values({})

    def density(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(np.ascontiguousarray(x, dtype=np.float64))
        return float(value), np.asarray(gradient)

    return density
