"""Weighting distributions: draws at which a construction compares the log-likelihoods of all rows.

The closer a weighting distribution is to the posterior, the better a coreset of a given size.  Each
docstring states the cost in passes over the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.exceptions import InvalidOptionError, SamplingError, UnsupportedModelError
from pymc_coresets.options import if_given, one_of, whole_number
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.sampling.curvature import laplace
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
        if_given(whole_number, "size", self.size, least=2)
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
