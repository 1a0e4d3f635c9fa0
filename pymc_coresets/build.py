"""The front door: from a model to a coreset."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import NamedTuple

import numpy as np
import pymc as pm

from pymc_coresets.advice import (
    FEW_PER_DIMENSION,
    Outcome,
    decided_by,
    wanted_tolerance,
    warn_of_limits,
    with_informativeness,
)
from pymc_coresets.coreset import Coreset
from pymc_coresets.deadline import doing, forecasts_to, until
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.known_posterior import has_several
from pymc_coresets.diagnostics.lines import NO_PROBES, Probes
from pymc_coresets.display import counted
from pymc_coresets.exceptions import (
    InvalidDataError,
    OutOfTimeError,
    SamplingError,
    UnsupportedModelError,
)
from pymc_coresets.glm.control_variates.method import ControlVariates, has_quadratics
from pymc_coresets.methods.exact_or_uniform import Exact
from pymc_coresets.methods.job import Job, Method, tolerance_of
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import whole_number
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.likelihood.refusals import refuse_jumps
from pymc_coresets.reading.likelihood.terms import dims_of_cells
from pymc_coresets.request import Request, configured, named_option, required_solution
from pymc_coresets.rowlogp.evaluation import Collapse, LogLikelihood
from pymc_coresets.rowlogp.filled_model import with_rows_of_units
from pymc_coresets.rowlogp.kept_rows import kept_dataset
from pymc_coresets.rowlogp.of_model import (
    RowSamples,
    RowsToRead,
    likelihood_of_model,
    verify_form,
)
from pymc_coresets.rowlogp.units import FEW_DIMENSIONS, keeps_all
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.keyed import random_key, rows_to_begin_with
from pymc_coresets.rows.memory import one_blas_thread
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.probing import probed
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.units.centring import integrated_out
from pymc_coresets.sampling.weighting import Weighting, weighting_of
from pymc_coresets.solving.solution import Solution, Status
from pymc_coresets.storage import history_dataset
from pymc_coresets.weighted_rows import required_likelihood

_CORRECTABLE = 0.5  # nats: importance weights keep six tenths of the draws


def build_coreset(  # noqa: PLR0913
    model: object = None,
    *,
    size: int | None = None,
    tolerance: float | None = None,
    method: str | Method = "auto",
    weighting: str | Weighting | DrawsLike | None = None,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    rows: RowSource | None = None,
    executor: HasSubmit | None = None,
    collapse: Collapse = "auto",
    allow_local: bool = False,
    integrate: bool | str | Sequence[str] = "auto",
    time_budget: float | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> Coreset:
    """Choose a few weighted observations whose posterior is close to that of all.

    Use it if a model's data are too many for MCMC: the coreset's model costs as much to sample as
    one with `size` observations.  Without options, the model decides what is built:

    ==================================  ====================================================
    the model has                       the coreset is
    ==================================  ====================================================
    few distinct rows                   all of them, whose posterior is exact
    a factor of 250 levels or more,     whole levels, with these variables integrated out
    with variables of its own
    25 free dimensions or more          a quadratic for all rows, and weighted rows
    fewer                               weighted rows alone
    ==================================  ====================================================

    For N rows, weighted rows alone cost dozens to hundreds of gradients of all rows, which find the
    mode; one pass over the data for S log-likelihoods per row (at most 4,000); `size` passes over
    the tangent vectors of the candidates; and one pass that measures the result.  If that misses
    the tolerance, further rounds choose rows at draws of the coreset's own posterior.  Memory: O(N)
    and twice the vectors, which take at most 256 MB.  For a quadratic, see `ControlVariates`.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if it is not given.  It is not changed.  Or an object that holds
        one: a model of Bambi, which is built if it is not, of HSSM, or a built one of
        pymc-marketing.
    size : int, optional
        Largest number of weighted rows.  With D free dimensions, K = D(D + 3)/2 + 1 rows match any
        quadratic log-posterior.  The default is 2 K for ``"auto"``, but 100 at least and 1,000 at
        most; for ``"control_variates"`` the largest of 20 D, 1,000 and a fortieth of the rows (up
        to 10,000), of which it takes what it needs; K for all other methods, but 50 at least and
        500 at most; never more than there are rows.  With ``Sensitivity(epsilon=...)`` it follows
        from epsilon, and is not accepted.  ``"auto"`` with a size chooses weighted rows alone, and
        warns only if the divergence exceeds one nat; `check` judges by the tolerance as usual.
    tolerance : float, optional
        Symmetrised KL divergence between the coreset's and the full posterior, in nats, at which
        the coreset is good enough: no more rows are added.  By default 0.01 for ``"auto"`` and
        ``"control_variates"``, and none for the others, which then use up their `size`.  Only these
        two, ``"pursuit"``, ``"iht"``, ``"giga"`` and ``"frank_wolfe"`` accept it.
    method : str or Method
        ``"auto"``: all distinct rows (``"exact"``), if they are no more than `size`, or no more
        than 2,000 and a tenth of all; else, without `size`, `ControlVariates` for 25 free
        dimensions or more; else `RiemannianPursuit`, which chooses weighted rows alone, also if a
        quadratic misses a tail or a mode in 60 dimensions at most.  Or ``"control_variates"``; a
        method with a fixed weighting distribution: ``"pursuit"``, ``"iht"``, ``"giga"``,
        ``"frank_wolfe"``; ``"sparse_vi"`` or ``"quasi_newton"``, which draw from Laplace
        approximations of the coreset's posterior;
        ``"sensitivity"``, for logistic regression with a guarantee; or ``"uniform"``.
        `RiemannianPursuit`, `Pursuit`, `SparseVI`, `Sensitivity`, ... take options.
    weighting : str, option object, or draws, optional
        Where the methods with a fixed weighting distribution compare the log-likelihoods:
        ``"subsample"`` (their default: a short NUTS run on a uniform coreset), ``"laplace"``,
        ``"prior"``; `Subsample` with options; or draws of your own (by Pathfinder, for instance),
        as a DataTree, a Dataset or a mapping of names to arrays.  The other methods, ``"auto"``
        among them, choose their own draws and refuse it.
    observed : str or sequence of str, optional
        Observed variables and potentials to summarise; the others stay in the model as they are.
        By default the longest observed ones and all others of 500 rows or more that are sums over
        rows.  Terms of different lengths have rows and weights of their own, numbered one term
        after the other.
    dim : str or sequence of str, optional
        Name of the observation dimension; the leading axis of the observed variables by default.
        With several, such as ``("item", "person")``, each cell of an observed matrix is a row; so
        it is by default if all observed variables have the same dims, and the leading one has fewer
        than ten entries for each free dimension.
    rows : RowSource, optional
        From `open_rows`: all rows, if the model's data containers hold a few of them only.  They
        are read as often as needed, a chunk at a time.  Rows must be independent of each other in
        the model; what is taken over all of them, such as a mean, is refused.  If variables of
        levels are integrated out, whose rows are needed together, one reading puts all of them
        into memory, of which they may take an eighth, and threads of this process evaluate
        them.  For ``"auto"``,
        ``"control_variates"``, ``"uniform"``, ``"sensitivity"``, and the methods with a fixed
        weighting distribution.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where `rows` are read and evaluated: by default in one thread per core; or in processes, or
        on a cluster, with the same result.  `check` and the like use it too; a copy or a pickle of
        the coreset uses threads.
    collapse : bool or "auto", default "auto"
        First merge rows that are identical in all their data, which is exact: later steps see each
        kind once, with its count as case weight.  ``"auto"`` merges if a sample of 20,000 rows
        contains enough equal ones.
    allow_local : bool, default False
        Accept free variables with one value per observation; all of them stay in the model.
    integrate : {"auto", False}, str, or sequence of str, default "auto"
        Free variables that belong to the levels of one factor, such as an effect of each user:
        they are integrated out by nodes of adaptive Gauss-Hermite quadrature, and the coreset's
        rows are *units*, all rows of one level together.  ``"auto"`` chooses the largest factor, if
        its levels are 250 at least and five times as many as a coreset of them needs, or if its
        variables have one value for each row.  `Coreset.recover` draws them afterwards.
    time_budget : float, optional
        Seconds after which ``"auto"`` and ``"control_variates"`` end, at the next block of rows or
        step, with what there is, or an error if that is nothing; the others refuse it.  Compiling
        a function is not ended.
    random_seed : int or Generator, optional
        The result is reproducible from it.
    progressbar : bool, default True
        Show the parts of the construction and their progress.  Ctrl-C during the choice of rows
        ends with the best coreset so far.

    Returns
    -------
    Coreset

    Raises
    ------
    CoresetError
        A subclass, naming the variable and the remedy: the model cannot be summarised, or has fewer
        than ten rows for each free dimension and neither `method` nor `size` was given
        (`UnsupportedModelError`), an option is out of range (`InvalidOptionError`), data or draws
        hold NaN (`InvalidDataError`), or a sampler failed (`SamplingError`).

    Warns
    -----
    CoresetWarning
        If the tolerance was not met, the posterior has several modes, or the data are so few that a
        coreset hardly helps.

    References
    ----------
    Campbell and Beronov (2019), Sparse variational inference: Bayesian coresets from scratch,
    Advances in Neural Information Processing Systems 32.
    Campbell and Broderick (2019), Automated scalable Bayesian inference via Hilbert coresets,
    Journal of Machine Learning Research 20(15).

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2_000)
    >>> y = rng.normal(1 + 2 * x)
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5)
    ...     likelihood = pm.Normal("y", a + b * x, 1.0, observed=y)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> coreset.n_observations, coreset.size <= 10
    (2000, True)
    """
    return built(
        Request.of(
            model,
            size=size,
            tolerance=tolerance,
            method=method,
            weighting=weighting,
            observed=observed,
            dim=dim,
            rows=rows,
            executor=executor,
            collapse=collapse,
            allow_local=allow_local,
            integrate=integrate,
            time_budget=time_budget,
            random_seed=random_seed,
            progressbar=progressbar,
        )
    )


def requested(model: object, **options: object) -> Request:
    """Return the arguments of `build_coreset`, with its defaults, as one value.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, 1.0])
    >>> requested(model, size=1).given
    {'size': 1}
    """
    known = signature(build_coreset)
    asked = known.bind(model, **options)
    asked.apply_defaults()
    return Request.of(**asked.arguments)


def built(request: Request) -> Coreset:
    """Build the coreset of a request."""
    with preparing(with_rows_inside(request)) as construction:
        found = construction.probed(construction.built())
    return construction.finished(found)


def with_rows_inside(request: Request) -> Request:
    """Return a request whose model holds all rows, if those of a level are needed together."""
    if not request.reading.are_elsewhere:
        return request
    begun, budget = time.perf_counter(), request.given.get("time_budget", math.inf)
    with (
        Reporter(show=request.progressbar) as report,
        forecasts_to(report.tell),
        report.part("reading the rows"),
        until(begun + budget),
    ):
        model, wanted = with_rows_of_units(request.model, request.reading)
    if wanted.rows is request.reading.rows:
        return request
    given = {name: value for name, value in request.given.items() if name != "rows"}
    found = replace(request, model=model, reading=wanted, given=given)
    return found.after(time.perf_counter() - begun)


class _Construction(NamedTuple):
    """The rows that a method chose, at most `size` of them, and their coreset."""

    method: Method
    size: int
    solution: Solution
    coreset: Coreset
    probes: Probes = NO_PROBES


@dataclass(frozen=True, kw_only=True, eq=False)
class Construction:
    """A request whose model has been read: the method that follows from it, and what it needs.

    Parameters
    ----------
    request : Request
    method : Method
    job : Job
    reading : RowsToRead
    sampler : CoresetSampler
        Of all rows, and of any weighted ones.
    reasons : sequence of str
        Why variables of levels remain parameters, if they do.
    """

    request: Request
    method: Method
    job: Job[Draws]
    reading: RowsToRead
    sampler: CoresetSampler
    reasons: Sequence[str]

    @property
    def needs_a_quadratic(self) -> bool:
        """Whether a quadratic is next, though no option asks for a coreset."""
        return not self.request.asks_for_coreset and isinstance(self.method, ControlVariates)

    def built(self) -> _Construction:
        """Run the method; lines beyond the draws are left to `probed`, or to a check."""
        with _explained(self.reasons):
            if self.request.automatic:
                return _built_by_itself(self.method, self.job, self.reading, self.request.given)
            return _built(self.method, self.job, self.reading)

    def probed(self, found: _Construction) -> _Construction:
        """Look along lines beyond the draws, unless this has been done."""
        with _explained(self.reasons):
            return _probed(found, self.job)

    def finished(self, found: _Construction) -> Coreset:
        """Return the coreset that was built, with its history; warn of what limits it."""
        method, size, solution, coreset, probes = found
        request, report, loglik = self.request, self.job.report, self.job.loglikelihood
        if not len(solution.rows) and solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        counts = Counter(report.counts)
        counts.update(self.sampler.counts_of_runs)
        asked_for = "tolerance" in request.given or "size" not in request.given
        warn_of_limits(
            Outcome(
                solution=solution,
                observations=loglik.observations,
                n_obs=coreset.n_observations,
                size=size,
                tolerance=wanted_tolerance(method, asked=asked_for),
                counts=counts,
                method=method,
                probes=probes,
            )
        )
        seconds = {f"seconds {part}": value for part, value in report.seconds.items()}
        return replace(
            coreset,
            method=request.name if type(method) is type(request.method) else method.name,
            weighting=method.draws_from
            or named_option(request.given.get("weighting", "subsample")),
            random_seed=request.random_seed,
            history=history_dataset(solution.history, seconds | dict(counts) | report.figures),
            progressbar=request.progressbar,
        )


@contextmanager
def preparing(request: Request) -> Iterator[Construction]:
    """Read the model of a request, and show the progress of what follows."""
    deadline = time.perf_counter() + request.given.get("time_budget", math.inf)
    with (
        Reporter(show=request.progressbar) as report,
        forecasts_to(report.tell),
        one_blas_thread(),
    ):
        yield _prepared(request, report, deadline)


def _prepared(request: Request, report: Reporter, deadline: float) -> Construction:
    given, rng = request.given, request.rng
    reasons: list[str] = []
    read = partial(
        _read,
        request.model,
        rng=rng.spawn(1)[0],
        tolerance=given.get("tolerance", TOLERANCE),  # for the error of nodes
        report=report,
        tell=reasons.append,
        deadline=deadline,
    )
    found = read(request.reading)
    if request.automatic:
        with _explained(reasons):
            found = _with_enough_rows(found, read)
    loglik, reading, sample_key = found
    sampler = CoresetSampler(loglik)
    method, size = _sized(request.method, loglik, given)
    if isinstance(method, RiemannianPursuit):
        own = loglik.observations
        refuse_jumps(own.loglik, own.parameters)
        if request.automatic:
            method, size = _suited(method, size, given, loglik)
    job = Job(
        posterior=sampler,
        propose=partial(proposal, sampler, key=sample_key),
        weighting=partial(weighting_of(given.get("weighting")).draw, sampler),
        loglikelihood=loglik,
        size=size,
        deadline=deadline,
        rng=rng,
        sample_key=sample_key,
        report=report,
    )
    return Construction(
        request=request,
        method=method,
        job=job,
        reading=reading,
        sampler=sampler,
        reasons=reasons,
    )


#: Log-likelihoods, how to derive them again, and the key of the sample that was kept.
type _Read = tuple[LogLikelihood, RowsToRead, int]


def _built(method: Method, job: Job[Draws], wanted: RowsToRead) -> _Construction:
    """Run a method."""
    loglik: LogLikelihood = job.loglikelihood
    with job.report.whole("choosing rows"):  # by methods that report no parts, too
        found = method.run(job)
    solution = with_informativeness(required_solution(found, method, job.size), loglik)
    coreset = Coreset(
        **decided_by(solution, tolerance_of(method), node_error=loglik.node_error),
        n_observations=max(loglik.n_rows, round(loglik.total_weight)),
        n_distinct=loglik.n_rows,
        method=method.name,
        weighting=method.draws_from,
        random_seed=None,
        history=history_dataset(solution.history, {}),
        settings=wanted.settings,
        loglikelihood=loglik,
        data=kept_dataset(loglik, solution.rows, solution.weights)
        if wanted.are_elsewhere
        else None,
    )
    return _Construction(method, job.size, solution, coreset)


def _probed(construction: _Construction, job: Job[Draws]) -> _Construction:
    """Look beyond the draws by which a method has judged itself, if all rows are in memory."""
    coreset, draws = construction.coreset, construction.solution.draws
    certificate, loglik = coreset.certificate, job.loglikelihood
    if certificate is None or construction.probes.is_done:
        return construction
    if loglik.source is not loglik.in_memory:
        return construction
    found = NO_PROBES
    with (
        job.report.part("beyond the draws"),
        suppress(InvalidDataError, OutOfTimeError),
        until(job.deadline),
        doing("looking beyond the draws"),
    ):
        found = probed(coreset.approximation, draws)
    coreset = replace(coreset, certificate=replace(certificate, probes=found))
    return construction._replace(coreset=coreset, probes=found)


def _built_by_itself(
    chosen: Method, job: Job[Draws], wanted: RowsToRead, given: Mapping[str, object]
) -> _Construction:
    """Construct a coreset; by rows alone where a quadratic fails, or cuts off a part.

    Rows alone can follow any posterior.  Whether a quadratic cuts off a part, probes decide.
    """
    try:
        first = [_built(chosen, job, wanted)]
        if isinstance(chosen, ControlVariates):
            first = [_probed(first[0], job)]
    except SamplingError:
        if not isinstance(chosen, ControlVariates):
            raise
        first = []
    if first and not _misses_a_part(first[0]):
        return first[0]
    alone, loglik = configured(RiemannianPursuit(), given), job.loglikelihood
    size = min(alone.default_size(loglik.n_dims, loglik.n_rows), loglik.n_rows)
    try:
        other = _probed(_built(alone, replace(job, size=size), wanted), job)
    except (SamplingError, UnsupportedModelError, OutOfTimeError):
        if not first:
            raise
        return first[0]
    certificate = other.coreset.certificate
    if first and has_several(first[0].coreset.modes):
        own = first[0].coreset.certificate
        if not has_several(other.coreset.modes) or (own is not None and own.reliable):
            return first[0]  # whose verdict names them, or whose draws visit them
    return other if certificate is not None and certificate.negligible else [*first, other][0]


def _misses_a_part(found: _Construction) -> bool:
    """Whether a quadratic has cut off a tail, or a mode, of a posterior of not too many numbers."""
    coreset, certificate = found.coreset, found.coreset.certificate
    if not isinstance(found.method, ControlVariates) or certificate is None:
        return False
    if found.solution.status in {Status.INTERRUPTED, Status.OUT_OF_TIME}:
        return False
    # Up to 60 dimensions, rows alone are an answer where a quadratic is none.
    if required_likelihood(coreset).n_dims > 60:
        return False
    return has_several(coreset.modes) or certificate.outside > certificate.tolerance


def _read(
    model: pm.Model,
    wanted: RowsToRead,
    *,
    rng: np.random.Generator,
    tolerance: float,
    report: Reporter,
    tell: Callable[[str], None],
    deadline: float,
) -> _Read:
    """Return the log-likelihoods of rows or units, and the key of the sample that was kept.

    Tells why variables of levels were not integrated out.
    """
    sampled = RowSamples(random_key(rng.spawn(1)[0]), rows_to_begin_with)
    with report.part("units"), until(deadline):
        key = random_key(rng.spawn(1)[0])
        units = integrated_out(model, wanted, tolerance=tolerance, rng=rng, key=key, tell=tell)
    with report.part("reading the model"):
        if units is not None:
            verify_form(units[0])
            return *units, sampled.key
        loglik = likelihood_of_model(
            model, wanted, rng=rng, watch=report.rows_read, sampled=sampled
        )
        verify_form(loglik)
    return loglik, wanted, sampled.key


@contextmanager
def _explained(reasons: Sequence[str]) -> Iterator[None]:
    """Add to an error why variables of levels remain parameters, if they do."""
    try:
        yield
    except (SamplingError, UnsupportedModelError) as error:
        if not reasons:
            raise
        message = " ".join([*reasons, f"So there are many parameters: {error.message}"])
        raise type(error)(message, topic=error.topic) from error


def _with_enough_rows(found: _Read, read: Callable[[RowsToRead], _Read]) -> _Read:
    """Return the cells of a matrix if its rows are few for the free variables.

    Raises
    ------
    UnsupportedModelError
        If the rows are few, and cells are no rows, or few as well.
    """
    loglik, wanted, _ = found
    try:
        _refuse_few_rows(loglik)
    except UnsupportedModelError:
        names = [term.name for term in loglik.observations.terms]
        cells = dims_of_cells(loglik.observations.snapshot.live, names)
        if wanted.dim is not None or wanted.are_elsewhere or not cells:
            raise
        with suppress(UnsupportedModelError):
            of_cells = read(replace(wanted, dim=cells))
            _refuse_few_rows(of_cells[0])
            return of_cells
        raise
    return found


def _refuse_few_rows(loglik: LogLikelihood) -> None:
    """Refuse rows that are few for the free variables, before anything is computed from them.

    Units that are few stay all: a posterior without their variables is worth it.
    """
    if loglik.observations.integrated:
        return
    columns = loglik.observations.space.columns
    sizes = {name: np.size(c) for name, c in columns.items()}
    n_dims = sum(n for name, n in sizes.items() if name not in loglik.observations.local)
    n_obs = max(loglik.n_rows, round(loglik.total_weight))
    if n_obs < FEW_PER_DIMENSION * n_dims:
        largest = max(sizes, key=lambda name: sizes[name])
        model = loglik.observations.snapshot.live
        names = [term.name for term in loglik.observations.terms]
        matrices = [n for n in names if model[n].ndim > 1 and n not in model.named_vars_to_dims]
        advice = [f" If each entry of {n!r} is an observation, give it dims." for n in matrices]
        raise UnsupportedModelError(
            f"A coreset hardly helps here: {n_obs:,} rows are few for "
            f"{counted(n_dims, 'free dimension')}, of which {largest!r} has {sizes[largest]:,}. "
            "Sample the model itself, integrate variables of levels out (integrate="
            f"{largest!r}), or say how rows are to be chosen all the same (method=..., or "
            f"size=...).{''.join(advice)}"
        )


def _suited(
    pursuit: Method, limit: int, given: Mapping[str, object], loglik: LogLikelihood
) -> tuple[Method, int]:
    """Return the method for many dimensions, where rows alone would take longer; and its size."""
    if loglik.n_dims <= FEW_DIMENSIONS or not has_quadratics(loglik):
        return pursuit, limit
    enough = None if "tolerance" in given else _CORRECTABLE
    found = configured(ControlVariates(correctable=enough), given)
    return found, found.default_size(loglik.n_dims, loglik.n_rows)


def _sized(
    method: Method, loglik: LogLikelihood, given: Mapping[str, object]
) -> tuple[Method, int]:
    """Return the largest number of rows; and `Exact` for ``"auto"`` if it need not choose."""
    n_obs = max(loglik.n_rows, round(loglik.total_weight))
    repeats = getattr(method, "with_replacement", False)
    most = n_obs if repeats else loglik.n_rows
    if "size" in given:
        limit = whole_number("size", given["size"], least=1, most=n_obs)
    else:
        limit = method.default_size(loglik.n_dims, most)
    # So few distinct rows cost NUTS less than a construction would.  With fewer than ten rows for
    # each distinct one, the user has few rows, and wants fewer.
    distinct = min(2_000, loglik.total_weight / 10)
    if loglik.observations.integrated:
        distinct = max(distinct, FEW_PER_DIMENSION * loglik.n_dims)
        n_unit_rows = len(loglik.observations.unit_rows.positions)
        if keeps_all(loglik.n_rows, n_unit_rows, loglik.n_dims):
            distinct = loglik.n_rows
    few = "size" not in given and loglik.n_rows <= distinct
    if isinstance(method, RiemannianPursuit) and (few or loglik.n_rows <= limit):
        return Exact(), loglik.n_rows
    return method, min(limit, most)
