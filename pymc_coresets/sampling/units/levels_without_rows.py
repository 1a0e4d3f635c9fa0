"""Draws of the variables of levels that have no rows: those of their priors."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace

from pymc_coresets.compat.pymc_api import compile_function
from pymc_coresets.display import counted
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.reading.graphs import unconstrained_value
from pymc_coresets.reading.units.factors import Part


def drawn_from_priors(
    model: pm.Model,
    parts: Sequence[Part],
    draws: Draws,
    levels: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw the variables of some levels by PyMC, given draws of the shared variables.

    Costs a draw of all levels for each draw of the shared variables.

    Parameters
    ----------
    model : pm.Model
        With these variables.
    parts : sequence of Part
        The variables of a level.
    draws : Draws
        Of all other variables.
    levels : ndarray of int64
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_draws, n_levels, q)
        On their unconstrained scale.

    Raises
    ------
    UnsupportedModelError
        If PyMC cannot draw from the priors.

    Examples
    --------
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.reading.units.factors import factor_of
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", pm.Normal("mu"), 0.1, shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 1])], 1.0, observed=np.zeros(4))
    >>> parts = factor_of(find_observations(model, unconstrained=["z"]), ["z"]).parts
    >>> draws, rng = Draws({"mu": np.array([5.0, 9.0])}), np.random.default_rng(1)
    >>> drawn_from_priors(model, parts, draws, np.array([2]), rng).round().ravel()
    array([5., 9.])
    """
    inputs = {name: model[name].type(name=name) for name in draws.values}
    graphs: list[Variable] = []
    for part in parts:
        free = unconstrained_value(model, model[part.name])
        graphs.append(pt.as_tensor(free, allow_xtensor_conversion=True))
    known: dict[Variable, Variable] = {model[name]: v for name, v in inputs.items()}
    function = compile_function(
        list(inputs.values()),
        clone_replace(graphs, known, rebuild_strict=False),
        random_seed=int(rng.integers(2**31)),
        mode=WRITTEN_MODE,
        on_unused_input="ignore",
    )
    found = np.empty((draws.n_draws, len(levels), parts[-1].columns.stop))
    try:
        for s in range(draws.n_draws):
            given = (np.asarray(draws.values[n][s], v.type.dtype) for n, v in inputs.items())
            for part, values in zip(parts, function(*given), strict=True):
                found[s, :, part.columns] = part.flat(values)[levels]
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"There are no rows of {counted(len(levels), 'level')} of "
            f"{[part.name for part in parts]!r}, and PyMC cannot draw from their prior: leave them "
            "out (levels=...), or give the prior a `random` function."
        ) from error
    return found
