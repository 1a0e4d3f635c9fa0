"""The front door: from a model to a coreset."""

import logging
import math
import operator
import time
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import pymc as pm
import xarray as xr
from pymc.model.core import modelcontext

from pymc_coresets.advice import limitations, rows_of_a_quadratic
from pymc_coresets.construction import AnyMethod, Construction
from pymc_coresets.coreset import Coreset, Settings
from pymc_coresets.exceptions import CoresetWarning, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.logistic.sensitivity import Sensitivity
from pymc_coresets.methods.quasi_newton import QuasiNewton
from pymc_coresets.methods.register import ADAPTIVE_METHODS, METHODS
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.methods.sparse_vi import SparseVI
from pymc_coresets.methods.uniform import Uniform
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.verification import verify, verify_model
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.rewrite import WEIGHTS
from pymc_coresets.rows.collapsing import collapse_rows
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.weighting import WEIGHTINGS, Subsample, UserDraws, Weighting
from pymc_coresets.solving.solution import Status, Trace

__all__ = ["build_coreset"]

_log = logging.getLogger(__name__)

_METHODS: dict[str, type[Any]] = {
    "auto": RiemannianPursuit,
    **METHODS,
    **ADAPTIVE_METHODS,
    "sensitivity": Sensitivity,
}


def build_coreset(  # noqa: PLR0913
    model: pm.Model | None = None,
    *,
    size: int | None = None,
    tolerance: float | None = None,
    method: str | AnyMethod = "auto",
    weighting: str | Weighting | DrawsLike | None = None,
    observed: str | Sequence[str] | None = None,
    dim: str | None = None,
    collapse: bool = False,
    allow_local: bool = False,
    time_budget: float | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> Coreset:
    """Choose a few weighted observations whose posterior is close to that of all.

    Use it where a model's data are too many for MCMC: the coreset's model costs as much to
    sample as one with `size` observations.  Without options, rounds of sampling the coreset's own
    posterior and choosing rows there go on until the coreset is good enough by its own measure.  A
    round costs, for N rows and S draws (at most 2 000): a short run of NUTS on the coreset, one
    pass over the data for S log-likelihoods a row, and `size` passes over the tangent vectors of
    the candidates.  Memory: O(N) and twice these vectors, which take at most 256 MB.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context where it is not given.  It is not changed.
    size : int, optional
        Largest number of weighted rows.  By default D(D + 3) for D free dimensions (twice as many
        as match a quadratic log-posterior), but 100 at least and 1 000 at most.
    tolerance : float, optional
        Symmetrised KL divergence between the coreset's and the full posterior, in nats, at which
        the coreset is good enough: no more rows are added.  By default 0.01 for
        ``method="auto"``, and none for the others, which then use up their `size`.
    method : str or option object
        ``"auto"`` (`RiemannianPursuit`, best by far), or a method with a fixed weighting
        distribution: ``"pursuit"``, ``"iht"``, ``"giga"``, ``"frank_wolfe"``; ``"sparse_vi"`` or
        ``"quasi_newton"``, which draw from Laplace approximations of the coreset's posterior;
        ``"sensitivity"``, for logistic regression with a guarantee; or ``"uniform"``.
        `RiemannianPursuit`, `Pursuit`, `SparseVI`, `Sensitivity`, ... take options.
    weighting : str, option object, or draws, optional
        Where the methods with a fixed weighting distribution compare the potentials:
        ``"subsample"`` (their default: a short NUTS run on a uniform coreset), ``"laplace"``,
        ``"prior"``, ``"pathfinder"``; `Subsample` with options; or draws of your own, as a
        DataTree, a Dataset or a mapping of names to arrays.  With ``method="auto"`` it means
        ``method="pursuit"``.
    observed : str or sequence of str, optional
        Observed variables to summarise; the others stay in the model as they are.
    dim : str, optional
        Name of the observation dimension; the leading axis of the observed variables by default.
    collapse : bool, default False
        First merge rows that are identical in all their data.  Exact.
    allow_local : bool, default False
        Accept free variables with one value per observation; all of them stay in the model.
    time_budget : float, optional
        Seconds after which ``method="auto"`` begins no further round.
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

    Warns
    -----
    CoresetWarning
        If the tolerance was not met, or the data are so few that a coreset hardly helps.

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
    if method == "auto" and weighting is not None:
        method = "pursuit"  # at the draws that the user wants
    chosen = _method(method, tolerance, time_budget)
    weights_from = _weighting(weighting)
    rng = np.random.default_rng(random_seed)
    names = observed if observed is None or isinstance(observed, str) else list(observed)
    settings: Settings = {"observed": names, "dim": dim, "allow_local": allow_local}
    started = time.perf_counter()
    model = _full_model(model)
    with Reporter(show=progressbar) as report:
        with report.part("reading the model"):
            observations = find_observations(model, **settings)
            limit = _size(size, observations, chosen)
            loglik = LogLikelihood(observations)
            verify(loglik, rng=rng.spawn(1)[0])
            base_weights = _base_weights(observations, collapse=collapse)
        limit = min(limit, int(np.count_nonzero(base_weights)))
        construction = Construction(
            observations=observations,
            posterior=CoresetSampler(loglik, base_weights),
            weighting=weights_from,
            size=limit,
            deadline=started + (math.inf if time_budget is None else time_budget),
            report=report,
        )
        solution = construction.run(chosen, rng=rng)
    if not solution.indices.size and solution.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    wanted = _limit(chosen, asked=tolerance is not None or size is None)
    for message in limitations(
        solution, observations, size=limit, tolerance=wanted, counts=report.counts
    ):
        warnings.warn(message, CoresetWarning, stacklevel=2)
    coreset = Coreset(
        indices=_users_rows(observations, solution.indices),
        weights=solution.weights,
        n_observations=observations.n_obs,
        n_distinct=int(np.count_nonzero(base_weights)),
        method=_named(method),
        weighting=_source(chosen, weighting),
        status=solution.status.value,
        objective=solution.objective,
        random_seed=int(random_seed) if isinstance(random_seed, int | np.integer) else None,
        history=_history(solution.history, report),
        settings=settings,
        loglikelihood=loglik,
    )
    verify_model(loglik, coreset.model, solution.indices, solution.weights)
    return coreset


# -- options ---------------------------------------------------------------------------------------


def _full_model(model: pm.Model | None) -> pm.Model:
    found: pm.Model = modelcontext(model)
    if WEIGHTS in found.named_vars:
        raise UnsupportedModelError(
            "This is the model of a coreset already. Build another from the full model."
        )
    return found


def _method(
    method: str | AnyMethod, tolerance: float | None, time_budget: float | None
) -> AnyMethod:
    chosen: Any = method
    if isinstance(method, str):
        if method not in _METHODS:
            names = list(_METHODS)
            raise InvalidOptionError(f"method={method!r} is unknown: use one of {names!r}.")
        chosen = _METHODS[method]()
    elif isinstance(method, type) or not isinstance(method, tuple(_METHODS.values())):
        raise InvalidOptionError(
            f"method={method!r} must be a name or an option object such as Pursuit()."
        )
    if time_budget is not None and not isinstance(chosen, RiemannianPursuit):
        raise InvalidOptionError(
            f"time_budget={time_budget}: {_named(method)} has no rounds; only method='auto' "
            "without a weighting has."
        )
    if time_budget is not None and not time_budget > 0:
        raise InvalidOptionError(
            f"time_budget={time_budget} must be a positive number of seconds, or None."
        )
    if tolerance is None:
        return chosen  # type: ignore[no-any-return]
    if "tolerance" not in {f.name for f in fields(chosen)}:
        raise InvalidOptionError(f"tolerance={tolerance}: {_named(method)} measures no divergence.")
    return replace(chosen, tolerance=tolerance)  # type: ignore[no-any-return]


def _weighting(weighting: str | Weighting | DrawsLike | None) -> Weighting:
    if weighting is None:
        return Subsample()
    if isinstance(weighting, type):
        raise InvalidOptionError(
            f"weighting is the class {weighting.__name__}: give an instance, with () behind it."
        )
    if isinstance(weighting, str):
        if weighting not in WEIGHTINGS:
            raise InvalidOptionError(
                f"weighting={weighting!r} is unknown: use one of {list(WEIGHTINGS)!r}, or draws."
            )
        return WEIGHTINGS[weighting]()
    return cast(Weighting, weighting) if hasattr(weighting, "draw") else UserDraws(weighting)


def _named(option: Any) -> str:  # noqa: ANN401
    if isinstance(option, str):
        return option
    return (
        repr(option) if is_dataclass(option) and not isinstance(option, Draws) else "user's draws"
    )


def _limit(method: AnyMethod, *, asked: bool) -> float | None:
    """Divergence in nats above which to warn: a tolerance that was asked for, or sets the size."""
    tolerance: float | None = getattr(method, "tolerance", None)
    changed = tolerance != getattr(type(method), "tolerance", None)
    return tolerance if asked or changed else None


def _size(size: int | None, observations: Observations, method: AnyMethod) -> int:
    if isinstance(method, Sensitivity) and method.epsilon is not None:
        if size is not None:
            raise InvalidOptionError(
                f"size={size} and epsilon={method.epsilon}: give one of them, for the size follows "
                "from epsilon."
            )
        return observations.n_obs
    if size is None:
        quadratic = rows_of_a_quadratic(observations.n_dims)
        largest = (
            (2 * quadratic, 100, 1_000)
            if isinstance(method, RiemannianPursuit)
            else (quadratic, 50, 500)
        )
        return min(observations.n_obs, int(np.clip(*largest)))
    try:
        whole = operator.index(size)
    except TypeError:
        raise InvalidOptionError(f"size={size!r} must be a whole number.") from None
    if not 1 <= whole <= observations.n_obs:
        raise InvalidOptionError(
            f"size={size} must lie between 1 and the number of observations, {observations.n_obs}."
        )
    return whole


def _source(method: AnyMethod, weighting: str | Weighting | DrawsLike | None) -> str:
    """Say where the draws came from at which rows were compared."""
    if isinstance(method, Uniform | Sensitivity):
        return "none"
    if isinstance(method, RiemannianPursuit | SparseVI | QuasiNewton):
        return "the coreset's posterior"
    return "subsample" if weighting is None else _named(weighting)


# -- rows and history -----------------------------------------------------------------------------


def _users_rows(observations: Observations, indices: np.ndarray) -> np.ndarray:
    """Positions in the user's own data, of which rows with missing values were left out."""
    kept = observations.positions
    return indices if kept is None else kept[indices]


def _base_weights(observations: Observations, *, collapse: bool) -> np.ndarray:
    if not collapse:
        return np.ones(observations.n_obs)
    weights = np.zeros(observations.n_obs)
    kept, counts = collapse_rows(list(observations.rows), observations.n_obs)
    weights[kept] = counts
    return weights


def _history(trace: Trace, report: Reporter) -> xr.Dataset:
    columns = {f.name: ("step", getattr(trace, f.name)) for f in fields(trace)}
    seconds = {f"seconds {part}": value for part, value in report.seconds.items()}
    return xr.Dataset(columns, attrs=seconds | report.counts | report.figures)
