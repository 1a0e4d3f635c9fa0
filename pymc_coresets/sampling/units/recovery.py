"""Draws of the variables that were integrated out, given those of the shared variables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, draws_tree
from pymc_coresets.exceptions import InvalidOptionError, warn_user
from pymc_coresets.options import generator, names_of
from pymc_coresets.predictive.stand_ins import HasStandIn
from pymc_coresets.sampling.units.local_variables import PROPOSALS, LocalVariables

_LEVELS = 2_000  # that are summarised at once
_LARGE = 2**30  # bytes of a result that is announced
BY_ITSELF = 200_000_000
"""Bytes of draws of these variables up to which `sample` adds them by itself."""
_TERMS_BY_ITSELF = 250_000_000  # that these draws cost at most: some ten seconds of one core


def recover(
    result: HasStandIn,
    idata: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    *,
    levels: Sequence[Any] | None = None,
    summary: bool = False,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    """Draw the variables that were integrated out, given draws of the shared variables.

    For each draw theta_s, the variables of a level are drawn from ``p(z_g | theta_s, y_g)``, which
    depends on the level's own rows alone: with `sample`'s draws of theta, these are draws of the
    joint posterior.  Costs about 16 evaluations of the rows of these levels for each draw.  Memory:
    that of the result.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the shared variables, from `sample` or `reweight`.
    var_names : str or sequence of str, optional
        Variables that were integrated out, and deterministics that are computed from them; by
        default all of both but deterministics along the rows and, with `levels` or `summary`, those
        that are computed from several levels at once, as a mean of all is.
    levels : sequence, optional
        Labels of some levels, or their numbers if the dimension has no labels.
    summary : bool, default False
        Return mean, standard deviation and quantiles (3 %, 50 %, 97 %) over the draws of each
        level, in place of the draws, with the dimension ``statistic``.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.Dataset
        With the names, dims and coords that `pm.sample` gives.  The attribute ``ess_of_proposals``
        says how many of the 12 proposals for each value count, on average: far fewer say that
        levels have several modes or heavy tails.

    Raises
    ------
    InvalidOptionError
        If nothing was integrated out, a name or a level is unknown, or a variable that is named
        needs levels that are not drawn together.
    InvalidDataError
        If the draws lack a variable.

    Warns
    -----
    CoresetWarning
        Before a result of more than 1 GB.

    Notes
    -----
    Importance resampling from Student t distributions of eight degrees of freedom around the mode
    and with the curvature of each level, at each draw.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> rng = np.random.default_rng(1)
    >>> user = np.repeat(np.arange(2_000), 3)
    >>> y = rng.poisson(np.exp(rng.normal(1.0, 0.5, size=2_000)[user]))
    >>> with pm.Model(coords={"user": np.arange(2_000)}):
    ...     mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
    ...     level = pm.Normal("level", mean, sd, dims="user")
    ...     seen = pm.Poisson("seen", pm.math.exp(level[user]), observed=y)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> few = coreset.recover(idata, levels=[0, 7], random_seed=1)
    >>> few["level"].sizes["user"], few["level"].dims
    (2, ('chain', 'draw', 'user'))
    """
    loglik = result.stand_in.parts[0]
    if loglik.observations.units is None:
        raise InvalidOptionError(
            "Nothing was integrated out of this model: its draws have all free variables."
        )
    local = LocalVariables(loglik)
    given = names_of("var_names", var_names)
    every = local.names if levels is None and not summary else local.of_single_levels
    names = every if given is None else [given] if isinstance(given, str) else given
    if unknown := sorted(set(names) - set(local.names)):
        raise InvalidOptionError(
            f"var_names={unknown!r}: {local.names!r} were integrated out, or are computed from "
            "what was."
        )
    if mixed := sorted(set(names) - set(every)):
        raise InvalidOptionError(
            f"var_names={mixed!r}: a value is computed from several levels at once. Draw all of "
            "them (without levels=... and summary=True)."
        )
    which = local.numbers_of(levels)
    posterior = draws_tree(idata)["posterior"].to_dataset()
    n_bytes = local.n_bytes(names, posterior, len(which))
    if n_bytes > _LARGE and not summary:
        warn_user(
            f"The draws of {names!r} take {n_bytes / 1e9:.1f} GB. Name some levels "
            "(levels=...), or ask for summary=True."
        )
    rng = generator(random_seed)
    if not summary:
        return local.drawn(posterior, names, which, rng)
    parts = [
        _summarised(local.drawn(posterior, names, which[i : i + _LEVELS], rng))
        for i in range(0, len(which), _LEVELS)
    ]
    joined = [xr.concat([part[n] for part in parts], dim=local.level_dim(n)) for n in names]
    return xr.merge(joined).assign_attrs(parts[0].attrs)


def _summarised(draws: xr.Dataset) -> xr.Dataset:
    """Return mean, sd and quantiles over the draws."""
    parts = {
        "mean": draws.mean(SAMPLE_DIMS),
        "sd": draws.std(SAMPLE_DIMS),
        **{
            name: draws.quantile(q, SAMPLE_DIMS).drop_vars("quantile")
            for name, q in {"q3": 0.03, "median": 0.5, "q97": 0.97}.items()
        },
    }
    joined: xr.Dataset = xr.concat(list(parts.values()), dim="statistic")
    return joined.assign_coords(statistic=list(parts)).assign_attrs(draws.attrs)


def with_local(result: HasStandIn, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Add draws of variables that were integrated out, where they are neither large nor dear.

    The attribute ``integrated`` of the posterior names what is left out.
    """
    loglik = result.stand_in.parts[0]
    units = loglik.observations.units
    if units is None:
        return idata
    local, posterior = LocalVariables(loglik), idata["posterior"].to_dataset()
    n_bytes = local.n_bytes(local.names, posterior, len(local.numbers_of(None)))
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    n_terms = n_draws * PROPOSALS * len(units.positions)
    if n_bytes > BY_ITSELF or n_terms > _TERMS_BY_ITSELF:
        return idata.assign(posterior=xr.DataTree(posterior.assign_attrs(integrated=local.names)))
    return completed(result, idata, rng)


def completed(result: HasStandIn, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Add draws of the variables that were integrated out, if they are missing."""
    observations, posterior = result.stand_in.parts[0].observations, idata["posterior"].to_dataset()
    if observations.units is None or set(observations.integrated) <= set(posterior.data_vars):
        return idata
    found = recover(result, idata, random_seed=rng)
    return idata.assign(posterior=xr.DataTree(posterior.merge(found, compat="override")))
