"""Draws of variables for the levels of another model: known ones by label, new ones by chance."""

import logging
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, Chains
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.forward import Predictions, forward_graphs
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.rows.keyed import random_key

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Variable:
    """Where a model's entries of a free variable are in its draws; -1 along an axis if nowhere."""

    name: str
    draws: xr.DataArray
    dims: tuple[str, ...]
    places: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, model: pm.Model, name: str, shape: tuple[int, ...], draws: xr.DataArray) -> Self:
        """Find the entries of a variable of some shape; nowhere if the draws name its axes else."""
        dims = tuple(dims_of(name, len(shape), model.named_vars_to_dims))
        if draws.dims != (*SAMPLE_DIMS, *dims):
            return cls(name, draws, dims, ())
        sizes = zip(dims, shape, strict=True)
        return cls(name, draws, dims, tuple(_places(model, draws, dim, n) for dim, n in sizes))

    @property
    def changes(self) -> bool:
        """Whether the model has other entries than the draws, or in another order."""
        sizes = zip(self.places, self.draws.shape[len(SAMPLE_DIMS) :], strict=False)
        return any(not np.array_equal(place, np.arange(size)) for place, size in sizes)

    @property
    def new_axes(self) -> list[int]:
        """The axes along which there are new levels."""
        return [axis for axis, place in enumerate(self.places) if (place < 0).any()]

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the draws of the model's entries, (n_chains, n_draws, ...), and which are known.

        Those that are not known have the values of others.
        """
        values = self.draws.to_numpy()
        for axis, place in enumerate(self.places, start=len(SAMPLE_DIMS)):
            values = values.take(place, axis=axis)
        return values, reduce(np.logical_and.outer, (place >= 0 for place in self.places))


def with_levels_of(model: pm.Model, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Return draws of a model's free variables for its own levels, from those of another model.

    Entries are matched by their labels along each dimension.  Those of new levels are drawn from
    their distribution given all other variables, at each draw: this is their posterior, as no row
    has told anything of them.

    Parameters
    ----------
    model : pm.Model
        With the same free variables, perhaps for other levels.
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    rng : numpy.random.Generator

    Returns
    -------
    xarray.DataTree
        Unchanged if the draws have the levels of the model, in their order.

    Raises
    ------
    InvalidDataError
        If a model has other levels along an axis where the draws have labels that repeat.
    UnsupportedModelError
        If new levels depend on the known ones, as the later steps of a random walk do.

    Examples
    --------
    >>> def model_of(cities):
    ...     with pm.Model(coords={"city": cities}) as model:
    ...         pm.Normal("effect", pm.Normal("mean"), 1e-9, dims="city")
    ...     return model
    >>> draws = {"mean": (("chain", "draw"), [[5.0]])}
    >>> draws["effect"] = (("chain", "draw", "city"), [[[1.0, 2.0]]])
    >>> posterior = xr.Dataset(draws, coords={"city": ["Bern", "Oslo"]})
    >>> idata = xr.DataTree.from_dict({"posterior": posterior})
    >>> other = model_of(["Oslo", "Rome"])
    >>> found = with_levels_of(other, idata, np.random.default_rng(1))
    >>> found["posterior"]["effect"].values.round(3)
    array([[[2., 5.]]])
    """
    posterior = idata["posterior"].to_dataset()
    shapes = dict(zip((rv.name for rv in model.free_RVs), shapes_of(model.free_RVs), strict=True))
    known = {name: posterior[name] for name in shapes if name in posterior}
    every = (_Variable.of(model, name, shapes[name], draws) for name, draws in known.items())
    changed = {variable.name: variable for variable in every if variable.changes}
    if not changed:
        return idata
    held = posterior[[name for name in known if name not in changed]]
    held = held.drop_vars([name for name in held.coords if name not in held.dims])
    for variable in changed.values():  # in the order in which they depend on each other
        values, is_known = variable.known()
        if axes := variable.new_axes:
            _refuse_dependent(model, variable, axes)
            new = Predictions(
                model=model,
                graphs=forward_graphs(model, [variable.name], means=False),
                chains=Chains(held),
                key=random_key(rng),
                drawn=[name for name in shapes if name not in held],
            ).in_memory(progressbar=False)[0][variable.name]
            values = np.where(is_known, values, new.to_numpy())
            _log.warning(_of_new(variable, axes))
        dims, sizes = (*SAMPLE_DIMS, *variable.dims), values.shape[len(SAMPLE_DIMS) :]
        labels = {dim: variable.draws[dim].to_numpy() for dim in SAMPLE_DIMS}
        for dim, size in zip(variable.dims, sizes, strict=True):
            labels[dim] = _labels(model, dim, size)
        held = held.merge(xr.DataArray(values, labels, dims, variable.name).to_dataset())
    return idata.assign(posterior=xr.DataTree(held.assign_attrs(posterior.attrs)))


def _labels(model: pm.Model, dim: str, size: int) -> Any:  # noqa: ANN401
    """Return the labels of a model along a dimension; numbers where it has none."""
    labels = model.coords.get(dim)
    return np.arange(size) if labels is None else list(labels)


def _places(model: pm.Model, draws: xr.DataArray, dim: str, size: int) -> np.ndarray:
    """Return where the entries of a model along a dimension are among the draws'; -1 if nowhere."""
    labels, wanted = pd.Index(draws[dim].to_numpy()), _labels(model, dim, size)
    if list(labels) == list(wanted):
        return np.arange(size)
    if not labels.is_unique:
        raise InvalidDataError(
            f"The draws have labels along {dim!r} that repeat, and the model has others: which of "
            "its entries are known cannot be told. Give each entry a label of its own.",
            topic="draws",
        )
    places: np.ndarray = labels.get_indexer(wanted)
    return places


def _refuse_dependent(model: pm.Model, variable: _Variable, axes: list[int]) -> None:
    """Refuse new levels along an axis on which the entries of a distribution are not independent.

    Raises
    ------
    UnsupportedModelError
    """
    rv = model[variable.name]
    transform = model.rvs_to_transforms[rv]
    # Of ordered variables, the transformation joins entries that are independent otherwise.
    n_joint = max(getattr(each, "ndim_supp", 0) for each in (rv.owner.op, transform))
    if max(axes) >= len(variable.places) - n_joint:
        raise UnsupportedModelError(
            f"The model has new levels along {variable.dims[max(axes)]!r}, where the entries of "
            f"{variable.name!r} depend on each other: they cannot be drawn beside the known ones. "
            "Pass a model with the levels of the draws.",
            topic="draws",
        )


def _of_new(variable: _Variable, axes: list[int]) -> str:
    numbers = [
        f"{(variable.places[axis] < 0).sum():,} of {len(variable.places[axis]):,} entries along "
        f"{variable.dims[axis]!r}"
        for axis in axes
    ]
    return (
        f"{variable.name!r} has no draws of {' and '.join(numbers)}: these are drawn from their "
        "distribution given the other variables."
    )
