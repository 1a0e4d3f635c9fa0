"""The result: a few weighted rows, and the model in which they represent all of them."""

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.verdicts import Verdict
from pymc_coresets.display import as_html, as_text
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.predictive.leave_one_out import loo
from pymc_coresets.predictive.predictions import predict
from pymc_coresets.predictive.pymc_densities import verify
from pymc_coresets.predictive.stand_ins import StandIn, log_ratios
from pymc_coresets.reading.rewrite import (
    POTENTIAL,
    QUADRATIC,
    UNWEIGHTED,
    coreset_model,
)
from pymc_coresets.reading.user_model import (
    PUT_BACK,
    HeldModel,
    current_model,
    given_model,
    terms_of,
)
from pymc_coresets.results.reports import report
from pymc_coresets.results.summary import facts_of, summarise_rows
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.sampling import stand_in as shared
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.sampling.steps.starts import known_metric, without_nuts
from pymc_coresets.sampling.units import recovery
from pymc_coresets.storage import (
    GROUP,
    fields_with_model,
    stored_coreset,
    stored_dataset,
    stored_tree,
    write_netcdf,
)
from pymc_coresets.updates import new_rows, other_priors
from pymc_coresets.updates.coverage import Ancestry, caveat_of
from pymc_coresets.weighted_rows import (
    WeightedRows,
    chosen_rows,
    has_all_rows,
    require_all_rows,
    required_likelihood,
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
        from held-out draws if there are any; NaN for methods that make no estimate.
    random_seed : int or None
        The seed that it was built from, if that was a number.
    history : xarray.Dataset
        How the construction went, see Notes.
    settings : dict
        How the observations were found in the model: ``observed``, ``dim``, ``allow_local``.
    loglikelihood : LogLikelihood or None
        The potentials of all rows; None if the coreset was read from a file without its model.
    built_from : Fingerprints, optional
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
    about as much work as six draws each), ``n_not_finite`` (draws at which the log-likelihood of
    all rows is not finite) and ``n_reused`` (runs that were answered by earlier draws).
    `Sensitivity` adds what its guarantee rests on.

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
        if self.data is not None:
            raise CoresetError("Your model holds a template of rows: pm.set_data puts others in.")
        return required_likelihood(self).observations.held.unchanged(PUT_BACK)

    @property
    def rows(self) -> xr.Dataset:
        """The chosen rows: their weight and position; of ``rows=...`` also their data.

        If the coreset is made of units, all rows of each, with the level that they belong to.
        """
        if self.data is not None:
            return self.data
        chosen = chosen_rows(self)
        if not chosen.members:
            return xr.Dataset({"weight": ("row", self.weights), "position": ("row", self.indices)})
        sizes = chosen.members.sizes
        return xr.Dataset(
            {
                "weight": ("row", np.repeat(self.weights, sizes)),
                "position": ("row", chosen.members.positions),
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
    def _made(self) -> HeldModel:
        """The model, and what it held when it was made."""
        observations, quadratic = required_likelihood(self).observations, self.quadratic
        return HeldModel.of(
            coreset_model(observations, chosen_rows(self), self.weights, quadratic=quadratic)
        )

    @property
    def tolerance(self) -> float:
        """Symmetrised KL divergence that it was asked for, in nats; 0.01 by default."""
        return TOLERANCE if self.certificate is None else self.certificate.tolerance

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
    loo = loo
    predict = predict
    recover = recovery.recover
    report = report
    summary = summarise_rows
    importance_draws = shared.importance_draws
    with_model = other_priors.with_model
    extend = new_rows.extend

    @cached_property
    def stand_in(self) -> StandIn:
        """Representation of all rows in `model`.

        :meta private:
        """
        return StandIn(
            parts=(required_likelihood(self),),
            loglik=partial(self._posterior.loglik, finite=False),
            slopes=self._posterior.slopes,
            impossible=_IMPOSSIBLE,
            remedy=_REMEDY,
            earlier=self.earlier,
            has_all_rows=partial(has_all_rows, self),
            require_all_rows=partial(require_all_rows, self),
            groups={GROUP: stored_dataset(self)},
            modes=self.modes,
            tolerance=self.tolerance,
            n_products=self._posterior.n_products,
            caveat=caveat_of(self),
            certificate=self.certificate,
            known_start=self._known_start,
            complete=partial(recovery.completed, self),
            progressbar=self.progressbar,
        )

    @cached_property
    def _posterior(self) -> WeightedPosterior:
        loglik = required_likelihood(self)
        return WeightedPosterior(loglik, chosen_rows(self), self.weights, self.quadratic)

    @property
    def _is_changed(self) -> bool:
        """Whether data or terms of `model` have changed since the construction."""
        made, held = self._made, required_likelihood(self).observations.held
        known = {POTENTIAL, QUADRATIC, UNWEIGHTED, *held.terms}
        return (
            bool(made.changed)
            or terms_of(made.live) != made.terms
            or not known.issuperset(made.terms)
        )

    def _known_start(self, options: dict[str, Any], *, any_sampler: bool) -> dict[str, Any]:
        if not self.proposal or self._is_changed:
            return options
        drawn = None
        if any_sampler:
            drawn = without_nuts(self.model, self.proposal, self._posterior, options)
        return drawn or known_metric(self.model, self.proposal, self._posterior.space, options)

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
        executor: Any = None,  # noqa: ANN401 - of several libraries
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

    @property
    def _verdict(self) -> Verdict | None:
        return None if self.certificate is None else self.certificate.verdict

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._verdict, facts_of(self))

    def _repr_html_(self) -> str:
        return as_html(type(self).__name__, self._verdict, facts_of(self))

    __reduce__ = shared.pickled
    __copy__ = replace
