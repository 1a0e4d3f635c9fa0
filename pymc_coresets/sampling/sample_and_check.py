"""Operations on every approximate posterior: sample, check, and re-weight.

The functions take a result first, and are the methods of `Coreset` and `PolynomialSummary`.
"""

import math
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle
import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.deadline import doing, forecasts_to
from pymc_coresets.diagnostics.evaluated_draws import (
    FIRST_DRAWS,
    EvaluatedDraws,
    check_draws,
    note_doubts,
    resample_draws,
    wanted_ess,
)
from pymc_coresets.diagnostics.importance import MIN_DRAWS, MIN_PER_CHAIN, Floats
from pymc_coresets.diagnostics.judging import ENOUGH_ESS, Check, SecondOpinion
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.diagnostics.posterior_draws import (
    SAMPLE_DIMS,
    UNRELIABLE,
    Chains,
    draws_tree,
    evenly,
    posterior_dataset,
    require_own,
)
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.loops.density_loops import density_mode
from pymc_coresets.options import generator, if_given, whole_number
from pymc_coresets.predictive.approximate_posterior import HasApproximatePosterior
from pymc_coresets.predictive.forward import with_missing
from pymc_coresets.predictive.model_data import with_data
from pymc_coresets.predictive.pymc_densities import opinion_at
from pymc_coresets.progress import tell
from pymc_coresets.reading.draws import Draws, drawn_names
from pymc_coresets.reading.folding import NUMPY_MODE
from pymc_coresets.reading.graphs import parameter_inputs, shapes_of
from pymc_coresets.reading.rewrite import POTENTIAL
from pymc_coresets.rowlogp.rest import refuse_unweighted
from pymc_coresets.rows.memory import one_blas_thread
from pymc_coresets.sampling.probing import Probing, compared
from pymc_coresets.sampling.steps import nuts
from pymc_coresets.sampling.units.recovery import with_local
from pymc_coresets.sampling.units.stored_draws import StoredUnits, judged_units

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Draws at which PyMC's own log-densities are asked for.
_FEW = 8
MOST_RECORDED = 1_000
"""Number of rows above which deterministics and missing outcomes are drawn only if named."""


def sample(
    result: HasApproximatePosterior,
    *,
    nuts_sampler: nuts.NutsSampler | None = None,
    **kwargs: Any,  # noqa: ANN401
) -> xr.DataTree:
    """Sample the approximate posterior with `pm.sample`.

    Parameters
    ----------
    nuts_sampler : {"pymc", "nutpie", "numpyro", "blackjax"}, optional
        By default the first of these that serves, as the logger ``pymc_coresets`` says at level
        INFO.  Independence Metropolis-Hastings evaluates thousands of draws from around the mode at
        once, without tuning, if the posterior is close to normal (Pareto k-hat at most 0.7).  Split
        Hamiltonian Monte Carlo moves 64 chains at once, or 16 if the density is expensive, around
        the normal distribution that the construction found (see Notes).  Otherwise "pymc", which
        compiles in a few seconds: for several modes, funnels and thin curved ridges.  The others
        take ten or more, which pays only if trajectories are long, since the density is cheap.
        PyMC runs each chain of NUTS in its own process: if Python spawns processes (on Windows, and
        in Python 3.14 or newer) a script needs ``if __name__ == "__main__":``, or ``cores=1``.
    **kwargs
        Passed to `pm.sample`, with four chains by default, ``progressbar`` as in the build, and
        ``var_names`` without deterministics along more than 1,000 rows of an unreduced term.  A
        coreset's model has none along its own rows: `predict` computes them for all rows.  If the
        construction of a coreset found the covariance of the posterior, PyMC's NUTS uses it as
        metric: its chains start at draws from around the modes, and tune their step size for 300
        steps.  With ``init="jitter+adapt_diag"`` they start as in PyMC, and may find other modes,
        for which the coreset was not certified.

    Returns
    -------
    xarray.DataTree
        As from `pm.sample` for the model of all rows: ``observed_data`` and ``constant_data`` are
        the arrays of that model, not copies, if it holds all rows.  Missing outcomes, on which
        nothing depends, are not sampled but drawn afterwards, if there are at most 1,000; `predict`
        draws others.  Variables that were integrated out are drawn too, if their draws are fewer
        than 20 million numbers; otherwise a warning says how to get them.  A coreset adds its rows
        and weights as the group ``coreset``.

    Raises
    ------
    InvalidOptionError
        If ``return_inferencedata=False``, a ``model`` is passed, or `nuts_sampler`, ``draws``,
        ``tune``, ``chains``, ``cores`` or ``random_seed`` is out of range; or the package of
        the sampler is not installed.
    SamplingError
        If a chain cannot start.

    Notes
    -----
    The 64 chains start at draws of the construction, by their weights, and are tuned together.
    They run until R-hat of all of them is at most 1.01, for each coordinate and the log-density,
    and the effective sample size is at least half the number of draws that are asked for.  Each
    chain of the result consists of several of them, one after the other, from which evenly spread
    draws are kept.  So ArviZ's diagnostics remain valid: a chain that is stuck is a long
    autocorrelation within a chain of the result, and lowers the effective sample size.  ``tune`` is
    not needed.  Where they mix slowly, only as many go on as need not have more effective draws
    together than are wanted, 16 at least.  NUTS runs instead if the chains would not agree within
    three times what NUTS takes as a rule, or if more than one trajectory in a thousand diverges,
    however short the steps: from where the chains are, with the covariance of their draws.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=50, tune=50, chains=2, random_seed=1, progressbar=False)
    >>> idata["posterior"].sizes["draw"], idata["coreset"].sizes["row"]
    (50, 5)
    """
    any_sampler, found = nuts_sampler is None, result.approximation
    nuts_sampler = "pymc" if nuts_sampler is None else nuts_sampler
    own_options: nuts.SampleOptions = {"progressbar": found.progressbar}
    kwargs = own_options | nuts.sampling_options(nuts_sampler, kwargs)
    show = bool(kwargs["progressbar"])
    if nuts_sampler == "pymc" and kwargs.get("backend") is None:
        given = kwargs.get("compile_kwargs") or {}
        kwargs["compile_kwargs"] = {"mode": density_mode()} | given
        with one_blas_thread():
            kwargs = found.known_start(kwargs, any_sampler=any_sampler)
    if nuts_sampler in nuts.ON_JAX:
        given = kwargs.pop("nuts_sampler_kwargs", None) or kwargs.get("nuts") or {}
        kwargs["nuts"] = {"chain_method": "vectorized"} | dict(given)
    is_whole = kwargs.get("var_names") is None
    if is_whole:
        kwargs["var_names"] = recorded_names(result)
    if nuts_sampler == "pymc" and kwargs.get("trace") is None:
        own = result.model.free_RVs
        shapes = {str(rv.name): shape for rv, shape in zip(own, shapes_of(own), strict=True)}
        point = found.space.initial_point if shapes == found.free else None  # not if changed since
        n_draws = kwargs["chains"] * kwargs.get("draws", 1_000)
        kwargs["trace"] = nuts.SharedTrace.of(
            result.model, kwargs["var_names"], point, n_draws, step=kwargs.get("step")
        )
    with forecasts_to(partial(tell, show=show)), one_blas_thread():
        idata = nuts.sample_by_pymc(result.model, nuts_sampler=nuts_sampler, **kwargs)
    for name, dataset in found.groups.items():
        idata[name] = dataset
    if is_whole:
        rng = generator(kwargs.get("random_seed")).spawn(1)[0]
        idata = with_local(result, idata, rng, progressbar=show)
        idata = with_missing(idata, found, rng=rng, most=MOST_RECORDED)
    return with_data(idata, found)


def recorded_names(result: HasApproximatePosterior) -> list[str] | None:
    """Return the variables whose draws are kept; None for all."""
    lengths = {part.observations.n_obs for part in result.approximation.parts}
    return drawn_names(result.model, lengths, more_than=MOST_RECORDED)


def check(
    result: HasApproximatePosterior, idata: xr.DataTree, *, draws: int | None = None
) -> Check:
    """Assess the accuracy of draws, without sampling the full posterior.

    Costs one pass over the data for 400 draws and some points beyond them; for all draws if these
    do not clearly show that the posteriors hardly differ; none if the coreset has all rows.  Chains
    agree if R-hat is at most 1.01, and bulk and tail effective sample size at least 400 and 100 per
    chain: of the free variables, and of deterministics with at most 100 entries.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.  Those of variables that
        were integrated out are compared with their densities, if there are draws of all levels.
    draws : int, optional
        Evaluate exactly this many draws, evenly spread over the chains.  By default 400 are enough
        if the divergence plus two standard errors is within the tolerance, an error once in forty
        times for a divergence at the tolerance; otherwise all draws are evaluated.

    Returns
    -------
    Check
        Pareto k-hat, effective sample size, KL divergence, and a verdict in words.

    Raises
    ------
    InvalidDataError
        If the draws have no values of a variable, are impossible under the full data, are fewer
        than 30, are of another coreset, or are already corrected (from `reweight` or
        `importance_draws`).
    InvalidOptionError
        If `draws` is not a whole number of at least 30.

    Examples
    --------
    Thirty rows drawn at random do not give the posterior of 500:

    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=30, method="uniform", random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=800, tune=200, chains=2, random_seed=1, progressbar=False)
    >>> check = coreset.check(idata)
    >>> check.needs_reweighting, check.kl > 0.1
    (True, True)
    """
    draws = if_given(whole_number, "draws", draws, least=MIN_DRAWS)
    own = result.approximation
    idata = require_own(idata, "check()", own.groups)
    with (
        forecasts_to(partial(tell, show=own.progressbar)),
        doing("checking draws"),
        one_blas_thread(),
    ):
        return _checked(result, idata, draws)


def _checked(result: HasApproximatePosterior, idata: xr.DataTree, draws: int | None) -> Check:
    own = result.approximation
    chains = Chains(idata, own.free)
    first = max(draws or FIRST_DRAWS, MIN_PER_CHAIN * chains.n_chains)
    probing = Probing.of(own, Draws.of(chains.some(chains.spread(first)), own.free))
    evaluated: list[tuple[xr.DataTree, Floats]] = []

    def noted(some: xr.DataTree) -> tuple[Floats, Floats]:
        log_p, log_q = probing.log_densities(some)
        with np.errstate(invalid="ignore"):
            evaluated.append((some, log_p - log_q))
        return log_p, log_q

    found = check_draws(
        chains,
        noted,
        draws=draws,
        tolerance=own.tolerance,
        impossible=own.impossible,
    )
    every = Draws.of(chains.posterior, own.free)
    probes = probing.with_unseen(probing.result(), every, chains.n_chains)
    probes = compared(probes, own, every, chains.n_chains)
    found = replace(
        found,
        probes=probes,
        caveat=own.caveat or chains.too_coarse,
        node_error=own.parts[0].node_error,
        unreliable=chains.posterior.attrs.get(UNRELIABLE, ""),
    )
    if 0 < own.n_in_memory <= 1_000_000:
        found = replace(found, second_opinion=_opinion_at_few(result, *evaluated[0]))
    found = _with_units(found, judged_units(own.parts[0], chains.posterior))
    return found if own.modes is None else replace(found, modes=own.modes.seen_in(idata))


def _with_units(found: Check, units: StoredUnits) -> Check:
    """Add what is most wrong with draws of units' variables, if that is worse than others'."""
    if units.copies.share > found.copies.share:
        found = replace(found, copies=units.copies)
    probes, own = found.probes, units.deviation
    if units.constant and not probes.constant:
        probes = replace(probes, constant=units.constant)
    if own.size / own.limit > probes.misfit / probes.misfit_limit:
        probes = replace(probes, misfit=own.size, misfit_limit=own.limit, misfit_where=own.where)
    return replace(found, probes=probes)


def _opinion_at_few(
    result: HasApproximatePosterior, some: xr.DataTree, ratios: Floats
) -> SecondOpinion:
    """Return PyMC's opinion at a few of the draws that were evaluated."""
    n_chains, n_each = (some["posterior"].sizes[dim] for dim in SAMPLE_DIMS)
    few = evenly(np.arange(n_each), min(math.ceil(_FEW / n_chains), n_each))
    at_few = some["posterior"].to_dataset().isel(draw=few)
    of_few = ratios.reshape(n_chains, n_each)[:, few]
    return opinion_at(result, xr.DataTree.from_dict({"posterior": at_few}), of_few.ravel())


def reweight(
    result: HasApproximatePosterior,
    idata: xr.DataTree,
    *,
    ess: float = ENOUGH_ESS,
    draws: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    """Turn draws of the approximate posterior into draws of the full one, by resampling.

    Draws are repeated in proportion to their importance weights, for which all rows are
    evaluated: at all draws if this takes a few seconds (at most 10^9 log-likelihoods), and
    otherwise at enough draws for an effective sample size of 400.  A mean over the result then
    has a Monte Carlo standard error of 5 % of the posterior standard deviation.  Costs one
    pass over the data for 400 draws (or as many as are below that limit), and usually a second
    one for the rest; the attribute ``verdict`` reports how many were evaluated.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.
    ess : float, default 400
        Required effective sample size of the weighted draws: the standard error of a mean is
        the posterior standard deviation over its square root.  `math.inf` evaluates all draws.
    draws : int, optional
        Number of draws per chain in the result; by default, as many as were evaluated.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.DataTree
        The attributes of its group ``posterior`` are ``pareto_khat``, ``psis_ess`` (effective
        number of independent draws), ``n_evaluated`` (number of draws at which all rows were
        evaluated), a ``verdict`` in words, with its ``level`` and ``reason`` (see `Verdict`).

    Warns
    -----
    CoresetWarning
        If the weights are unreliable (Pareto k-hat) and the two posteriors differ noticeably,
        or the draws have not converged.

    Raises
    ------
    InvalidOptionError
        If `draws` is not a positive whole number, `ess` not positive, or `random_seed` is not a
        seed.
    InvalidDataError
        If the draws have no values of a variable, are impossible under the full data, are fewer
        than 30, are of another coreset, or are already corrected (from `reweight` or
        `importance_draws`).

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(
    ...         size=100, method="uniform", random_seed=1, progressbar=False
    ...     )
    >>> idata = coreset.sample(random_seed=1, progressbar=False)
    >>> corrected = coreset.reweight(idata, random_seed=1)
    >>> means = [tree["posterior"]["mu"].mean().item() for tree in (idata, corrected)]
    >>> errors = [abs(mean - x.sum() / 501) for mean in means]
    >>> bool(errors[1] < errors[0])
    True
    """
    rng = generator(random_seed)
    ess = wanted_ess(ess)
    draws = if_given(whole_number, "draws", draws, least=1)
    own = result.approximation
    idata = require_own(idata, "reweight()", own.groups)
    chains = Chains(idata, own.free)
    with (
        forecasts_to(partial(tell, show=own.progressbar)),
        doing("re-weighting draws"),
        one_blas_thread(),
    ):
        found = own.evaluated(chains, ess)
    drawn = resample_draws(chains, found, rng=rng, draws=draws, remedy=own.remedy)
    note_doubts(drawn, own.doubts(idata))
    return with_data(drawn, own)


class HasProposal(HasApproximatePosterior, Protocol):
    """A coreset, with the weighted draws of its construction."""

    @property
    def proposal(self) -> Proposal[Draws] | None:
        """These draws, if there are any."""


def importance_draws(
    coreset: HasProposal,
    draws: int | None = None,
    *,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    """Return draws of the full posterior from the build, resampled by importance weights.

    They need no sampler, and do not depend on the chosen rows: ``method="auto"`` draws from around
    the mode of the posterior of all rows, and evaluates all rows there.  If Pareto k-hat is below
    0.7, the resampled draws follow the full posterior, which is enough if it is close to normal.
    Use `sample` for more draws.  Control variates instead resample the draws that certified the
    coreset, which come from its own posterior; so does ``"auto"``, if only their weights are
    reliable.

    Parameters
    ----------
    draws : int, optional
        Number of draws; by default, as many as were evaluated.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.DataTree
        One chain, with the data that `sample` adds.  The attributes of its group ``posterior`` are
        ``pareto_khat`` and ``psis_ess`` (effective number of independent draws).

    Raises
    ------
    CoresetError
        If there are none: by another method, without a mode, or for other data or priors than
        those of the build; or `draws` is not a positive whole number, or `random_seed` not a seed.

    Warns
    -----
    CoresetWarning
        If the weights are unreliable.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=5_000)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> bool(abs(idata["posterior"]["mu"].mean() - x.mean()) < 0.005)
    True
    """
    rng = generator(random_seed)
    draws = if_given(whole_number, "draws", draws, least=1)
    if coreset.proposal is None:
        raise CoresetError(
            "There are no importance draws: methods 'auto' and 'control_variates' make them, where "
            "the posterior has a mode; they are lost with other variables or data, and with files "
            "for other priors. Use sample()."
        )
    model = coreset.model
    idata = coreset.proposal.draws.to_datatree(dims=model.named_vars_to_dims, coords=model.coords)
    names = recorded_names(coreset)
    posterior = idata["posterior"].to_dataset()
    computed = [v.name for v in model.deterministics if names is None or v.name in names]
    if computed:
        posterior = posterior.merge(
            pm.compute_deterministics(
                posterior,
                var_names=computed,
                model=model,
                progressbar=False,
                compile_kwargs={"mode": NUMPY_MODE},
            )
        )
    found = resample_draws(
        Chains(idata.assign(posterior=xr.DataTree(posterior))),
        EvaluatedDraws.at_all(coreset.proposal.log_ratios[None]),
        rng=rng,
        draws=draws,
        remedy="Use sample().",
        independent=True,
    )
    note_doubts(found, coreset.approximation.doubts(found))
    found = with_missing(found, coreset.approximation, rng=rng, most=MOST_RECORDED)
    return with_data(found, coreset.approximation)


def with_log_densities(result: HasApproximatePosterior, idata: xr.DataTree) -> xr.DataTree:
    """Add log-densities of prior and likelihood, from which ArviZ computes their influence.

    `arviz.psense` and `arviz.psense_summary` show how the posterior changes if the prior, or the
    likelihood of all rows, is raised to a power near one.  The approximate likelihood is used: no
    pass over the data is needed.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample`, `reweight` or `pm.sample`.

    Returns
    -------
    xarray.DataTree
        The draws with the groups ``log_prior``, as from `pm.stats.compute_log_prior`, and
        ``log_likelihood``: ``coreset_loglik``, one number per draw for all rows, in nats up to
        a constant, and the observed variables that are not reduced.

    Raises
    ------
    InvalidDataError
        If the draws have no values of a variable.
    UnsupportedModelError
        If a part of the log-likelihood belongs to no row.

    Notes
    -----
    Power-scaling by alpha weights the draws by ``exp((alpha - 1) L)``.  The error of L enters
    with the factor ``alpha - 1``, which is a hundredth in ArviZ.  The group is not enough for
    `arviz.loo`, since it has no value per row: call `loo`.

    References
    ----------
    Kallioinen, Paananen, Bürkner, Vehtari (2024). Detecting and diagnosing prior and likelihood
    sensitivity with power-scaling. https://doi.org/10.1007/s11222-023-10366-5

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=5_000)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.with_log_densities(coreset.importance_draws(random_seed=1))
    >>> az.psense_summary(idata).loc["mu", "diagnosis"]
    '✓'
    """
    for part in result.approximation.parts:
        refuse_unweighted(part.observations)
    model, idata = result.model, draws_tree(idata)
    values = result.approximation.replacement.loglik(idata)
    posterior = posterior_dataset(idata, "idata")
    shapes = {name: v.type.shape for name, v in parameter_inputs(model).items()}
    Draws.of(posterior, shapes)  # its error names missing variables
    values = values.reshape([posterior.sizes[dim] for dim in SAMPLE_DIMS])
    labels = {dim: posterior[dim] for dim in SAMPLE_DIMS}
    likelihood = xr.Dataset({POTENTIAL: (SAMPLE_DIMS, values)}, labels)
    quietly = {"extend_inferencedata": False, "progressbar": False}
    if model.observed_RVs:
        others = pm.stats.compute_log_likelihood(idata, model=model, **quietly)
        likelihood = likelihood.merge(others)
    groups = {
        "log_prior": pm.stats.compute_log_prior(idata, model=model, **quietly),
        "log_likelihood": likelihood,
    }
    found: xr.DataTree = idata.assign({n: xr.DataTree(group) for n, group in groups.items()})
    return found


def pickled(result: "DataclassInstance") -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the state for pickles and deep copies: the fields, without compiled functions.

    PyMC's models need cloudpickle, which is used for everything.
    """
    state = {field.name: getattr(result, field.name) for field in fields(result)}
    return _restored, (type(result), cloudpickle.dumps(state))


def _restored[T](kind: type[T], state: bytes) -> T:
    return kind(**pickle.loads(state))
