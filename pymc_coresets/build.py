"""The front door: from a model to a coreset."""

import logging
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pymc_coresets import algorithms
from pymc_coresets.algorithms import (
    METHODS,
    Method,
    Problem,
    Solution,
    Status,
    Trace,
    Uniform,
    sample_uniform,
)
from pymc_coresets.coreset import Coreset, Settings
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.model.draws import Draws
from pymc_coresets.model.loglik import LogLikelihood
from pymc_coresets.model.observations import Observations, find_observations
from pymc_coresets.model.verify import verify, verify_model
from pymc_coresets.rows import collapse_rows, sample_candidates
from pymc_coresets.weighting import WEIGHTINGS, UserDraws, Weighting

__all__ = ["build_coreset"]

_log = logging.getLogger(__name__)

_MAX_CANDIDATE_ENTRIES = 2**25  # of the candidates' tangent vectors: 256 MB
_HELDOUT = 1 / 5  # of the draws
_MIN_DRAWS = 20


def build_coreset(  # noqa: PLR0913
    model: pm.Model | None = None,
    *,
    size: int | None = None,
    method: str | Method[Any] = "pursuit",
    weighting: str | Weighting | Any = "subsample",  # noqa: ANN401
    observed: str | Sequence[str] | None = None,
    dim: str | None = None,
    collapse: bool = False,
    allow_local: bool = False,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> Coreset:
    """Choose a few weighted observations whose posterior is close to that of all.

    Use it where a model's data are too many for MCMC: the coreset's model costs as much to
    sample as one with `size` observations.  Costs, for N rows and S draws: the weighting
    distribution's own cost; one pass over the data for S log-likelihoods a row; and `size` passes
    over the tangent vectors of the candidates.  Memory: O(N) and the candidates' vectors, at most
    256 MB.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context where it is not given.  It is not changed.
    size : int, optional
        Largest number of weighted rows.  By default as many as match a quadratic log-posterior,
        D(D + 3)/2 + 1 for D free dimensions, but 50 at least and 500 at most.
    method : str or option object
        ``"uniform"``, ``"frank_wolfe"``, ``"giga"``, ``"pursuit"`` (best by far), ``"iht"``; or
        `Uniform`, `FrankWolfe`, `GIGA`, `Pursuit`, `IHT` with options.
    weighting : str, option object, or draws
        Where the potentials are compared: ``"subsample"`` (a short NUTS run on a uniform coreset),
        ``"laplace"``, ``"prior"``, ``"pathfinder"``; `Subsample` with options; or draws of your
        own, as a DataTree, a Dataset or a mapping of names to arrays.  `Uniform` needs none.
    observed : str or sequence of str, optional
        Observed variables to summarise; the others stay in the model as they are.
    dim : str, optional
        Name of the observation dimension; the leading axis of the observed variables by default.
    collapse : bool, default False
        First merge rows that are identical in all their data.  Exact.
    allow_local : bool, default False
        Accept free variables with one value per observation; all of them stay in the model.
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
        Of some kind, with the variable and the remedy: the model cannot be summarised
        (`UnsupportedModelError`), an option is out of range (`InvalidOptionError`), data or draws
        hold NaN (`InvalidDataError`), or a sampler failed (`SamplingError`).

    References
    ----------
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
    ...     coreset = build_coreset(size=10, weighting="laplace", random_seed=1, progressbar=False)
    >>> coreset.n_observations, coreset.size <= 10
    (2000, True)
    """
    chosen = _method(method)
    weights_from = _weighting(weighting)
    rng = np.random.default_rng(random_seed)
    names = observed if observed is None or isinstance(observed, str) else list(observed)
    settings: Settings = {"observed": names, "dim": dim, "allow_local": allow_local}
    with _Reporter(show=progressbar) as report:
        with report.part("reading the model"):
            observations = find_observations(model, **settings)
            size = _size(size, observations)
            loglik = LogLikelihood(observations)
            verify(loglik, rng=rng.spawn(1)[0])
            base_weights = _base_weights(observations, collapse=collapse)
        size = min(size, int(np.count_nonzero(base_weights)))
        if isinstance(chosen, Uniform):
            solution = _uniform(base_weights, size, rng)
            source = "none"
        else:
            with report.part("weighting draws"):
                n_draws = _n_draws(size)
                draws = weights_from.draw(observations, n_draws, base_weights=base_weights, rng=rng)
            problem, candidates = _problem(loglik, draws, base_weights, report, rng=rng)
            with report.part("choosing rows", total=size) as advance:
                solution = algorithms.solve(
                    chosen,
                    problem,
                    min(size, problem.n_obs),
                    rng=rng,
                    callback=lambda progress: advance(progress.size),
                )
            solution = _in_rows(solution, candidates)
            source = _named(weighting)
    kept = observations.positions
    coreset = Coreset(
        indices=solution.indices if kept is None else kept[solution.indices],
        weights=solution.weights,
        n_observations=observations.n_obs,
        n_distinct=int(np.count_nonzero(base_weights)),
        method=_named(method),
        weighting=source,
        status=solution.status.value,
        random_seed=random_seed if isinstance(random_seed, int) else None,
        history=_history(solution.history, report.seconds),
        settings=settings,
        loglikelihood=loglik,
    )
    verify_model(loglik, coreset.model, solution.indices, solution.weights)
    return coreset


# -- options ---------------------------------------------------------------------------------------


def _method(method: str | Method[Any]) -> Method[Any]:
    if not isinstance(method, str):
        if not hasattr(method, "step_limit"):
            raise InvalidOptionError(
                f"method={method!r} must be a name or an option object such as Pursuit()."
            )
        return method
    if method not in METHODS:
        raise InvalidOptionError(f"method={method!r} is unknown: use one of {list(METHODS)!r}.")
    return METHODS[method]()


def _weighting(weighting: Any) -> Weighting:  # noqa: ANN401
    if isinstance(weighting, str):
        if weighting not in WEIGHTINGS:
            raise InvalidOptionError(
                f"weighting={weighting!r} is unknown: use one of {list(WEIGHTINGS)!r}, or draws."
            )
        return WEIGHTINGS[weighting]()
    return weighting if hasattr(weighting, "draw") else UserDraws(weighting)


def _named(option: Any) -> str:  # noqa: ANN401
    if isinstance(option, str):
        return option
    return (
        repr(option) if is_dataclass(option) and not isinstance(option, Draws) else "user's draws"
    )


def _size(size: int | None, observations: Observations) -> int:
    if size is None:
        n_dims = sum(math.prod(v.type.shape) for v in observations.parameters.values())
        matched = n_dims * (n_dims + 3) // 2 + 1  # points that match any quadratic function
        return min(observations.n_obs, int(np.clip(matched, 50, 500)))
    try:
        whole = operator.index(size)
    except TypeError:
        raise InvalidOptionError(f"size={size!r} must be a whole number.") from None
    if not 1 <= whole <= observations.n_obs:
        raise InvalidOptionError(
            f"size={size} must lie between 1 and the number of observations, {observations.n_obs}."
        )
    return whole


def _n_draws(size: int) -> int:
    """Three to five draws a weight: with fewer, every set of weights fits the draws."""
    return max(500, min(4 * size, 2_000))


# -- the problem -----------------------------------------------------------------------------------


def _base_weights(observations: Observations, *, collapse: bool) -> np.ndarray:
    if not collapse:
        return np.ones(observations.n_obs)
    weights = np.zeros(observations.n_obs)
    kept, counts = collapse_rows(list(observations.rows), observations.n_obs)
    weights[kept] = counts
    return weights


def _problem(
    loglik: LogLikelihood,
    draws: Draws,
    base_weights: np.ndarray,
    report: "_Reporter",
    *,
    rng: np.random.Generator,
) -> tuple[Problem, np.ndarray]:
    """One pass for the exact target of all rows; tangent vectors of the candidates alone."""
    if draws.n_draws < _MIN_DRAWS:
        raise InvalidDataError(
            f"{draws.n_draws} weighting draws are too few: give at least {_MIN_DRAWS}."
        )
    choosing, heldout = draws.split(int(_HELDOUT * draws.n_draws), rng=rng)
    with report.part("log-likelihoods"):
        moments = loglik.moments(choosing, base_weights)
        heldout_total = loglik.moments(heldout, base_weights).total
        n_candidates = max(1, _MAX_CANDIDATE_ENTRIES // draws.n_draws)
        candidates = sample_candidates(base_weights * moments.norms, n_candidates, rng=rng)
        if not candidates.size:
            raise InvalidDataError(
                "The log-likelihood does not vary over the weighting draws: they are all the same, "
                "or the likelihood does not depend on the free variables."
            )
        problem = Problem(
            vectors=_tangent(loglik.matrix(choosing, candidates)),
            target=_tangent(moments.total[None])[0],
            base_weights=base_weights[candidates],
            total_norm=float(base_weights @ moments.norms),
            heldout_vectors=_tangent(loglik.matrix(heldout, candidates)),
            heldout_target=_tangent(heldout_total[None])[0],
        )
    return problem, candidates


def _tangent(loglik: np.ndarray) -> np.ndarray:
    """Centre and scale log-likelihoods (n_rows, n_draws) in place (Hilbert coresets, V_n)."""
    loglik -= loglik.mean(axis=1, keepdims=True)
    loglik /= math.sqrt(loglik.shape[1])
    return loglik


def _uniform(base_weights: np.ndarray, size: int, rng: np.random.Generator) -> Solution:
    indices, weights = sample_uniform(base_weights, size, rng=rng)
    empty = np.array([np.nan])
    trace = Trace(
        size=np.array([len(indices)]),
        objective=empty,
        heldout_objective=empty,
        seconds=np.zeros(1),
    )
    return Solution(indices=indices, weights=weights, history=trace, status=Status.SIZE_REACHED)


def _in_rows(solution: Solution, candidates: np.ndarray) -> Solution:
    return replace(solution, indices=candidates[solution.indices])


def _history(trace: Trace, seconds: Mapping[str, float]) -> xr.Dataset:
    columns = {f.name: ("step", getattr(trace, f.name)) for f in fields(trace)}
    attrs = {f"seconds {part}": value for part, value in seconds.items()}
    return xr.Dataset(columns, attrs=attrs)


# -- progress --------------------------------------------------------------------------------------


class _Reporter:
    """Shows the parts of a construction as they run, and keeps their seconds."""

    def __init__(self, *, show: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            disable=not show,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    @contextmanager
    def part(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        task = self._progress.add_task(name, total=total, note="")
        start = time.perf_counter()

        def advance(done: int) -> None:
            self._progress.update(task, completed=done, note=f"{done} rows")

        yield advance
        self.seconds[name] = time.perf_counter() - start
        _log.debug("%s: %.2f s", name, self.seconds[name])
        self._progress.update(task, total=1, completed=1)
