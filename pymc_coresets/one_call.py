"""One call for all steps: build a coreset, sample it, check the draws, and correct them."""

import json
import logging
import math
import time
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any, Literal, get_args

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.advice import FEW_PER_DIMENSION
from pymc_coresets.build import (
    Construction,
    build_coreset,
    preparing,
    requested,
    with_rows_inside,
)
from pymc_coresets.coreset import Coreset
from pymc_coresets.deadline import doing, forecast, forecasts_to, until
from pymc_coresets.diagnostics.importance import MIN_DRAWS
from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.diagnostics.posterior_draws import draws_tree
from pymc_coresets.diagnostics.verdicts import Level, Reason, Verdict
from pymc_coresets.exceptions import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    OutOfTimeError,
    SamplingError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.glm.given_scales.exact_draws import drawn_given_scales, has_scales, may_be_normal
from pymc_coresets.methods.exact_or_uniform import Exact
from pymc_coresets.options import flag, generator, if_given, one_of, positive_number, whole_number
from pymc_coresets.predictive.model_data import data_groups
from pymc_coresets.progress import Reporter, tell
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.request import Request
from pymc_coresets.results.facts import size_in_words
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import Densities
from pymc_coresets.rowlogp.of_model import full_model, likelihood_of_model
from pymc_coresets.rowlogp.units import FEW_DIMENSIONS
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.memory import InMemoryRows, one_blas_thread
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.sampling.certified_draws.around_mode import AroundMode, drawn_around_mode
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.nuts import NutsSampler
from pymc_coresets.storage import (
    GROUP,
    NO_CORESET,
    fields_of_groups,
    fields_with_model,
    stored_tree,
)

_NOT_DRAWN = (
    "Variables along the rows are not in the result. Draw them with "
    "pymc_coresets.coreset_of(idata, model).predict"
)
#: Share of a time_budget for the construction; the rest is for draws and their check.
_TO_BUILD = 0.8
#: Share of that for draws that make it unnecessary, if the posterior is normal given a few scales.
_TO_TRY = 0.5
#: Rows up to which they are tried for few dimensions: all are evaluated at a thousand draws.
_FEW_ROWS = 500_000
#: Seconds that each free dimension of a draw takes, from the construction to the check, and rows of
#: each dimension from which on few draws need the check.
_PER_NUMBER, _MANY_PER_DIMENSION = 1.3e-5, 100
#: Rows up to which `pm.sample` takes all of them unasked, if no coreset serves.
_FEW_ROWS_FOR_NUTS = 10_000
#: What NUTS does not mend, and does not tell.
_OF_MODES = {Reason.SEPARATE_MODES, Reason.UNSEEN_MODE}
_UNCHECKED, _UNWEIGHED = (
    Verdict.starting(
        Level.DOUBTFUL,
        Reason.UNFINISHED,
        f"the time_budget was used up before these draws were {done}. Allow more seconds, or call "
        f"pymc_coresets.coreset_of(idata).{method}(idata).",
    )
    for done, method in (("checked", "check"), ("re-weighted, as they must be", "reweight"))
)
_NO_DRAWS = (
    "before there were draws. Allow more seconds, or sample the model itself "
    "(on_failure='nuts'); pymc_coresets.build_coreset returns the coreset."
)

#: Attributes of draws without a coreset, for `coreset_of`: the options, and log-densities by which
#: the model is known again.
_OPTIONS, _DENSITIES = "coreset_options", "coreset_densities"
_SOME_ROWS = 20  #: Rows of which there are such.

_log = logging.getLogger(__name__)

#: What to do if no coreset serves.
type OnFailure = Literal["warn", "raise", "nuts"]


@dataclass(frozen=True)
class _Answer:
    """Draws, and what is said of them.

    Parameters
    ----------
    idata : xarray.DataTree
    source : str
        Description of the distribution that they are from.
    verdict : Verdict
    divergence : float, default inf
        Symmetrised KL divergence of the sampled distribution from the full posterior, in nats.
    certificate : Certificate, optional
        What the draws say of the coreset.
    """

    idata: xr.DataTree
    source: str
    verdict: Verdict
    divergence: float = math.inf
    certificate: Certificate | None = None


def sample(
    model: object = None,
    *,
    draws: int = 1_000,
    chains: int = 4,
    random_seed: int | np.random.Generator | None = None,
    tolerance: float | None = None,
    time_budget: float | None = None,
    on_failure: OnFailure = "warn",
    nuts_sampler: NutsSampler | None = None,
    **build_options: object,
) -> xr.DataTree:
    """Sample a model by a coreset: build it, sample it, check the draws, and correct them.

    Use it in place of `pm.sample` for models with many rows.  It does what `build_coreset`,
    `Coreset.sample` and `Coreset.check` do, one after the other, and `Coreset.reweight` where the
    check says that this is needed and enough.  One line says at the end what was done, and how far
    to trust it: where progress is shown, and otherwise in the log, at the level INFO.  The time is
    mostly that of the build, and memory that of all draws; the check reads all rows once more, and
    each correction once or twice.

    Parameters
    ----------
    model : pm.Model, optional
        Or an object that holds one, see `build_coreset`. By default that of the context.
    draws : int, default 1000
        Draws of each chain, at least 30.  Where evaluating all rows at all of them takes long,
        re-weighted draws are fewer.
    chains : int, default 4
        Number of chains.
    random_seed : int or Generator, optional
        The result is reproducible from it.  The coreset is that of `build_coreset` with this seed.
    tolerance : float, optional
        See `build_coreset`.
    time_budget : float, optional
        Seconds for all that is done with a coreset, of which the construction may take four fifths.
        Then it ends, at the next block of rows or step, with what there is: a coreset of a larger
        divergence, fewer draws, or draws that were not checked, and each of these is said.  If
        there are no draws, it raises.  A `pm.sample` of all rows (``on_failure="nuts"``) begins
        after that, and takes the time that it needs.
    on_failure : {"warn", "raise", "nuts"}, default "warn"
        What to do if no coreset serves: the model is refused, a coreset does not pay, it could
        not be sampled, its ``time_budget`` ended before there was one, or the check says that its
        draws cannot stand for the full posterior.  ``"warn"`` returns the draws that there are,
        with a warning; if there are none, it raises the error that says why.  But up to 10,000 rows
        are left to `pm.sample` then, unless several modes are the reason, there is a
        ``time_budget``, or an option asks for a certain coreset.  ``"raise"`` always raises.
        ``"nuts"`` calls `pm.sample` for all rows instead, with messages before and after; it
        refuses ``rows=...``, of which the model holds a few.
    nuts_sampler : {"pymc", "nutpie", "numpyro", "blackjax"}, optional
        NUTS implementation where `pm.sample` takes all rows; by default the one that it chooses.
    **build_options
        Passed on to `build_coreset`.  ``progressbar`` holds for the draws as well.

    Returns
    -------
    xarray.DataTree
        With the groups that `pm.sample` returns for the model of all rows: ``posterior``,
        ``sample_stats`` and, if the model holds all rows, ``observed_data`` and
        ``constant_data``.  From the group ``coreset``, `coreset_of` makes the coreset.  Its
        attributes are given in the Notes.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.
    CoresetError
        If no coreset serves, see `on_failure`; as `build_coreset` raises it, if that refuses
        the model.

    Warns
    -----
    CoresetWarning
        If no coreset serves, see `on_failure`, unless rows are few; and as `build_coreset` does.

    Notes
    -----
    Attributes of the result:

    =================  ============================================================================
    verdict            how far to trust the draws, in words
    level, reason      the same for programs, see `Verdict`: "Reliable", "Doubtful" or "Not to be
                       used", or "Not judged" where `pm.sample` took all rows; and what decided
    divergence         nats: symmetrised KL divergence of the coreset's posterior from that of all
                       rows, at most, before any correction; 0 where no coreset was needed, or
                       `pm.sample` took all rows
    pareto_khat        shape of the tail of the weights; of re-weighted draws only
    psis_ess           how many independent draws they are worth; of re-weighted draws only, of
                       which ArviZ does not know that they repeat themselves
    coreset_options    how `coreset_of` builds a coreset, where none was needed
    seconds_build      wall time of the construction,
    seconds_sample     of sampling, by `pm.sample` of all rows too if that was needed,
    seconds_check      and of the check, with the correction if there was one
    =================  ============================================================================

    The posterior has all variables that `pm.sample` returns, except deterministics along the rows,
    and missing outcomes if there are more than 1,000.  These are named by its attribute
    ``not_drawn`` and by a line that gives the call that computes them.

    Re-weighted draws are corrected already: `Coreset.check` and `Coreset.reweight` refuse them.

    For more than 24 free dimensions, and for hierarchies of fewer with up to 500,000 rows, it is
    tested first whether the posterior is normal given at most eight scales, as that of a linear
    mixed model with normal outcomes is.  Then scales are drawn from around the mode of their
    marginal posterior, with importance weights, and all other variables exactly, given the scales.
    That takes a decomposition of the others' precision for each draw; where this takes long, the
    draws are worth 400 independent ones at least, and otherwise a thousand, or nearly as many as
    are returned if that takes a second or two more.

    For 25 to 150 free dimensions, draws from around the mode of the full posterior are tried first,
    if that is proven to be log-concave.  A quadratic and rows beside it would take longer.  These
    draws are returned, resampled by their importance weights, if Pareto k-hat is below its limit,
    they are worth a thousand independent draws (of few rows, they are worth more), and lines lead
    to nothing beyond them.  Both have no group ``coreset``, and no ``sample_stats``; `coreset_of`
    builds a coreset then.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> import pymc_coresets as pmc
    >>> x = np.random.default_rng(1).normal(size=2_000)
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     idata = pmc.sample(random_seed=1, progressbar=False)
    >>> idata["posterior"].sizes["draw"], idata["coreset"].sizes["row"]
    (1000, 2)
    >>> idata.attrs["level"], idata.attrs["divergence"] < 0.01
    ('Reliable', True)
    """
    one_of("on_failure", on_failure, get_args(OnFailure.__value__))
    if_given(one_of, "nuts_sampler", nuts_sampler, choices=get_args(NutsSampler.__value__))
    sizes = {
        "draws": whole_number("draws", draws, least=MIN_DRAWS),
        "chains": whole_number("chains", chains, least=1),
    }
    elsewhere = build_options.get("rows") is not None
    if on_failure == "nuts" and elsewhere:
        raise InvalidOptionError(
            "on_failure='nuts': PyMC samples the rows that the model holds, and rows=... are "
            "others. Use 'warn' or 'raise'."
        )
    _refuse_unknown(build_options)
    show = flag("progressbar", build_options.get("progressbar", True))
    full, rng = full_model(model), generator(random_seed)
    build_options |= {"tolerance": tolerance, "random_seed": rng}
    deadline, is_limited = math.inf, time_budget is not None
    if time_budget is not None:
        time_budget = positive_number("time_budget", time_budget)
        deadline = time.perf_counter() + time_budget
        build_options["time_budget"] = _TO_BUILD * time_budget
    with (
        Reporter(show=False) as report,
        forecasts_to(partial(tell, show=show)),
        one_blas_thread(),
    ):
        request = requested(full, **build_options)
        is_small = on_failure != "raise" and not is_limited and _is_small(request)
        try:
            with report.part("build"):
                few = is_small and _has_few_rows(request)
                built = _built(request, math.prod(sizes.values()), with_all_units=not few)
            number = int(random_seed) if isinstance(random_seed, int | np.integer) else None
            with until(deadline, _NO_DRAWS):
                if isinstance(built, AroundMode):
                    drawn = _of_mode(built, sizes, rng, report)
                    drawn.idata.attrs[_OPTIONS] = _on_request(build_options, number)
                    drawn.idata.attrs[_DENSITIES] = _densities(built.loglikelihood).text
                else:
                    drawn = _of_coreset(replace(built, random_seed=number), sizes, rng, report)
            failure = "" if drawn.verdict.level.reliable else drawn.verdict.text
            is_small &= drawn.verdict.reason not in _OF_MODES
            takes_all = bool(failure) and (is_small or on_failure == "nuts")
        except (UnsupportedModelError, SamplingError, OutOfTimeError) as error:
            failure, takes_all = error.message, on_failure == "nuts" or is_small
            if not takes_all:
                raise
        if takes_all:
            own: dict[str, object] = {"random_seed": rng, "progressbar": show}
            own |= {} if nuts_sampler is None else {"nuts_sampler": nuts_sampler}
            limit = ", without a limit of time" if is_limited else ""
            tell(f"pm.sample takes all rows now{limit}. {failure}", show=show)
            with report.part("sample"):
                drawn = _of_all_rows(full, own | sizes, failure)
        elif failure and on_failure == "raise":
            raise CoresetError(failure, topic="draws")
    if failure and not takes_all:
        other = "" if elsewhere else " With on_failure='nuts', pm.sample takes all rows instead."
        warn_user(f"{failure}{other}")
    return _described(drawn, full, report.seconds, show=show)


def _refuse_unknown(options: Collection[str]) -> None:
    known = [*signature(sample).parameters, *signature(build_coreset).parameters]
    for name in sorted(set(options).difference(known)):
        meant = [f", but {found!r} is" for found in get_close_matches(name, known, n=1)]
        raise TypeError(
            f"{name!r} is no argument of sample or build_coreset{''.join(meant)}. Options of "
            f"pm.sample belong to build_coreset(...).sample({name}=...)."
        )


def _is_small(request: Request) -> bool:
    """Whether rows are so few that chains of all take minutes, and nothing is said of these rows.

    Then they are what serves where a coreset does not.
    """
    wanted = request.reading
    is_default = wanted.observed is None and wanted.dim is None
    return is_default and not request.asks_for_coreset and _sizes(request)[0] <= _FEW_ROWS_FOR_NUTS


def _has_few_rows(request: Request) -> bool:
    """Whether rows are few for the free dimensions: a coreset hardly helps then."""
    n_rows, n_dims = _sizes(request)
    return n_rows < FEW_PER_DIMENSION * n_dims


def _sizes(request: Request) -> tuple[float, int]:
    """Return the number of rows, and of free dimensions; infinite if no row is observed."""
    model = request.model
    shapes = [shapes_of(variables) for variables in (model.observed_RVs, model.free_RVs)]
    n_rows, n_dims = (sum(map(math.prod, found)) for found in shapes)
    return n_rows or math.inf, n_dims


def _of_all_rows(model: pm.Model, options: Mapping[str, object], reason: str) -> _Answer:
    """Sample a model itself, because no coreset serves, for some reason."""
    idata = pm.sample(model=model, **options)
    text = f"Draws of the full posterior, because no coreset serves. {reason}"
    verdict = Verdict(Level.UNJUDGED, Reason.ALL_ROWS, text)
    return _Answer(idata, "pm.sample on all rows", verdict, divergence=0.0)


def _described(
    drawn: _Answer, model: pm.Model, seconds: Mapping[str, float], *, show: bool
) -> xr.DataTree:
    """Return draws with their attributes, and tell what they are and which are missing."""
    seconds = {part: seconds.get(part, 0.0) for part in ("build", "sample", "check")}
    took = ", ".join(f"{part} {value:.1f} s" for part, value in seconds.items())
    tell(f"{drawn.source} ({took}). {drawn.verdict}", show=show)
    posterior = drawn.idata["posterior"]
    if names := _not_drawn(model, posterior.to_dataset()):
        posterior.attrs["not_drawn"] = names
        tell(f"{_NOT_DRAWN}(idata, var_names={names!r}, kind='draws').", show=show)
    attrs = drawn.idata.attrs
    attrs |= drawn.verdict.attrs | {"divergence": drawn.divergence}
    attrs |= {f"seconds_{part}": value for part, value in seconds.items()}
    return drawn.idata


def _not_drawn(model: pm.Model, posterior: xr.Dataset) -> list[str]:
    """Return the variables without draws, apart from those that a warning has named."""
    known = {*posterior.data_vars, *posterior.attrs.get("integrated", ())}
    return [v.name for v in model.unobserved_RVs if v.name not in known]


def _built(request: Request, n_wanted: int, *, with_all_units: bool) -> Coreset | AroundMode:
    """Build a coreset, unless draws of a known distribution make it unnecessary.

    Raises
    ------
    UnsupportedModelError
        Also if all units would be kept beside many other variables, unless they may be.
    """
    request, begun = with_rows_inside(request), time.perf_counter()
    exact = _given_scales(request, n_wanted)
    if exact is not None:
        return exact
    with preparing(request.after(time.perf_counter() - begun)) as construction:
        drawn = _around_mode(construction, n_wanted)
        if drawn is not None:
            return drawn
        if not with_all_units:
            _refuse_all_units(construction)
        _announce(construction, n_wanted)
        found = construction.built()  # the check looks beyond the draws
    return construction.finished(found)


def _refuse_all_units(construction: Construction) -> None:
    """Refuse to keep all units: chains take longer at all their nodes than with their variables."""
    loglik: LogLikelihood = construction.job.loglikelihood
    observations = loglik.observations
    is_kept = isinstance(construction.method, Exact) and loglik.n_dims > FEW_DIMENSIONS
    if observations.integrated and is_kept:
        raise UnsupportedModelError(
            f"All {loglik.n_rows:,} levels of {list(observations.integrated)!r} would be kept, "
            f"beside {loglik.n_dims:,} free dimensions: sample the model itself."
        )


def _announce(construction: Construction, n_wanted: int) -> None:
    """Announce the time until there are draws, if a quadratic is next and rows are few for it.

    Importance weights then correct the draws: all rows are evaluated at all of them, and at a
    quarter as many for the construction.
    """
    loglik: LogLikelihood = construction.job.loglikelihood
    is_inside = loglik.source is loglik.in_memory and not loglik.observations.integrated
    many = _MANY_PER_DIMENSION * loglik.n_dims
    if not (construction.needs_a_quadratic and is_inside and loglik.n_rows < many):
        return
    of_rows = 1.25 * n_wanted * loglik.n_rows * _seconds_each(construction.sampler)
    with doing(
        f"building, sampling and checking a coreset of {loglik.n_rows:,} rows and "
        f"{loglik.n_dims:,} free dimensions"
    ):
        forecast(of_rows + _PER_NUMBER * n_wanted * loglik.n_dims)


def _seconds_each(sampler: CoresetSampler) -> float:
    """Return the seconds that a log-likelihood of one row takes."""
    loglik = sampler.loglikelihood
    few = loglik.reading(InMemoryRows.of(loglik.in_memory.take(slice(0, 2_000))))
    draws = sampler.space.constrain(np.repeat(sampler.start[None], 50, axis=0))
    few.sums(draws)  # compiles what the construction needs
    begun = time.perf_counter()
    few.sums(draws)
    return (time.perf_counter() - begun) / (50 * few.n_rows)


def _given_scales(request: Request, n_wanted: int) -> AroundMode | None:
    """Return certified draws of a posterior that is normal given a few scales.

    They are tried where variables of levels would be integrated out, or a quadratic be built, which
    takes longer; and in hierarchies of few dimensions, whose density may have no mode, if that does
    not take long.  They leave the request's random numbers as they are.
    """
    wanted, model = request.reading, request.model
    if request.asks_for_coreset or wanted.integrate is False:
        return None
    is_few = sum(map(math.prod, shapes_of(model.free_RVs))) <= FEW_DIMENSIONS
    if is_few and not has_scales(model):
        return None
    rng = deepcopy(request.rng).spawn(1)[0]
    deadline = time.perf_counter() + _TO_TRY * request.given.get("time_budget", math.inf)
    with (
        Reporter(show=request.progressbar) as report,
        forecasts_to(report.tell),
        report.part("given scales"),
        until(deadline),
    ):
        try:
            observations = wanted.rows_of(model)
            is_long = is_few and observations.n_obs > _FEW_ROWS
            if is_long or not may_be_normal(observations):
                return None
            rows = replace(wanted, integrate=False)
            loglik = likelihood_of_model(model, rows, rng=rng.spawn(1)[0])
            return drawn_given_scales(loglik, rng=rng, wanted=n_wanted)
        except (SamplingError, UnsupportedModelError, InvalidDataError, OutOfTimeError) as error:
            _log.info("%s", error.message)
    return None  # the construction says it, if it meets the same


def _around_mode(construction: Construction, n_wanted: int) -> AroundMode | None:
    """Return certified draws from around the mode, where all rows are in memory.

    They are tried where a quadratic would be built next, as that takes long.  They leave the
    construction's random numbers as they are: a coreset that is built is that of `build_coreset`.
    """
    if not construction.needs_a_quadratic:
        return None
    job = construction.job
    loglik: LogLikelihood = job.loglikelihood
    if loglik.source is not loglik.in_memory or loglik.observations.integrated:
        return None
    own_rng = deepcopy(job.rng).spawn(1)[0]
    try:
        with job.report.part("around the mode"), until(job.deadline):
            return drawn_around_mode(loglik, key=job.sample_key, rng=own_rng, wanted=n_wanted)
    except (SamplingError, OutOfTimeError) as error:
        _log.info("%s", error.message)
        return None  # the construction says it, if it meets the same


def _of_mode(
    found: AroundMode, sizes: Mapping[str, int], rng: np.random.Generator, report: Reporter
) -> _Answer:
    """Resample weighted draws from around the mode."""
    with report.part("sample"):
        idata = found.drawn(**sizes, rng=rng.spawn(1)[0])
    weighed = idata["posterior"].attrs
    idata.attrs |= {name: weighed[name] for name in ("pareto_khat", "psis_ess")}
    source = f"{found.words}; no coreset was needed"
    return _Answer(idata, source, Verdict.stored(weighed), divergence=0.0)


def _on_request(options: Mapping[str, object], random_seed: int | None) -> str:
    """Return what `coreset_of` needs to build a coreset later."""
    gone = {"progressbar", "time_budget", "rows", "executor"}
    kept = {name: value for name, value in options.items() if name not in gone}
    seed = 0 if random_seed is None else random_seed
    return json.dumps(kept | {"random_seed": seed}, default=_plain)


def _plain(value: np.generic) -> object:
    """Return a number of NumPy's as one of Python's."""
    return value.item()


def _densities(loglik: LogLikelihood) -> Densities:
    """Return log-densities by which a model is known again."""
    return Densities.of(loglik, loglik.all_rows.take(slice(0, _SOME_ROWS)))


def _refuse_other_densities(request: Request, known: Densities) -> None:
    """Refuse draws of a model with other priors, or another likelihood."""
    wanted = replace(request.reading, integrate=False, rows=None, executor=None)
    loglik = likelihood_of_model(request.model, wanted, rng=np.random.default_rng(0))
    same = known.same(_densities(loglik))
    other = [
        what for what, is_same in zip(("likelihood", "priors"), same, strict=True) if not is_same
    ]
    if other:
        raise InvalidDataError(
            f"The {' and '.join(other)} of the model are not those that these draws are from: give "
            "the model that was sampled, or sample this one.",
            topic="draws",
        )


def _refuse_draws_of_another(model: pm.Model, groups: Mapping[str, xr.DataTree]) -> None:
    """Refuse draws whose variables or outcomes are not those of a model."""
    drawn = groups["posterior"].to_dataset()
    sizes = {name: drawn[name].shape[2:] for name in drawn.data_vars}
    for variable, shape in zip(model.free_RVs, shapes_of(model.free_RVs), strict=True):
        found = sizes.get(variable.name, "no draws")
        if found != tuple(shape):
            raise InvalidDataError(
                f"{variable.name!r} has shape {tuple(shape)} in this model, and {found} in idata: "
                "give the model that was sampled.",
                topic="draws",
            )
    if "observed_data" not in groups:
        return
    before, now = groups["observed_data"].to_dataset(), data_groups(model)["observed_data"]
    for name, values in now.data_vars.items():
        if name not in before or not np.array_equal(
            values.to_numpy(), before[name].to_numpy(), equal_nan=values.dtype.kind == "f"
        ):
            raise InvalidDataError(
                f"The observations of {name!r} are not those in idata: give the model, with the "
                "data, that was sampled.",
                topic="draws",
            )


def _built_later(model: pm.Model, options: Mapping[str, Any]) -> Coreset:
    """Build a coreset for draws that needed none: of all rows, if fewer of them do not serve."""
    try:
        return build_coreset(model, **options)
    except UnsupportedModelError as error:
        _log.info("All rows are taken: %s", error.message)
        kept = {name: value for name, value in options.items() if name != "tolerance"}
        return build_coreset(model, **kept, method="exact")


def _of_coreset(
    coreset: Coreset, sizes: Mapping[str, Any], rng: np.random.Generator, report: Reporter
) -> _Answer:
    """Sample a coreset, check the draws, and correct them if that is needed and enough."""
    with report.part("sample"):
        idata = coreset.sample(random_seed=rng.spawn(1)[0], **sizes)
    with report.part("check"):
        drawn = _judged(coreset, idata, rng.spawn(1)[0])
    if drawn.certificate is not None:
        coreset = replace(coreset, certificate=drawn.certificate)
    groups = dict(stored_tree(coreset).children)
    drawn.idata[GROUP] = xr.DataTree(groups.pop(GROUP).to_dataset(), children=groups)
    return drawn


def _judged(coreset: Coreset, idata: xr.DataTree, rng: np.random.Generator) -> _Answer:
    source = f"Coreset of {size_in_words(coreset)}"
    try:
        check = coreset.check(idata)
    except InvalidDataError as error:  # the full data exclude some of the draws
        verdict = Verdict.starting(Level.UNUSABLE, Reason.IMPOSSIBLE, error.message)
        return _Answer(idata, source, verdict)
    except OutOfTimeError:
        return _Answer(idata, source, _UNCHECKED)
    source += f", at most {check.divergence:.2g} nats from the full posterior"
    verdict = check.verdict
    if verdict.level is Level.REWEIGHTED:
        try:
            idata = coreset.reweight(idata, random_seed=rng)
        except OutOfTimeError:
            return _Answer(idata, source, _UNWEIGHED, check.divergence)
        weighed = idata["posterior"].attrs
        idata.attrs |= {name: weighed[name] for name in ("pareto_khat", "psis_ess")}
        source, verdict = f"{source}, then re-weighted", Verdict.stored(weighed)
    return _Answer(idata, source, verdict, check.divergence, check.certificate)


def coreset_of(
    idata: xr.DataTree,
    model: object = None,
    *,
    rows: RowSource | None = None,
    executor: HasSubmit | None = None,
) -> Coreset:
    """Return the coreset whose draws `sample` has returned, in this process or a later one.

    Use it for what draws alone cannot do: predictions, cross-validation, other priors, a check of
    more draws.  Costs one reading of the data, to verify that the model is the same; or a build, if
    `sample` needed no coreset, which takes all rows where `build_coreset` refuses to choose some.

    Parameters
    ----------
    idata : xarray.DataTree
        Returned by `sample`, or read from a file that it was written to.
    model : pm.Model, optional
        The full model, or what holds one, see `build_coreset`; by default that of the context.
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
        If the draws hold no coreset, as those of `pm.sample`; or if the model has another
        number of observations, other free variables, another likelihood, or other data in the
        coreset's rows; or other priors, if the draws needed no coreset.
    InvalidOptionError
        If `model` is not a model, or `executor` is of an unknown kind.

    Warns
    -----
    CoresetWarning
        If the model's data in other rows, or its priors, have changed, see `Coreset.from_netcdf`.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> import pymc_coresets as pmc
    >>> x = np.random.default_rng(1).normal(size=2_000)
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     idata = pmc.sample(random_seed=1, progressbar=False)
    >>> coreset = pmc.coreset_of(idata, model)
    >>> coreset.size, coreset.check(idata).reliable
    (2, True)
    """
    full, groups = full_model(model), draws_tree(idata).children
    if GROUP not in groups and {_OPTIONS, _DENSITIES} <= idata.attrs.keys():
        options = json.loads(idata.attrs[_OPTIONS])
        asked = options | {"rows": rows, "executor": executor}
        request = with_rows_inside(requested(full, **asked))
        _refuse_draws_of_another(request.model, groups)
        _refuse_other_densities(request, Densities.read(idata.attrs[_DENSITIES]))
        return _built_later(request.model, options)
    try:
        tree = groups[GROUP]
        nested = {name: node.to_dataset().load() for name, node in tree.children.items()}
        stored = fields_of_groups({GROUP: tree.to_dataset().load(), **nested})
    except NO_CORESET as error:
        raise InvalidDataError(
            f"idata holds no coreset, or a part of one alone ({error}): pymc_coresets.sample() "
            "stores it with its draws, unless pm.sample took all rows.",
            topic="draws",
        ) from error
    return Coreset(**fields_with_model(stored, full, rows, executor))
