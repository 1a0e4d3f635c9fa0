"""Draws of variables for the levels of another model: known ones by label, new ones by chance."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pytensor.graph import Variable, ancestors

from pymc_coresets.compat.pytensor_api import XTensorVariable
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, Chains
from pymc_coresets.display import counted
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.forward import Predictions, forward_graphs
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.units.labels import texts_of
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


def refuse_lost(model: pm.Model, idata: xr.DataTree, lost: Mapping[str, Collection[str]]) -> None:
    """Raise if a model has levels that are not new, but whose rows and draws are gone.

    Parameters
    ----------
    model : pm.Model
    idata : xarray.DataTree
        Draws, with a group ``posterior``.
    lost : mapping of str to collection of str
        Labels of such levels, see `texts_of`, by their dimension.

    Raises
    ------
    InvalidDataError

    Examples
    --------
    >>> with pm.Model(coords={"city": ["Bern", "Oslo"]}) as model:
    ...     effect = pm.Normal("effect", dims="city")
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset(coords={"city": ["Bern"]})})
    >>> refuse_lost(model, idata, {"city": {"Rome"}})
    """
    for dim, labels in lost.items():
        coords = idata["posterior"].coords
        drawn = texts_of(coords[dim].to_numpy() if dim in coords else ())
        found = set(labels).intersection(texts_of(model.coords.get(dim) or ())).difference(drawn)
        if found:
            raise InvalidDataError(
                f"Rows of {counted(len(found), 'level')} of {dim!r} are gone, such as those of "
                f"{min(found)!r}, which are not new to the coreset: drawn as new ones, levels "
                "would be as if they had none. Leave them out of the model, or predict them with "
                "draws from a coreset that has their rows.",
                topic="draws",
            )


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
        If a model has other levels along an axis where the draws have labels that repeat, or where
        it or the draws have no labels.
    UnsupportedModelError
        If new levels depend on the known ones, as the later steps of a random walk do, or a
        potential on them.

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
    labels = {dim: posterior[dim].to_numpy() for dim in SAMPLE_DIMS}
    held = posterior[[name for name in known if name not in changed]].assign_coords(labels)
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
        own = {dim: (dim, found.to_numpy()) for dim, found in _labels(model, variable.dims).items()}
        data = {variable.name: ((*SAMPLE_DIMS, *variable.dims), values)}
        held = held.merge(xr.Dataset(data, labels | own))
    return idata.assign(posterior=xr.DataTree(held.assign_attrs(posterior.attrs)))


def _labels(model: pm.Model, dims: Iterable[str]) -> dict[str, pd.Index]:
    """Return the labels of a model along some dimensions, of those that have any."""
    held = {dim: model.coords.get(dim) for dim in dims}
    return {dim: pd.Index(labels) for dim, labels in held.items() if labels is not None}


def _places(model: pm.Model, draws: xr.DataArray, dim: str, size: int) -> np.ndarray:
    """Return where the entries of a model along a dimension are among the draws'; -1 if nowhere."""
    of_model = _labels(model, [dim])
    if dim not in of_model or dim not in draws.coords:
        if size == draws.sizes[dim]:
            return np.arange(size)
        whose = "the draws have" if dim in of_model else "the model has"
        raise InvalidDataError(
            f"{draws.name!r} has {size:,} entries along {dim!r} in the model, and "
            f"{draws.sizes[dim]:,} in the draws, and {whose} no labels there: which entries are "
            "known cannot be told. Give that dimension a name and labels (dims, coords) in both.",
            topic="draws",
        )
    labels, wanted = pd.Index(draws[dim].to_numpy()), of_model[dim]
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
    """Refuse new levels whose distribution given the known ones is not that in the model.

    Raises
    ------
    UnsupportedModelError
        If the entries of a distribution along that axis are not independent, or a potential depends
        on them.
    """
    rv, dims = model[variable.name], [variable.dims[axis] for axis in axes]
    if joint := _joint_axes(rv, model.rvs_to_transforms[rv]).intersection(axes):
        raise UnsupportedModelError(
            f"The model has new levels along {variable.dims[max(joint)]!r}, where the entries of "
            f"{variable.name!r} depend on each other: they cannot be drawn beside the known ones. "
            "Pass a model with the levels of the draws.",
            topic="draws",
        )
    on_it = [v.name for v in model.potentials if rv in ancestors([v])]
    if on_it:
        raise UnsupportedModelError(
            f"The model has new levels of {variable.name!r} along {dims!r}, and the potentials "
            f"{on_it!r} depend on them: they cannot be drawn from their distribution. Write the "
            "potential as a distribution, or pass a model with the levels of the draws.",
            topic="draws",
        )


def _joint_axes(rv: Variable, transform: object) -> set[int]:
    """Return the axes of a variable along which its entries are not independent."""
    assert rv.owner is not None
    if isinstance(rv, XTensorVariable):
        joint = getattr(rv.owner.op, "core_dims", ((), rv.type.dims))[1]
        return {axis for axis, dim in enumerate(rv.type.dims) if dim in joint}
    # Of ordered variables, the transformation joins entries that are independent otherwise.
    n_joint = max(getattr(each, "ndim_supp", 0) for each in (rv.owner.op, transform))
    return set(range(rv.type.ndim - n_joint, rv.type.ndim))


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
