"""What can be said of all rows from draws of a posterior that a few of them gave."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.diagnostics.evaluated_draws import ENOUGH_ESS, wanted_ess
from pymc_coresets.diagnostics.opinion import SecondOpinion
from pymc_coresets.diagnostics.posterior_draws import (
    draws_tree,
    posterior_dataset,
    require_own,
    thinned,
)
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import flag, generator, names_of, one_of, whole_number
from pymc_coresets.predictive import pymc_densities
from pymc_coresets.predictive.forward import forward_graphs, predicted_names
from pymc_coresets.predictive.leave_one_out import ElpdOfAllRows, elpd_of_rows
from pymc_coresets.predictive.model_data import FilledModel, fill_with, used_by_value
from pymc_coresets.predictive.predictions import Predictions, with_missing
from pymc_coresets.predictive.stand_ins import HasStandIn, StandIn, log_ratios
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.likelihood.template import row_dims
from pymc_coresets.reading.user_model import HeldModel, copy_with_rows, given_model
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.row_source import RowSource

type Kind = Literal["mean", "draws"]

_CHANGED = (
    "To predict with these, pass model=... too, your model, perhaps with rows=...; to predict the "
    "rows of the coreset, put the old data back."
)


def verify(result: HasStandIn, idata: xr.DataTree, *, draws: int = 30) -> SecondOpinion:
    """Ask PyMC's own log-densities of both models how far the posteriors differ.

    A second opinion: `check` goes by log-likelihoods that the package derives from the model,
    and asks for this opinion at a few draws, where the model holds no more than a million rows.
    Costs one evaluation of the full model by NumPy for each draw; rows elsewhere are read once.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.
    draws : int, default 30
        At how many draws, evenly spread over the chains.

    Returns
    -------
    SecondOpinion
        Both estimates of the divergence, and by how much the log-ratios differ.

    Raises
    ------
    UnsupportedModelError
        If they differ noticeably.
    InvalidDataError
        If the draws lack a variable, are impossible under the full data, or are another
        coreset's.
    InvalidOptionError
        If `draws` is not a whole number of at least 2, or the rows lie in several models.
    CoresetError
        If not all rows are within reach.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=50, tune=50, chains=2, random_seed=1, progressbar=False)
    >>> coreset.verify(idata).difference < 1e-8
    True
    """
    own = result.stand_in
    draws = whole_number("draws", draws, least=2)
    idata = require_own(idata, "verify()", own.groups)
    some = thinned(idata, draws)
    ratios = log_ratios(result, some).ravel()
    base = own.parts[0].observations
    space = base.space
    with np.errstate(divide="ignore", over="ignore"):  # for draws that were rounded to a border
        shared = Draws.of(some, base.shapes)
        points = [space.point(x) for x in space.free(shared)]
    if base.units is not None:
        [of_own] = pymc_densities.log_densities_at([result.model], points)
        return pymc_densities.opinion_of_units(own.parts[0], shared, points, of_own, ratios)
    copy = copy_with_rows(base.model, {})
    filled = _filled_with_own(own, copy)
    if filled is None:
        of_full, of_own = pymc_densities.log_densities_at([base.model, result.model], points)
    else:
        names = [term.name for term in base.terms]
        of_full = pymc_densities.log_densities_of_all_rows(filled, points, names)
        [of_own] = pymc_densities.log_densities_at([result.model], points)
    return pymc_densities.second_opinion(of_full, of_own, ratios, slack=own.parts[0].slack)


def loo(
    result: HasStandIn,
    idata: xr.DataTree,
    *,
    ess: float = ENOUGH_ESS,
    observations: int | None = 1_000,
    random_seed: int | np.random.Generator | None = None,
) -> ElpdOfAllRows:
    """Estimate the leave-one-out predictive density (elpd) of all rows, not of the few.

    All rows are evaluated at as many draws as `reweight` evaluates: all where this takes some
    seconds, and elsewhere as many as are worth 400 independent ones; the result states the
    Monte Carlo error.  Costs one or two passes over the data for these draws, one for 64, and
    `observations` rows at the same draws, about 1 ms for each.  Memory: some 40 bytes per row
    of the data.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.
    ess : float, default 400
        Effective sample size of the draws, weighted by the full posterior, that is enough;
        `math.inf` evaluates all draws.
    observations : int, optional
        How many rows, drawn at random, are left out one by one; None for all.  The others
        contribute by a surrogate.
    random_seed : int or Generator, optional
        Decides which.  The same seed gives the same rows for every model of the data, so that
        `arviz.compare` compares them pair by pair.

    Returns
    -------
    ElpdOfAllRows
        An `arviz.ELPDData`, with standard errors apart: `subsampling_se`, `mcse` and `se`.

    Raises
    ------
    InvalidOptionError
        If `observations` is not a whole number of at least 2, `ess` not positive, or `random_seed`
        not a seed.
    InvalidDataError
        If the draws lack a variable, are impossible under the full data, fewer than 30, or
        those of `reweight` or `importance_draws`, which are corrected already.

    Warns
    -----
    CoresetWarning
        If Pareto k-hat of a row that was left out is too large, or few draws count once they
        are corrected to the full posterior.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=100, tune=100, chains=2, random_seed=1, progressbar=False)
    >>> coreset.loo(idata, observations=100, random_seed=1).n_data_points
    500
    """
    own = result.stand_in
    if observations is not None:
        observations = whole_number("observations", observations, least=2)
    ess, key = wanted_ess(ess), random_key(generator(random_seed))
    own.require_all_rows()
    idata = require_own(idata, "loo()", own.groups)
    evaluated = own.evaluated(idata, ess)
    draws = Draws.of(evaluated.of(idata), own.free)
    return elpd_of_rows(
        own.parts, draws, evaluated, observations=observations, key=key, remedy=own.remedy
    )


def predict(  # noqa: PLR0913 - the options of what users know from PyMC
    result: HasStandIn,
    idata: xr.DataTree,
    *,
    rows: RowSource | Mapping[str, Any] | None = None,
    model: pm.Model | None = None,
    kind: Kind = "mean",
    draws: int | None = None,
    to: Callable[[xr.Dataset], object] | None = None,
    var_names: str | Sequence[str] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> xr.DataTree:
    """Predict all rows, or new ones, as `pymc.sample_posterior_predictive` does, but in blocks.

    Costs one random value, or one mean, for each row and draw, which NumPy computes, and compiled
    loops where there are 10^8 means or more; blocks of 32 768 rows or more by one thread for each
    core.  Memory: that of the result, or some 400 MB with `to`.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the posterior, from `sample`, `reweight` or `pm.sample`.
    rows : RowSource or mapping of str to array_like, optional
        New rows: what each `pymc.Data` of the model holds for them, by its name.  The observed
        values are not needed.  By default all rows that the posterior is of.
    model : pm.Model, optional
        Another model with the same free variables; by default yours.
    kind : {"mean", "draws"}, default "mean"
        The expectation of each variable, or its draws.
    draws : int, optional
        Take that many draws, evenly spread over the chains, and as many of each; all by
        default.
    to : callable, optional
        Called with each block of the results in place of keeping them: the group's Dataset for all
        rows and some draws of each chain where your model holds the rows, and for some rows and all
        draws where they lie elsewhere.
    var_names : str or sequence of str, optional
        Observed variables or deterministics; by default the observed variables.
    random_seed : int or Generator, optional
        The result is reproducible from it, with any number of threads.
    progressbar : bool, optional
        By default as in the build.

    Returns
    -------
    xarray.DataTree
        With the group ``posterior_predictive``, and what was observed as ``observed_data``; the
        group is ``predictions`` where `rows` or `model` is given.  Without groups with `to`.

    Raises
    ------
    InvalidDataError
        If the draws lack a free variable of the model, rows cannot be used, or `pm.set_data`
        has put other data into your model since, which `rows` lacks; `model` takes it as it is now.
    InvalidOptionError
        If an option is out of range, rows lack a column, a variable has no mean, or the result does
        not fit into 8 GiB of memory.
    UnsupportedModelError
        If the model cannot hold other rows than its own.

    Notes
    -----
    The mean is that of ``E[y_n | theta_s]`` over the draws, for distributions whose mean PyMC
    knows; for others, predictive draws are averaged.  The attribute ``averaged`` says which.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> rng = np.random.default_rng(1)
    >>> t = rng.normal(size=500)
    >>> with pm.Model():
    ...     x = pm.Data("x", t, dims="obs")
    ...     slope = pm.Normal("slope")
    ...     y = pm.Normal("y", slope * x, 1.0, observed=rng.normal(2 * t), dims="obs")
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> new = {"x": np.array([0.0, 10.0])}
    >>> found = coreset.predict(idata, rows=new, progressbar=False)
    >>> found["predictions"]["y"].round(0).values
    array([ 0., 20.])
    """
    own = result.stand_in
    means = one_of("kind", kind, ["mean", "draws"]) == "mean"
    names = names_of("var_names", var_names)
    if names == []:
        raise InvalidOptionError("var_names=[]: name a variable to predict, or leave it out.")
    _require_function(to)
    rng = generator(random_seed)
    key = random_key(rng)
    show = own.progressbar if progressbar is None else flag("progressbar", progressbar)
    if draws is not None:
        idata = thinned(idata, whole_number("draws", draws, least=1))
    idata = draws_tree(idata)
    if model is None:
        idata = with_missing(own.complete(idata, rng), own, rng=rng)
    posterior = posterior_dataset(idata, "idata")
    its_own = rows is None and model is None
    held = own.parts[0].observations.held
    if its_own:
        held.unchanged(_CHANGED)
    copy = copy_with_rows(held.whole if model is None else given_model(model), {})
    names = [names] if isinstance(names, str) else names or predicted_names(copy)
    graphs = forward_graphs(copy, names, means=means)
    filled = None
    if rows is not None:
        rows = rows if isinstance(rows, RowSource) else open_rows(rows)
        if model is None:
            _require_unchanged(held, copy, graphs, rows.columns)
        filled = fill_with(copy, rows, graphs)
    elif its_own:
        filled = _filled_with_own(own, copy)
    wanted = Predictions(
        model=copy, graphs=graphs, posterior=posterior, key=key, means=means, filled=filled
    )
    if to is not None:
        for block in wanted.blocks(progressbar=show):
            to(block)
        return xr.DataTree()
    found, observed = wanted.in_memory(progressbar=show, observed=its_own)
    groups = {"posterior_predictive": found, "observed_data": observed}
    groups = {n: g for n, g in groups.items() if g.data_vars} if its_own else {"predictions": found}
    return xr.DataTree.from_dict(groups)


def _require_function(to: object) -> None:
    if to is not None and not callable(to):
        raise InvalidOptionError(
            f"to={to!r} must be a function: it is called with each block of the predictions, an "
            "xarray.Dataset, and may append it to a Zarr store."
        )


def _require_unchanged(
    held: HeldModel, copy: pm.Model, graphs: Mapping[str, Variable], columns: Collection[str]
) -> None:
    """Refuse where other data than those in new rows have changed, and matter."""
    others = set(held.changed).difference(columns, row_dims(copy, columns))
    used = used_by_value(copy, graphs)
    if any(name not in copy.named_vars or copy[name] in used for name in others):
        held.unchanged(_CHANGED)


def _filled_with_own(own: StandIn, copy: pm.Model) -> FilledModel | None:
    """Prepare a copy of the model for all rows; None where it holds them already."""
    if len(own.parts) > 1:
        raise InvalidOptionError(
            "The rows of summaries that were added lie in several models: predict those of one "
            "with model=..., or new ones with rows=..."
        )
    own.require_all_rows()
    [loglik] = own.parts
    template = loglik.observations.template
    if template is None:
        return None
    columns = tuple(row.name for row in loglik.observations.rows)
    others = tuple(name for name in template.values if name not in columns)
    return FilledModel(copy, loglik.source, columns, others)
