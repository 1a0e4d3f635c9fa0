"""A coreset under other priors, and with new rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.potentials.from_rows import RowsToRead
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.updates.extended_rows import ExtendedRows
from pymc_coresets.updates.new_rows import with_new_rows
from pymc_coresets.updates.other_priors import under_other_priors
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

__all__ = ["extend", "has_all_rows", "require_all_rows", "with_model"]


def with_model[C: WeightedRows](coreset: C, model: pm.Model) -> C:
    """Return the same rows and weights under other priors, without a new construction.

    A coreset approximates the likelihood, which other priors do not change.  But its rows were
    chosen where the old posterior is: sample the result and `check` the draws, which compares
    them with all rows at the new posterior.  Costs a comparison of the two likelihoods at eight
    points, for all rows where they lie in memory; the old certificate, importance draws and
    metric are dropped.

    Parameters
    ----------
    model : pm.Model
        With the same likelihood and data (a template of them, where the coreset was built from
        ``rows=...``).  Priors may differ, and may depend on further variables.

    Returns
    -------
    Coreset
        Its `objective` is NaN: nothing was measured under these priors yet.

    Raises
    ------
    InvalidDataError
        If the likelihood depends on other variables, its data differ, or it has other values
        at random points in any row; with the row and what differs.
    CoresetError
        If the coreset was read without its model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=5_000)
    >>> def normal(prior_sd):
    ...     with pm.Model() as model:
    ...         y = pm.Normal("y", pm.Normal("mu", 0, prior_sd), 1.0, observed=x)
    ...     return model
    >>> coreset = build_coreset(normal(1.0), random_seed=1, progressbar=False)
    >>> narrow = coreset.with_model(normal(0.01))
    >>> idata = narrow.sample(draws=200, tune=200, chains=2, random_seed=1, progressbar=False)
    >>> narrow.check(idata).needs_reweighting
    False
    """
    return replace(coreset, **under_other_priors(coreset, model))


def extend[C: WeightedRows](
    coreset: C,
    model: pm.Model,
    *,
    rows: RowSource | None = None,
    executor: Any = None,  # noqa: ANN401 - of several libraries
    size: int | None = None,
    method: str | RiemannianPursuit | ControlVariates = "auto",
    random_seed: int | np.random.Generator | None = None,
) -> C:
    """Return a coreset of all rows so far and of new ones; the old data are not needed.

    The weighted rows of this coreset, in place of the data that they stand for, and all new
    rows are what the construction sees.  It costs that of a coreset of the new rows.  Where
    rows come in many small chunks use `CoresetStream`.

    Parameters
    ----------
    model : pm.Model
        The model of this coreset with the new rows in its `pymc.Data` containers, and none of
        the old ones; with `rows`, a template of them.
    rows : RowSource, optional
        From `open_rows`: all new rows, where the model holds a few of them only.  Control
        variates read all of them into memory.
    executor : Executor or Client, optional
        Who reads and evaluates `rows`, see `build_coreset`.
    size : int, optional
        Largest number of weighted rows; by default that of `build_coreset`.
    method : {"auto", "control_variates"} or RiemannianPursuit or ControlVariates
        How rows are chosen.  "auto" is pursuit; for a coreset with a quadratic it is control
        variates: its quadratic is kept as it is, and one of the new rows is added.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    Coreset
        Its rows are numbered as if the new ones came after the old ones.  `objective`,
        `certificate` and `check` are exact for the new rows; for the others they are relative
        to this coreset.  `ancestry` has the divergence of each step, and all combined.

    Raises
    ------
    InvalidDataError
        If the model has other free variables, priors, containers or another likelihood, or
        its linear predictor is written in other coefficients than the quadratic.
    InvalidOptionError
        If an option is out of range, or the method does not go with a quadratic.
    UnsupportedModelError
        If the rows are no data containers of the model, or cells of several dims.
    CoresetError
        If the coreset was read without its model.

    Warns
    -----
    CoresetWarning
        If something limits the coreset, as `build_coreset` does, or the new rows begin with
        some that it stands for already.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> def normal(rows):
    ...     with pm.Model() as model:
    ...         y = pm.Data("y", rows)
    ...         likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    ...     return model
    >>> months = np.random.default_rng(1).normal(size=(2, 3_000))
    >>> coreset = build_coreset(normal(months[0]), random_seed=1, progressbar=False)
    >>> longer = coreset.extend(normal(months[1]), random_seed=1)
    >>> longer.n_observations, longer.ancestry.rows, longer.ancestry.combined < 0.01
    (6000, (3000, 3000), True)
    """
    wanted = RowsToRead(rows=rows, executor=executor)
    changed = with_new_rows(
        coreset, model, wanted, size=size, method=method, random_seed=random_seed
    )
    return replace(coreset, **changed)


def has_all_rows(coreset: WeightedRows) -> bool:
    """Whether the posterior of a coreset is that of all rows."""
    loglik = required_likelihood(coreset)
    gone = isinstance(loglik.source, ExtendedRows)
    if gone or loglik.n_rows != len(coreset.indices):
        return False
    every = loglik.all_rows
    pairs = [(every.positions, coreset.indices), (every.base_weights, coreset.weights)]
    if coreset.data is not None:
        pairs += zip(every.arrays, chosen_rows(coreset).arrays, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def require_all_rows(coreset: WeightedRows) -> None:
    """Refuse where some of the rows that a coreset stands for are gone."""
    source = required_likelihood(coreset).source
    if isinstance(source, ExtendedRows):
        source.refuse_single_rows()
