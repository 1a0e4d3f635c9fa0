"""Coresets as rows with their data, which another construction chooses from."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import xarray as xr

from pymc_coresets.advice import limitations, wanted_tolerance
from pymc_coresets.exceptions import (
    CoresetError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import template_of_rows
from pymc_coresets.potentials.kept_rows import kept_dataset
from pymc_coresets.potentials.remainder import refuse_unweighted
from pymc_coresets.reading.rewriting.quadratic import Quadratic
from pymc_coresets.reading.template.copies import settable_data
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.source import RowBlocks
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.solution import Solution, Status
from pymc_coresets.storage import Settings

__all__ = ["Part", "WeightedRows", "all_of", "reduced_by_pursuit", "required_likelihood"]


class WeightedRows(Protocol):
    """What a `Coreset` holds; see there."""

    @property
    def indices(self) -> np.ndarray: ...  # noqa: D102
    @property
    def weights(self) -> np.ndarray: ...  # noqa: D102
    @property
    def n_observations(self) -> int: ...  # noqa: D102
    @property
    def n_distinct(self) -> int: ...  # noqa: D102
    @property
    def objective(self) -> float: ...  # noqa: D102
    @property
    def history(self) -> xr.Dataset: ...  # noqa: D102
    @property
    def settings(self) -> Settings: ...  # noqa: D102
    @property
    def loglikelihood(self) -> LogLikelihood | None: ...  # noqa: D102
    @property
    def quadratic(self) -> Quadratic | None: ...  # noqa: D102
    @property
    def data(self) -> xr.Dataset | None: ...  # noqa: D102


def required_likelihood(coreset: WeightedRows) -> LogLikelihood:
    """Return the potentials of a coreset's rows.

    Raises
    ------
    CoresetError
        If it was read without its model.
    """
    if coreset.loglikelihood is None:
        raise CoresetError(
            "This coreset was read without its model: read it again with "
            "Coreset.from_netcdf(path, model=...)."
        )
    return coreset.loglikelihood


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A coreset as rows with their data, for a model with a template of the rows.

    Parameters
    ----------
    template : LogLikelihood
    kept : xarray.Dataset
        As `kept_dataset` makes it.
    n_rows : int
        Rows that it stands for: positions are below it.
    where : dict
        The arguments ``observed`` and ``dim`` of `template_of_rows`.
    """

    template: LogLikelihood
    kept: xr.Dataset
    n_rows: int
    where: dict[str, Any]

    @classmethod
    def of(cls, coreset: WeightedRows) -> Self:
        """Take the rows out of a coreset.

        Raises
        ------
        CoresetError
            If it was read without its model.
        UnsupportedModelError
            If its rows are not data of the model, or are cells of several dims; or it has a
            quadratic.
        """
        loglik, settings = required_likelihood(coreset), coreset.settings
        if coreset.quadratic is not None:
            raise UnsupportedModelError(
                "Most of what this coreset knows of its rows is in coreset.quadratic, and such "
                "coresets can be neither extended nor merged. Build one of all rows, or build the "
                "parts with method=RiemannianPursuit()."
            )
        if isinstance(settings["dim"], list) and len(settings["dim"]) > 1:
            raise UnsupportedModelError(
                f"The rows of this coreset are cells of dim={settings['dim']!r}: coresets of cells "
                "can be neither extended nor merged. Put the data into long format, one row for "
                "each cell, and build a coreset of that; or build one of all cells."
            )
        where: dict[str, Any] = {"observed": settings["observed"], "dim": settings["dim"]}
        where["backend"] = loglik.backend
        if coreset.data is not None:
            return cls(template=loglik, kept=coreset.data, n_rows=coreset.n_distinct, where=where)
        observations = loglik.observations
        refuse_unweighted(observations)
        if observations.sets:
            raise UnsupportedModelError(
                f"The rows of this coreset are of several terms, "
                f"{', '.join(s.names for s in observations.sets)}, with data of their own: such "
                "coresets can be neither extended nor merged. Build one of all rows."
            )
        held = settable_data(observations.model)
        columns = {n: v[0] for n, v in held.items() if v.shape[:1] == (observations.n_obs,)}
        template = template_of_rows(observations.model, columns, **where)
        rows = template.in_memory.at(coreset.indices)
        kept = kept_dataset(template, rows, coreset.weights)
        return cls(template=template, kept=kept, n_rows=observations.n_obs, where=where)


def all_of(source: InMemoryRows) -> Solution:
    """Take all rows, which are few."""
    union = Solution.sampled(source.all, source.all.base_weights)
    return replace(union, status=Status.UNION, objective=0.0)


def reduced_by_pursuit(
    template: LogLikelihood,
    source: RowBlocks,
    size: int,
    method: RiemannianPursuit,
    rng: np.random.Generator,
) -> tuple[Solution, dict[str, Any]]:
    """Choose at most `size` of some rows, count what that took, and warn of what limits them."""
    sampler = CoresetSampler(template.reading(source))
    solution = method.construct(sampler, size, rng=rng, propose=sampler.proposal)
    for message in limitations(
        solution,
        template.observations,
        n_obs=round(sampler.total_weight),
        size=size,
        tolerance=wanted_tolerance(method, asked=False),
        counts=sampler.counts,
        method=method,
    ):
        warn_user(message)
    return solution, dict(sampler.counts)
