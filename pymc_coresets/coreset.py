"""The result: a few weighted rows, and the model in which they represent all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_coresets.ancestry import Ancestry, caveat_of
from pymc_coresets.diagnostics.elpd import ElpdOfAllRows
from pymc_coresets.diagnostics.judging import ENOUGH_ESS
from pymc_coresets.display import as_html, as_text
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.optional import module_of
from pymc_coresets.predictive.approximate_posterior import (
    ApproximatePosterior,
    HasApproximatePosterior,
    log_ratios,
)
from pymc_coresets.predictive.pymc_densities import verify
from pymc_coresets.reading.rewrite import (
    POTENTIAL,
    QUADRATIC,
    UNWEIGHTED,
    coreset_model,
)
from pymc_coresets.reading.user_model import (
    PUT_BACK,
    ModelSnapshot,
    current_model,
    given_model,
    terms_of,
)
from pymc_coresets.results.facts import facts_of
from pymc_coresets.results.reports import report
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.sampling import sample_and_check as shared
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.sampling.steps.nuts import SampleOptions
from pymc_coresets.sampling.steps.starts import better_start, known_metric
from pymc_coresets.sampling.units import recovery
from pymc_coresets.storage import (
    GROUP,
    fields_with_model,
    stored_coreset,
    stored_dataset,
    stored_tree,
    write_netcdf,
)
from pymc_coresets.weighted_rows import (
    WeightedRows,
    chosen_rows,
    has_all_rows,
    holds_rows,
    loglik_of_earlier,
    lost_levels,
    require_all_rows,
    required_likelihood,
    verdict_of,
)

_IMPOSSIBLE = (
    "the KL divergence is infinite, and the coreset is not to be used. The likelihood's support "
    "depends on its parameters; a few rows cannot stand for that."
)
_REMEDY = "Build a larger coreset."


class Coreset(WeightedRows):
    """Weighted rows whose posterior is close to that of all rows; made by `build_coreset`.

    Parameters
    ----------
    indices : ndarray of int64, of shape (size,)
        Positions along the observation axis of the user's own data, sorted and unique.
    weights : ndarray of float64, of shape (size,)
        Positive; ``weights[i]`` multiplies the log-likelihood of row ``indices[i]``.
    n_observations : int
        Number of rows that the coreset represents.
    n_distinct : int
        How many of them are distinct, where identical rows were merged (``collapse=True``).
    method, weighting : str
        The method that chose the weights, and the weighting distribution that it used.
    status : str
        A sentence that says why the method stopped.
    objective : float
        The method's own estimate of the symmetrised KL divergence from the full posterior, in nats,
        from held-out draws if there are any; NaN for methods that make no estimate.  With a fixed
        weighting distribution it is that at draws of the latter, and `check` may find much more.
    random_seed : int or None
        The seed that it was built from, if that was a number.
    history : xarray.Dataset
        How the construction went, see Notes.
    settings : dict
        How the observations were found in the model: ``observed``, ``dim``, ``allow_local``.
    loglikelihood : LogLikelihood or None
        The log-likelihoods of all rows; None if the coreset was read from a file without its model.
    built_from : Digests, optional
        Digests of the data that it was built from, if the coreset was read from a file.
    proposal : Proposal, optional
        Draws from around the mode of the full posterior, see `importance_draws`.
    certificate : Certificate, optional
        Diagnostics from the last pass over the data in the construction, at held-out draws of the
        coreset's posterior; None for methods other than ``"auto"``.
    modes : Modes, optional
        Modes of the full posterior that a search found; None without a search.
    quadratic : Quadratic, optional
        Quadratic that represents all rows together with the weighted ones, from `ControlVariates`.
    earlier : Quadratic, optional
        That of the coreset which `extend` was called on: `check` adds it to its rows.
    data : xarray.Dataset, optional
        The chosen rows with their data, if they come from ``rows=...``, see `rows`.
    progressbar : bool, default True
        Default of `sample`, `predict` and `extend`, as in the build.

    Notes
    -----
    `history` has one entry along the dimension ``step`` for the start and for each step (of
    ``method="auto"``: for each coreset that was measured), and none for methods that draw rows at
    random.  Its variables:

    ==================  =======================================================================
    size                rows with positive weight
    objective           nats: ``|L - L(w)|^2`` on the draws that chose the weights
    heldout_objective   nats: the same on held-out draws; nan if there are none
    seconds             wall time since the method's start
    pareto_khat         shape of the tail of the importance ratios, full posterior over coreset's
    kl                  nats: KL(coreset || full), by these ratios
    reverse_kl          nats: KL(full || coreset); nan if the tail is too heavy
    n_passes            passes over all rows so far
    n_evaluations       log-likelihoods so far, each of one row at one draw
    seconds_drawing     wall time so far in the sampler
    seconds_evaluating  wall time so far in log-likelihoods
    ==================  =======================================================================

    The last seven are nan or 0 for methods that do not draw from the coreset's posterior.  The
    attributes hold the wall time of each part in seconds (``seconds rounds``, ...) and counts:
    ``n_sampler_runs``, ``n_sampler_draws``, ``n_corrected_laplace`` (runs that were answered by
    corrected Laplace draws), ``n_divergences``, ``n_failed_starts``, ``n_gradients`` (of all rows,
    about as much work as six draws each) and ``n_not_finite`` (draws at which the log-likelihood of
    all rows is not finite).  `Sensitivity` adds what its guarantee rests on.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> coreset.size, float(coreset.weights.sum())
    (5, 500.0)
    """

    @property
    def size(self) -> int:
        """Number of weighted rows."""
        return len(self.indices)

    @property
    def full_model(self) -> pm.Model:
        """The user's model, unless `pm.set_data` has put other data into it since."""
        if holds_rows(self):
            raise CoresetError(
                "Your model does not hold the rows: it has prototypes, or others. pm.set_data "
                "puts rows into it."
            )
        return required_likelihood(self).observations.snapshot.unchanged(PUT_BACK)

    @property
    def rows(self) -> xr.Dataset:
        """The chosen rows: their weight and position; of ``rows=...`` also their data.

        If the coreset is made of units, all rows of each, with the level that they belong to.
        """
        if self.data is not None:
            return self.data
        chosen = chosen_rows(self)
        if not required_likelihood(self).observations.integrated:
            return xr.Dataset({"weight": ("row", self.weights), "position": ("row", self.indices)})
        sizes = chosen.unit_rows.sizes
        return xr.Dataset(
            {
                "weight": ("row", np.repeat(self.weights, sizes)),
                "position": ("row", chosen.unit_rows.positions),
                "level": ("row", np.repeat(self.indices, sizes)),
            }
        )

    @property
    def model(self) -> pm.Model:
        """A plain PyMC model with a weighted `Potential` in place of the likelihood of all rows.

        With `quadratic`, a second one, ``coreset_quadratic``, stands for the other rows.
        """
        return self._made.live

    @cached_property
    def _made(self) -> ModelSnapshot:
        """The model, and what it held when it was made."""
        observations, quadratic = required_likelihood(self).observations, self.quadratic
        return ModelSnapshot.of(
            coreset_model(observations, chosen_rows(self), self.weights, quadratic=quadratic)
        )

    @property
    def ancestry(self) -> Ancestry:
        """Rows that each construction read, and how far each was off, since `extend` was used."""
        return Ancestry.of(self.history.attrs, self.n_observations, self.objective)

    # -- what can be done with it: functions of the rooms below, which say what they do ------------

    sample = shared.sample
    check = shared.check
    reweight = shared.reweight
    with_log_densities = shared.with_log_densities
    log_ratios = log_ratios
    verify = verify
    recover = recovery.recover
    report = report
    importance_draws = shared.importance_draws

    # -- what rooms on top add, which may be missing: see `optional` -------------------------------

    def loo(
        self: HasApproximatePosterior,
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
        up to twice as many rows as `observations` at the same draws, about 1 ms for each; and one
        to three passes for each row, of ten at most, that differs too much from the others for
        importance weights.  Memory: some 70 bytes per row of the data.

        Parameters
        ----------
        idata : xarray.DataTree
            Draws of the approximate posterior, from `sample` or `pm.sample`.
        ess : float, default 400
            Effective sample size of the draws, weighted by the full posterior, that is enough;
            `math.inf` evaluates all draws.
        observations : int, optional
            How many rows, drawn at random, are left out one by one; None for all.  Up to as many
            rows of large influence are left out besides.  The others contribute by a surrogate.
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
            If `observations` is not a whole number of at least 2, `ess` not positive, or
            `random_seed` not a seed.
        InvalidDataError
            If the draws lack a variable, are impossible under the full data, fewer than 30, or
            those of `reweight` or `importance_draws`, which are corrected already.

        Warns
        -----
        CoresetWarning
            If Pareto k-hat of a row that was left out is too large, even if the elpd of the row
            could be computed without these weights; or few draws count once they are corrected to
            the full posterior.

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
        room = module_of("after.leave_one_out", user="loo()")
        found: ElpdOfAllRows = room.loo(
            self, idata, ess=ess, observations=observations, random_seed=random_seed
        )
        return found

    def predict(  # noqa: PLR0913 - the options of what users know from PyMC
        self: HasApproximatePosterior,
        idata: xr.DataTree,
        *,
        rows: RowSource | Mapping[str, object] | None = None,
        model: pm.Model | None = None,
        kind: Literal["mean", "draws"] = "mean",
        draws: int | None = None,
        to: Callable[[xr.Dataset], object] | None = None,
        var_names: str | Sequence[str] | None = None,
        random_seed: int | np.random.Generator | None = None,
        progressbar: bool | None = None,
    ) -> xr.DataTree:
        """Predict all rows, or new ones, in blocks.

        The result is that of `pymc.sample_posterior_predictive`.  Costs one random value, or one
        mean, for each row and draw, which NumPy computes, and compiled loops where there are 10^8
        means or more; blocks of 32,768 rows or more by one thread for each core.  Memory: that of
        the result, or some 400 MB with `to`.

        Parameters
        ----------
        idata : xarray.DataTree
            Draws of the posterior, from `sample`, `reweight` or `pm.sample`.
        rows : RowSource or mapping of str to array_like, optional
            New rows: what each `pymc.Data` of the model holds for them, by its name.  The observed
            values are not needed.  By default all rows that the posterior is of.
        model : pm.Model, optional
            Another model with the same free variables; by default yours.  Entries are matched by
            their labels, and those of new levels are drawn from their distribution given the other
            variables.  Of variables that were integrated out, only its levels are drawn: for a few
            of many users, give a model whose coords have these alone.
        kind : {"mean", "draws"}, default "mean"
            The expectation of each variable, or its draws.
        draws : int, optional
            Take that many draws, evenly spread over the chains, and as many of each; all by
            default.
        to : callable, optional
            Called with each block of the results in place of keeping them: the group's Dataset for
            all rows and some draws of each chain where your model holds the rows, and for some rows
            and all draws if they lie elsewhere.
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
            has put other data into your model since, which `rows` lacks; `model` takes it as it is
            now.
        InvalidOptionError
            If an option is out of range, rows lack a column, a variable has no mean, or the result
            does not fit into 8 GiB of memory.
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
        room = module_of("after.predictions", user="predict()")
        found: xr.DataTree = room.predict(
            self,
            idata,
            rows=rows,
            model=model,
            kind=kind,
            draws=draws,
            to=to,
            var_names=var_names,
            random_seed=random_seed,
            progressbar=progressbar,
        )
        return found

    def summary(self, columns: str | Sequence[str] | None = None) -> pd.DataFrame:
        """Compare the chosen rows with all rows, without their weights and with them.

        Each quantity is computed three times: for all rows, for the chosen rows without their
        weights, and with them.  The chosen rows alone are often extreme, because such rows
        determine the parameters best. With their weights they come closer to all rows, but need not
        match them, least of all if a quadratic represents most of the data: the weights match the
        log-likelihood.

        Costs one pass over the data; rows elsewhere (``rows=...``) are read once.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Which columns to summarise; an array with several numbers for each row is one name.  By
            default all: the data containers along the observation dimension (also those that the
            likelihood does not use), the observed values, other arrays with one entry for each row,
            the indices by which variables are looked up, and the dimensions of cells.

        Returns
        -------
        pandas.DataFrame
            Of floats, printed with as many digits as each needs.  Its columns are ``all``,
            ``chosen`` and ``weighted``, and its index has two levels, ``part`` and ``quantity``:

            ===================  ==================================================================
            rows                 ``number``; ``distinct``, where equal rows were merged;
                                 ``effective``: ``(sum w)^2 / sum w^2``, as many rows of equal
                                 weights
            largest weights      the five rows of the largest weights
            (name of a column)   ``mean``, ``sd``, ``min``, ``max``; of a column of levels, or of
                                 whole numbers in a range of 20, ``levels`` (that have rows), ``in
                                 these levels`` (rows in levels of which a row was chosen), and the
                                 rows of each level, if there are at most 20
            ===================  ==================================================================

            Numbers of rows are sums of weights in the column ``weighted``.  ``all`` is NaN where
            all rows are out of reach, as after `merge` or reading without ``rows=...``.  Missing
            values are left out.

        Raises
        ------
        InvalidOptionError
            If there is no column of a name.
        CoresetError
            If the coreset was read without its model.

        Notes
        -----
        The effective number is that of Kish (1965), *Survey Sampling*.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_coreset
        >>> x = np.arange(500.0)
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
        ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
        >>> table = coreset.summary()
        >>> table.loc[("rows", "number")].tolist()
        [500.0, 5.0, 500.0]
        >>> float(table.loc[("y", "mean"), "all"])
        249.5
        """
        room = module_of("after.summary", user="summary()")
        found: pd.DataFrame = room.summarise_rows(self, columns)
        return found

    def with_model(self, model: pm.Model) -> Self:
        """Return the same rows and weights under other priors, without a new construction.

        A coreset approximates the likelihood, which other priors do not change. But its rows were
        chosen for the old posterior: sample the result and `check` the draws against all rows. The
        two likelihoods are compared at eight points, for all rows if they are in memory. If the
        free variables are the same, importance draws are re-weighted, and `sample` uses them as
        before instead of NUTS. The old certificate is dropped.

        Parameters
        ----------
        model : pm.Model
            With the same likelihood and data, or prototype rows if the coreset was built from
            ``rows=...``, extended or merged.  Priors may differ, and may depend on further
            variables.

        Returns
        -------
        Coreset
            Its `objective` is NaN, because no divergence has been measured under these priors.

        Raises
        ------
        InvalidDataError
            If the likelihood depends on other variables, its data differ, or its values at random
            points differ for any row; the message names the row and the difference.
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
        room = module_of("growth.other_priors", user="with_model()")
        found: Self = room.with_model(self, model)
        return found

    def extend(
        self,
        model: pm.Model,
        *,
        rows: RowSource | None = None,
        executor: HasSubmit | None = None,
        size: int | None = None,
        method: Literal["auto", "control_variates"] | RiemannianPursuit | ControlVariates = "auto",
        random_seed: int | np.random.Generator | None = None,
        progressbar: bool | None = None,
    ) -> Self:
        """Return a coreset of all old rows and new ones; the old data are not needed.

        The construction reads all new rows, and the weighted rows of this coreset in place of the
        old data. It costs as much as a coreset of the new rows. For many small chunks use
        `CoresetStream`.

        If variables of levels were integrated out, the new rows are those of further levels, and
        whole levels are added. The model has the dimension of the levels with the labels of the new
        ones; levels that come again are refused. `sample` and `recover` draw the variables of new
        levels and of old ones that had weight: the rows of all others are gone.

        Parameters
        ----------
        model : pm.Model
            The model of this coreset with the new rows in its `pymc.Data` containers, and none of
            the old ones; with `rows`, prototypes of them.
        rows : RowSource, optional
            All new rows, from `open_rows`, if the model holds prototypes. Control variates read all
            of them into memory.
        executor : Executor or Client, optional
            Reads and evaluates `rows`, see `build_coreset`.
        size : int, optional
            Largest number of weighted rows; by default that of `build_coreset`.
        method : {"auto", "control_variates"} or RiemannianPursuit or ControlVariates
            How rows are chosen. "auto" is pursuit; for a coreset with a quadratic it is control
            variates: the old quadratic is kept, and a quadratic of the new rows is added.
        random_seed : int or Generator, optional
            The result is reproducible from it.
        progressbar : bool, optional
            By default as in the build.

        Returns
        -------
        Coreset
            Positions continue: new rows are numbered after the old ones. `objective`, `certificate`
            and `check` are exact for the new rows; for the others they are relative to this
            coreset. `ancestry` has the divergence of each step, and all combined.

        Raises
        ------
        InvalidDataError
            If the model has other free variables, priors, containers or another likelihood, its
            linear predictor has other coefficients than the quadratic, or levels come again.
        InvalidOptionError
            If an option is out of range, or the method does not go with a quadratic.
        UnsupportedModelError
            If the rows are not data containers of the model, or are cells of several dims; if
            levels have no labels.
        CoresetError
            If the coreset was read without its model.

        Warns
        -----
        CoresetWarning
            If something limits the coreset, as in `build_coreset`; if the new rows begin with rows
            that it represents already; or if they move the posterior so far that its error is
            unknown.

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
        room = module_of("growth.new_rows", user="extend()")
        found: Self = room.extend(
            self,
            model,
            rows=rows,
            executor=executor,
            size=size,
            method=method,
            random_seed=random_seed,
            progressbar=progressbar,
        )
        return found

    # -- what all of these go by -------------------------------------------------------------------

    @cached_property
    def approximation(self) -> ApproximatePosterior:
        """Representation of all rows in `model`.

        :meta private:
        """
        return ApproximatePosterior(
            parts=(required_likelihood(self),),
            replacement=self._posterior,
            impossible=_IMPOSSIBLE,
            remedy=_REMEDY,
            of_earlier=partial(loglik_of_earlier, self),
            has_all_rows=partial(has_all_rows, self),
            require_all_rows=partial(require_all_rows, self),
            groups={GROUP: stored_dataset(self)},
            modes=self.modes,
            tolerance=self.tolerance,
            caveat=caveat_of(self),
            certificate=self.certificate,
            known_start=self._known_start,
            complete=partial(recovery.completed, self),
            progressbar=self.progressbar,
            lost=lost_levels(self),
        )

    @cached_property
    def _posterior(self) -> Surrogate:
        loglik = required_likelihood(self)
        return Surrogate(loglik, chosen_rows(self), self.weights, self.quadratic)

    @property
    def _is_changed(self) -> bool:
        """Whether data or terms of `model` have changed since the construction."""
        made, snapshot = self._made, required_likelihood(self).observations.snapshot
        known = {POTENTIAL, QUADRATIC, UNWEIGHTED, *snapshot.terms}
        return (
            bool(made.changed)
            or terms_of(made.live) != made.terms
            or not known.issuperset(made.terms)
        )

    def _known_start(self, options: SampleOptions, *, any_sampler: bool) -> dict[str, object]:
        if not self.proposal or self._is_changed:
            return options
        found = None
        if any_sampler:
            found = better_start(self.model, self.proposal, self._posterior, options)
        return found or known_metric(self.model, self.proposal, self._posterior.space, options)

    # -- storage -------------------------------------------------------------------------------

    def to_datatree(self) -> xr.DataTree:
        """Return rows, weights, history and settings as a DataTree, without the model.

        It has the groups ``coreset`` and ``history``; ``rows`` for those of ``rows=...``;
        ``quadratic`` and ``proposal`` if there is one; and ``modes`` and ``modes_sds`` where
        modes were looked for.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_coreset
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(500.0) / 500)
        ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
        >>> list(coreset.to_datatree().children)
        ['coreset', 'history']
        """
        return stored_tree(self)

    def to_netcdf(self, path: str | Path) -> None:
        """Write the coreset to a NetCDF file, without the model.

        The file appears only when it is complete, and `from_netcdf` notices any later change to
        it.  It also holds digests of the model's data, for which the data are read once.

        Parameters
        ----------
        path : str or Path
            A file of this name is replaced, at once.

        Raises
        ------
        InvalidOptionError
            If h5netcdf is not installed (``pip install "pymc-coresets[netcdf]"``), or the file
            cannot be written: it is a folder, a pipe or a device, or the disk is full.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import Coreset, build_coreset
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(500.0) / 500)
        ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     coreset.to_netcdf(f"{folder}/coreset.nc")
        ...     same = Coreset.from_netcdf(f"{folder}/coreset.nc", model)
        >>> same.size, same.full_model is model
        (5, True)
        """
        write_netcdf(self.to_datatree(), path)

    @classmethod
    def from_netcdf(
        cls,
        path: str | Path,
        model: pm.Model | None = None,
        *,
        rows: RowSource | None = None,
        executor: HasSubmit | None = None,
    ) -> Self:
        """Read a coreset from a file; pass the model to sample or check it.

        Parameters
        ----------
        path : str or Path
            A file written by `to_netcdf`.
        model : pm.Model, optional
            The full model; by default that of the context.  Without any, the coreset has its
            indices, weights and history, but can neither be sampled nor checked.
        rows : RowSource, optional
            The rows that it was built from, if any.  Without them it cannot be checked.
        executor : Executor or Client, optional
            Reads and evaluates these rows from now on, see `build_coreset`.

        Returns
        -------
        Coreset

        Raises
        ------
        InvalidDataError
            If the file is missing, damaged, or no coreset's; or if the model has another number
            of observations, other free variables, another likelihood, or other data in the
            coreset's rows.
        InvalidOptionError
            If `model` is not a model, `executor` is of an unknown kind, or h5netcdf is not
            installed.

        Warns
        -----
        CoresetWarning
            If the model's data in the other rows have changed: the coreset was chosen for the
            old data, while `check` compares it with the new.  Or if its priors have: then there is
            no certificate any more.

        Examples
        --------
        >>> Coreset.from_netcdf("nowhere.nc")
        Traceback (most recent call last):
        pymc_coresets.exceptions.InvalidDataError: nowhere.nc cannot be read: [Errno 2] No such file
        or directory: 'nowhere.nc'. (docs: troubleshooting#coresets-in-files)
        """
        model = current_model() if model is None else given_model(model)
        stored = stored_coreset(path)
        if model is None:
            return cls(**stored, loglikelihood=None)
        return cls(**fields_with_model(stored, model, rows, executor))

    # -- display and copies ------------------------------------------------------------------------

    def __repr__(self) -> str:
        return as_text(type(self).__name__, verdict_of(self), facts_of(self))

    def _repr_html_(self) -> str:
        return as_html(type(self).__name__, verdict_of(self), facts_of(self))

    __reduce__ = shared.pickled
    __copy__ = replace
