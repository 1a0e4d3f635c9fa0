"""Units of a user's model: which variables are integrated out."""

import math
from collections.abc import Sequence
from typing import Any, TypedDict

import pymc as pm
from pytensor.graph import graph_inputs

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.likelihood.terms import UNOBSERVED, imputed_names
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.units.factors import GroupingFactor, factor_of, options_to_keep
from pymc_coresets.reading.units.lookups import find_factors
from pymc_coresets.reading.units.nodes import has_rules
from pymc_coresets.reading.units.observations_of_units import UnitModel

#: Up to which choosing rows alone takes no longer than a quadratic.
FEW_DIMENSIONS = 24

_FEWEST_LEVELS = 250  # with fewer, the variables stay parameters
#: Levels for each other dimension, below which a coreset of them saves little; and those below
#: which hardly any dimensions are integrated out.
_ENOUGH, _LEAST = 20, 5
#: Rows of a level up to which its variables are far from normal, and of all levels up to which
#: chains evaluate them at all nodes in minutes.
_FEW_ROWS, _MOST_ROWS = 30, 2**16


class UnitSettings(TypedDict):
    """What was integrated out, and how; enough to repeat it."""

    names: list[str]
    rule: list[Any]  # see `Rule`
    n_modes: int
    at: list[float]
    node_error: float


def may_have_units(model: pm.Model) -> bool:
    """Whether a free variable is as long as a factor whose levels may be integrated out.

    Or whether it stands for missing values of a covariate, which are those of single rows.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", shape=1_000)
    >>> may_have_units(model)
    True
    """
    lengths = (n for shape in shapes_of(model.free_RVs) for n in shape)
    return max(lengths, default=0) >= _FEWEST_LEVELS or _has_holes(model)


def _has_holes(model: pm.Model) -> bool:
    """Whether more values are missing from covariates than parameters cost nothing."""
    missing = {rv for rv in model.free_RVs if str(rv.name).endswith(UNOBSERVED)}
    missing -= {model[name] for name in imputed_names(model)}
    return any(math.prod(shape) > FEW_DIMENSIONS for shape in shapes_of([*missing]))


def chosen_units(
    observations: Observations, asked: Sequence[str] | None = None, *, n_rows: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Choose the factor whose variables are integrated out.

    A smaller factor would leave more shared dimensions, for fewer levels.  The other choice is to
    keep all variables as parameters, which ``benchmarks.units --parameters`` measures.

    Parameters
    ----------
    observations : Observations
        Rows.
    asked : sequence of str, optional
        Variables that the user named.  By default, those of the largest factor of at least 250
        levels, if there are at least five times as many as a coreset needs. It needs one more than
        the D(D + 3)/2 coefficients of a quadratic in the D other dimensions; or 4 D, if D is above
        24 and a quadratic is used. Then 5 D levels are enough if these have fewer than 30 rows
        each, and not too many together: all are kept. Variables with one value per row, and missing
        values of covariates, are always integrated out, because rows cannot be left out otherwise.
    n_rows : int, optional
        Number of all rows, if the observations are those of prototypes.

    Returns
    -------
    names : tuple of str
        Empty if all variables stay parameters.
    reason : str
        Why those of many levels do; empty for others.

    Raises
    ------
    InvalidOptionError
        If the variables that the user named do not belong to one factor.
    """
    factors = find_factors(observations)
    if asked is not None:
        for _, names in factors:
            if set(asked) <= set(names):
                return tuple(name for name in names if name in asked), ""
        lengths = " in likelihoods of one length" if observations.sets else ""
        raise InvalidOptionError(
            f"integrate={list(asked)!r}: these are not variables of the levels of one factor, "
            f"which the rows see through its index alone{lengths}. Those that may be integrated "
            f"out are {[list(names) for _, names in factors]!r}. Missing values of a covariate are "
            "integrated out where rows see them in x, as in x = pm.Normal('x', ..., observed=a "
            "masked array); or in pm.math.where(is_missing, latent, known), with one latent value "
            "for every row, and a pm.Potential with the log-densities of the known ones."
        )
    if not factors:
        return (), ""
    n_levels, names = factors[0]
    n_dims = _n_dims(observations, factors[0])
    if not has_rules(n_dims):
        is_large = n_levels >= _FEWEST_LEVELS
        return (), why_too_many(observations, names, n_dims) if is_large else ""
    sizes = {name: math.prod(shape) for name, shape in observations.shapes.items()}
    n_shared = sum(n for name, n in sizes.items() if name not in names)
    is_few = n_shared <= FEW_DIMENSIONS  # above this, a quadratic is used
    enough = 5 * (n_shared * (n_shared + 3) // 2 + 1) if is_few else _ENOUGH * n_shared
    n_rows = observations.n_obs if n_rows is None else n_rows
    if n_rows < _FEW_ROWS * n_levels and keeps_all(n_levels, n_rows, n_shared):
        enough = _LEAST * n_shared
    missing = [name for name in names if name.endswith(UNOBSERVED)]
    must = bool(missing) or not set(names).isdisjoint(observations.local)
    if must or n_levels >= max(_FEWEST_LEVELS, enough):
        return names, ""
    if n_levels < _FEWEST_LEVELS:
        return (), ""
    return (), (
        f"{list(names)!r} remain parameters: {n_levels:,} levels are few beside {n_shared:,} other "
        f"free dimensions ({enough:,} would be many). With integrate={list(names)!r} they are "
        "integrated out all the same."
    )


def keeps_all(n_units: int, n_rows: int, n_shared: int) -> bool:
    """Whether units are so few for many shared variables that all of them cost no more than some.

    Chains take some 20,000 gradients.  At 65,000 rows and seven nodes these are minutes, and so is
    a quadratic for units, of which a coreset would keep most.

    Parameters
    ----------
    n_units, n_rows : int
        Number of units, and of their rows.
    n_shared : int
        Number of the other free dimensions.

    Examples
    --------
    >>> keeps_all(2_000, 50_000, 206), keeps_all(2_000, 100_000, 206), keeps_all(2_000, 50_000, 30)
    (True, False, False)
    """
    is_few = n_shared > FEW_DIMENSIONS and n_units <= _ENOUGH * n_shared
    return is_few and n_rows <= _MOST_ROWS


def _n_dims(observations: Observations, factor: tuple[int, tuple[str, ...]]) -> int:
    n_levels, names = factor
    total = sum(math.prod(observations.shapes[name]) for name in names)
    return max(1, total // n_levels)


def why_too_many(rows: Observations, names: Sequence[str], n_dims: int) -> str:
    """Return why variables of so many values for each level, more than six, stay parameters."""
    keep = options_to_keep(rows, names)
    return (
        f"{list(names)!r} have {n_dims} values for each level: too many to be integrated out (six "
        f"at most). Keep them as parameters ({keep}), or give each level a few values of which the "
        "others are weighted sums: rows may see (few @ weights)[level, time], with few of shape "
        f"(levels, 3) and constant weights of shape (3, {n_dims}), as for a walk of three steps "
        "with straight lines between them. That is another model."
    )


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
        The rows, if they have been found already.

    Raises
    ------
    UnsupportedModelError
        If the levels are not independent of each other, or nothing else is left to be sampled.
    """
    is_free = all(model.rvs_to_transforms[model[name]] is None for name in names)
    if rows is None or not is_free:
        given = settings | {"allow_local": True}
        rows = find_observations(model, **given, unconstrained=names)  # type: ignore[arg-type]
    refuse_other_local(rows, names)
    factor = factor_of(rows, names)
    _refuse_nothing_left(rows, factor)
    return UnitModel.of(rows, factor)


def _refuse_nothing_left(rows: Observations, factor: GroupingFactor) -> None:
    """Raise if no other free variable is in the likelihood, nor in the prior of the levels."""
    shared = [v for name, v in rows.parameters.items() if name not in factor.names]
    if set(graph_inputs([rows.loglik, *factor.reference])).isdisjoint(shared):
        raise UnsupportedModelError(
            f"No free variable is left in the likelihood if {list(factor.names)!r} are integrated "
            "out, so that there is no posterior to approximate. Levels are independent then: "
            "sample the model itself, or parts of it. Or give the mean or the scale of their prior "
            "a prior."
        )


def refuse_other_local(rows: Observations, names: Sequence[str]) -> None:
    """Raise for variables with one value per row that remain parameters.

    Raises
    ------
    UnsupportedModelError
    """
    others = sorted(set(rows.local) - set(names))
    if others:
        raise UnsupportedModelError(
            f"{others!r} have one value per observation, and cannot be integrated out together "
            f"with {list(names)!r}: integrate them out of the likelihood, or keep all of them "
            f"({options_to_keep(rows, others)}).",
            topic="local-latent-variables",
        )
