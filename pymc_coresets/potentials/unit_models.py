"""Units of a user's model: which variables are integrated out, and their potentials."""

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.unit_modes import UnitModes
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.units.factors import factor_of, find_factors
from pymc_coresets.reading.units.integral import fewest_nodes
from pymc_coresets.reading.units.observations_of_units import UnitModel

#: Up to which choosing rows alone takes no longer than a quadratic.
FEW_DIMENSIONS = 24

_FEWEST_LEVELS = 250  # whose variables are no burden as parameters
_UNITS_PER_CHOSEN = 5  # levels for each that a coreset of them needs: with fewer, it saves little
_UNITS_PER_DIMENSION = 4  # beside a quadratic for all of them


class UnitSettings(TypedDict):
    """What was integrated out, and how: enough to do it again."""

    names: list[str]
    n_each: int
    at: list[float]
    node_error: float


def may_have_units(model: pm.Model) -> bool:
    """Whether a free variable is as long as a factor whose levels may be integrated out.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", shape=1_000)
    >>> may_have_units(model)
    True
    """
    lengths = (int(n) for shape in model.eval_rv_shapes().values() for n in shape)
    return max(lengths, default=0) >= _FEWEST_LEVELS


def chosen_units(
    observations: Observations, asked: Sequence[str] | None = None
) -> tuple[str, ...] | None:
    """Choose the factor whose variables are integrated out.

    Parameters
    ----------
    observations : Observations
        Rows.
    asked : sequence of str, optional
        Variables that the user named.  By default, those of the largest factor of at least 250
        levels, if these are five times as many as a coreset of them needs: one more than the
        D(D + 3)/2 coefficients of a quadratic in the D other dimensions; or, where D is above 24,
        and there is a quadratic beside them, 4 D.  Variables with one value for each row are
        integrated out in any case, because rows cannot be left out without them.

    Returns
    -------
    tuple of str, or None
        None where all variables stay parameters.

    Raises
    ------
    InvalidOptionError
        If the variables that the user named do not belong to one factor.
    """
    factors = find_factors(observations)
    if asked is not None:
        for _, names in factors:
            if set(asked) <= set(names):
                return tuple(name for name in names if name in asked)
        raise InvalidOptionError(
            f"integrate={list(asked)!r}: these are not variables of the levels of one factor, "
            "which the rows see through its index alone. Those that may be integrated out are "
            f"{[list(names) for _, names in factors]!r}."
        )
    if not factors:
        return None
    n_levels, names = factors[0]
    sizes = {name: math.prod(shape) for name, shape in observations.shapes.items()}
    if fewest_nodes(sum(sizes[name] for name in names) // n_levels) is None:
        return None
    n_shared = sum(n for name, n in sizes.items() if name not in names)
    needed = n_shared * (n_shared + 3) // 2 + 1
    if n_shared > FEW_DIMENSIONS:
        needed = _UNITS_PER_DIMENSION * n_shared
    enough = max(_FEWEST_LEVELS, _UNITS_PER_CHOSEN * needed)
    must = not set(names).isdisjoint(observations.local)
    return names if must or n_levels >= enough else None


def unit_model(
    model: pm.Model,
    names: Sequence[str],
    settings: dict[str, object],
    rows: Observations | None = None,
) -> UnitModel:
    """Derive the units of a model from its rows.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        From `chosen_units`.
    settings : dict
        Arguments of `find_observations`.
    rows : Observations, optional
        The rows, where they have been found already.

    Raises
    ------
    UnsupportedModelError
        If the levels are not independent of each other.
    """
    is_free = all(model.rvs_to_transforms[model[name]] is None for name in names)
    if rows is None or not is_free:
        given = settings | {"allow_local": True}
        rows = find_observations(model, **given, unconstrained=names)  # type: ignore[arg-type]
    refuse_other_local(rows, names)
    return UnitModel.of(rows, factor_of(rows, names))


def refuse_other_local(rows: Observations, names: Sequence[str]) -> None:
    """Refuse variables with one value for each row that stay parameters.

    Raises
    ------
    UnsupportedModelError
    """
    others = sorted(set(rows.local) - set(names))
    if others:
        raise UnsupportedModelError(
            f"{others!r} have one value per observation, and cannot be integrated out together "
            f"with {list(names)!r}: integrate them out of the likelihood, or keep all of them "
            "(integrate=False, allow_local=True).",
            topic="local-latent-variables",
        )


def units_at(units: UnitModel, settings: UnitSettings) -> Observations:
    """Return the potentials of units as they were once before."""
    first, x = units.observations_at_zero, np.array(settings["at"])
    modes, every = UnitModes(units), LogLikelihood(first).in_memory.all
    places = modes.places(modes.at(first.space.constrain(x[None]).at(0), every))
    nodes, error = units.nodes(settings["n_each"]), settings["node_error"]
    return units.observations(nodes, *places, at=x, node_error=error)
