"""Weighting distributions: draws at which a construction compares the log-likelihoods of all rows.

The closer a weighting distribution is to the posterior, the better a coreset of a given size.  Each
docstring states the cost in passes over the data.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.importance import EFFECTIVE_SHARE, MIN_DRAWS
from pymc_coresets.exceptions import InvalidOptionError, SamplingError, UnsupportedModelError
from pymc_coresets.options import one_of, whole_number
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import resampled
from pymc_coresets.sampling.sampler import CoresetSampler


class Weighting(Protocol):
    """A source of draws of the free variables."""

    def draw(self, sampler: CoresetSampler, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Return about `n_draws` draws for the model whose coresets `sampler` draws from."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Draws of the prior.  No pass over the data, but far from the posterior if N is large.

    Examples
    --------
    >>> Prior()
    Prior()
    """

    def draw(self, sampler: CoresetSampler, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Sample the free variables of the model forwards.

        Raises
        ------
        UnsupportedModelError
            If a variable's prior cannot be sampled, such as `pm.Flat`.
        """
        model = sampler.loglikelihood.observations.model
        _refuse_undrawable(model)
        names = [rv.name for rv in model.free_RVs]
        drawn = pm.draw([model[n] for n in names], n_draws, random_seed=rng)
        return Draws({n: np.asarray(v) for n, v in zip(names, drawn, strict=True)})


def _refuse_undrawable(model: pm.Model) -> None:
    """Raise an error that names the first variable without draws."""
    try:
        pm.draw(model.free_RVs, mode=WRITTEN_MODE)
    except NotImplementedError as error:
        for rv in model.free_RVs:
            try:
                pm.draw(rv, mode=WRITTEN_MODE)
            except NotImplementedError:
                break
        raise UnsupportedModelError(
            f"weighting='prior' needs draws of the prior, but that of {rv.name!r} cannot be "
            f"sampled ({str(error).splitlines()[0]}): use another prior, or "
            "weighting='subsample'."
        ) from error


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """The Laplace approximation of the full posterior: its mode and the curvature there.

    Costs one pass over the data per gradient of the optimiser (a few dozen), and 4 D for the
    Hessian, by central differences of the gradient.  Hierarchical models may have no mode: use
    `Subsample` for them.

    Examples
    --------
    >>> Laplace()
    Laplace()
    """

    def draw(self, sampler: CoresetSampler, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Find the mode of the full model and draw around it."""
        around = laplace(sampler.full_density, sampler.start)
        return sampler.space.constrain(around.draw(n_draws, rng=rng)[0])


@dataclass(frozen=True, kw_only=True)
class Subsample:
    """The posterior of a uniform coreset: m random rows, drawn with replacement, of equal weight.

    Costs no pass over the data.  Its centre is off by about sqrt(N/m) posterior standard
    deviations, which limits the accuracy of the tangent space, so choose m as large as affordable.

    Parameters
    ----------
    size : int, optional
        Number of rows m; by default 2,000, or 100 per free dimension if that is more, and at most
        all.
    sampler : {"nuts", "laplace"}
        A short NUTS run, or a Laplace approximation: faster, but hierarchical models may have no
        mode.
    tune : int
        Tuning steps of each of two NUTS chains.

    Raises
    ------
    InvalidOptionError
        If `size` is below 2, `tune` below 1, or the sampler has another name.

    Examples
    --------
    >>> Subsample(size=500, sampler="laplace").size
    500
    """

    size: int | None = None
    sampler: str = "nuts"
    tune: int = 400

    def __post_init__(self) -> None:
        if self.size is not None:
            whole_number("size", self.size, least=2)
        one_of("sampler", self.sampler, ["nuts", "laplace"])
        whole_number("tune", self.tune, least=1)

    def draw(self, sampler: CoresetSampler, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Sample the posterior of a uniform coreset."""
        wanted = self.size or max(2_000, 100 * sampler.n_dims)
        if wanted < sampler.n_rows:
            subsample = sampler.subsample(wanted, key=random_key(rng))
            rows, weights = subsample.rows, subsample.weights
        else:
            rows = sampler.loglikelihood.all_rows
            weights = rows.case_weights
        inner = sampler.with_kind(
            "laplace" if self.sampler == "laplace" else "nuts", tune=self.tune
        )
        try:
            return inner.draw(rows, weights, n_draws, rng=rng)
        except SamplingError as error:
            if self.sampler == "laplace":
                raise
            raise SamplingError(
                "NUTS failed on the uniform coreset for the weighting draws: "
                f"{error.message} Pass your own draws as weighting=..., or a larger "
                "Subsample(size=...)."
            ) from error


@dataclass(frozen=True, eq=False)
class UserDraws:
    """The user's own draws: a DataTree, a Dataset, or a mapping of names to arrays.

    At most 4,000 of them are used, picked at random.
    """

    draws: Any

    def draw(self, sampler: CoresetSampler, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Return all of them, or 4,000 (or `n_draws`, if that is more) at random."""
        shapes = sampler.loglikelihood.observations.shapes
        draws, most = Draws.of(self.draws, shapes), max(n_draws, 4_000)
        if draws.n_draws <= most:
            return draws
        return draws.take(np.sort(rng.choice(draws.n_draws, most, replace=False)))


#: The weighting distributions that have a name.
WEIGHTINGS: Mapping[str, type[Prior | Laplace | Subsample]] = {
    "prior": Prior,
    "laplace": Laplace,
    "subsample": Subsample,
}


def weighting_of(weighting: str | Weighting | DrawsLike | None) -> Weighting:
    """Return the weighting distribution of the user's name, object or draws.

    Raises
    ------
    InvalidOptionError
        If it is neither.

    Examples
    --------
    >>> weighting_of("prior")
    Prior()
    """
    if weighting is None:
        return Subsample()
    if isinstance(weighting, type):
        raise InvalidOptionError(
            f"weighting is the class {weighting.__name__}: pass an instance, "
            f"{weighting.__name__}()."
        )
    if isinstance(weighting, str):
        if weighting not in WEIGHTINGS:
            raise InvalidOptionError(
                f"weighting={weighting!r} is unknown: use one of {list(WEIGHTINGS)!r}, or draws."
            )
        return WEIGHTINGS[weighting]()
    if isinstance(weighting, Draws | xr.DataTree | xr.Dataset | Mapping):
        return UserDraws(weighting)
    if not callable(getattr(weighting, "draw", None)):
        raise InvalidOptionError(
            f"weighting={weighting!r} must be one of {list(WEIGHTINGS)!r}, an option object such "
            "as Subsample(), or draws: a DataTree, a Dataset, or a mapping of names to arrays."
        )
    return weighting


# -- draws during a construction -----------------------------------------------------------------


class Reserve:
    """Draws of changing coresets' posteriors, re-weighted from a reserve if possible.

    For methods that draw hundreds of times while the weights hardly change.  The reserve has four
    times the requested draws.  For other rows and weights they are re-weighted by
    ``exp(sum_n (w'_n - w_n) f_n)``, smoothed, and resampled; the sampler runs again only if Pareto
    k-hat exceeds 0.7, or the effective sample size falls below a quarter of the reserve (the number
    requested).  Re-weighting costs evaluations of the coreset's rows at the reserve, but no pass
    over the data.

    Parameters
    ----------
    sampler : CoresetSampler
        Fills the reserve, and evaluates log-likelihoods.

    Attributes
    ----------
    n_reused : int
        Number of calls answered from the reserve.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.rowlogp.evaluation import LogLikelihood
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=np.arange(5.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> reserve = Reserve(CoresetSampler(loglik, kind="laplace"))
    >>> rng, rows = np.random.default_rng(1), loglik.source.take(np.array([2, 3]))
    >>> for weight in (50.0, 51.0, 52.0):
    ...     draws = reserve.draw(rows, np.array([50.0, weight]), 200, rng=rng)
    >>> reserve.n_reused
    2
    """

    def __init__(self, sampler: CoresetSampler) -> None:
        self._sampler = sampler
        self._reserve: Draws | None = None
        self._own = np.zeros(0)
        self.n_reused = 0

    def draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows with the given weights.

        Raises
        ------
        SamplingError
            As `CoresetSampler.draw`.
        """
        reserve = self._reserve
        n_reserve = max(round(n_draws / EFFECTIVE_SHARE), MIN_DRAWS)
        summed = partial(self._sampler.loglikelihood.weighted_sum, rows=rows, weights=weights)
        if reserve is not None and reserve.n_draws >= n_reserve:
            step = summed(reserve, finite=False) - self._own
            chosen = resampled(np.arange(reserve.n_draws), step, n_draws, rng=rng)
            if chosen is not None:
                self.n_reused += 1
                return reserve.take(chosen)
        reserve = self._reserve = self._sampler.draw(rows, weights, n_reserve, rng=rng)
        self._own = summed(reserve)
        return reserve.take(rng.choice(reserve.n_draws, n_draws, replace=False))


class Samplers:
    """The samplers of one construction, made on first use.

    Parameters
    ----------
    loglik : LogLikelihood
        The log-likelihoods of the model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
    >>> Samplers(LogLikelihood(find_observations(model))).counts
    {}
    """

    def __init__(self, loglik: LogLikelihood) -> None:
        self.first = CoresetSampler(loglik)
        self._others: list[CoresetSampler] = []
        self._reserve: Reserve | None = None

    def for_many_draws(self) -> tuple[CoresetSampler, CoresetSampler, Callable[..., Draws]]:
        """Return Laplace approximations and, if there is no mode, a sampler with a reserve."""
        laplace, sampler = self.first.with_kind("laplace"), self.first.with_kind("auto")
        self._others, self._reserve = [laplace, sampler], Reserve(sampler)
        return laplace, sampler, self._reserve.draw

    @property
    def counts(self) -> dict[str, int]:
        """Counts of all samplers; empty if none was used."""
        each = [sampler.counts for sampler in (self.first, *self._others)]
        counts: Counter[str] = Counter()
        for own in each:
            if own["n_sampler_runs"]:
                counts.update(own)
        if self._reserve is not None and each[-1]["n_sampler_runs"]:
            counts["n_reused"] = self._reserve.n_reused
        return dict(counts)
