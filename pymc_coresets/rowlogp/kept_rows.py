"""The stored rows of a coreset: their data, and hashes of these and of their model."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import graph_inputs

from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.units.joined_units import kept_units, model_of_units
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_prototypes, likelihood_of_rows
from pymc_coresets.rows.executors import no_rows_for
from pymc_coresets.rows.first_reading import array_hash
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.rows.values import Rows

_PREFIX = "data "  # prefix of the columns, whose names may be those of other variables here
#: The labels of all units that kept ones represent, where others are gone.
REPRESENTED = "represented"


def kept_dataset(loglik: LogLikelihood, rows: Rows, weights: np.ndarray) -> xr.Dataset:
    """Return chosen rows with their data, weights, positions and places.

    Parameters
    ----------
    loglik : LogLikelihood
        Of rows that are read from a source.
    rows : Rows
        From this source.
    weights : ndarray of shape (len(rows),)

    Returns
    -------
    xarray.Dataset
        With the dimension ``row``: the variables ``weight``, ``case_weight``, ``position``,
        ``where``, and each column by its name after ``data``.  Of units, `kept_units` with the
        weight and the position of each.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets import open_rows
    >>> from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_rows
    >>> source = open_rows({"y": np.arange(100.0)})
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", source.head(10)["y"])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> wanted = RowsToRead(rows=source)
    >>> loglik = likelihood_of_rows(model, wanted, rng=np.random.default_rng(1))
    >>> kept = kept_dataset(loglik, loglik.source.at(np.array([4, 70])), np.array([50.0, 50.0]))
    >>> kept["data y"].values, kept["where"].values.tolist()
    (array([ 4., 70.]), ['row 4', 'row 70'])
    >>> rows_of_dataset(loglik.observations, kept).arrays
    (array([ 4., 70.]),)
    """
    observations = loglik.observations
    if isinstance(observations, UnitObservations):
        return _kept_units(observations, rows, weights)
    places = [loglik.source.place(int(position)) for position in rows.positions]
    columns = {
        f"{_PREFIX}{name}": (dims_of(name, array.ndim, {name: ["row"]}), array)
        for name, array in observations.by_name(rows).items()
    }
    kept = {
        "weight": ("row", weights),
        "case_weight": ("row", rows.case_weights),
        "position": ("row", rows.positions),
        "where": ("row", np.array(places, dtype=object)),
    }
    return xr.Dataset(kept | columns, attrs={"free_variables": _free_variables(observations)})


def _kept_units(observations: UnitObservations, rows: Rows, weights: np.ndarray) -> xr.Dataset:
    of_units = {"weight": ("unit", weights), "position": ("unit", rows.positions)}
    kept = kept_units(observations.source, rows.positions).assign(of_units)
    return kept.assign_attrs(free_variables=_free_variables(observations))


def rows_of_dataset(observations: Observations, kept: xr.Dataset) -> Rows:
    """Return the rows of such a dataset, for a model of the same columns.

    Raises
    ------
    InvalidDataError
        If the model has other free variables, or other data containers along the rows; or if case
        weights or places are missing, as in files of earlier versions.
    """
    names, stored = [row.name for row in observations.rows], arrays_of_dataset(kept)
    if kept.attrs["free_variables"] != _free_variables(observations) or {*names} != {*stored}:
        raise InvalidDataError(
            "The model has other free variables, or other data containers along the rows "
            f"({sorted(names)!r}), than the one that the coreset was built from "
            f"({sorted(stored)!r}): pass that one.",
            topic="coresets-in-files",
        )
    arrays = []
    for row in observations.rows:
        array = stored[row.name]
        if array.shape[1:] != row.values.shape[1:]:
            raise InvalidDataError(
                f"A row of {row.name!r} has shape {row.values.shape[1:]} in the model, but "
                f"{array.shape[1:]} in the coreset: pass the model that it was built from.",
                topic="coresets-in-files",
            )
        arrays.append(array.astype(row.values.dtype, copy=False))
    for name in ("case_weight", "where"):
        if name not in kept:
            raise InvalidDataError(
                f"The file has no {name!r} of its rows: it was stored by an earlier version, or is "
                "damaged. Build the coreset again.",
                topic="coresets-in-files",
            )
    return Rows(kept["position"].to_numpy(), kept["case_weight"].to_numpy(), tuple(arrays))


def columns_of_dataset(kept: xr.Dataset) -> dict[str, np.ndarray]:
    """Return one row of each column of such a dataset, with the column's shape and dtype."""
    return {name: array[0] for name, array in arrays_of_dataset(kept).items()}


def arrays_of_dataset(kept: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the columns of such a dataset by their names."""
    names = {str(name): array.to_numpy() for name, array in kept.data_vars.items()}
    return {n.removeprefix(_PREFIX): a for n, a in names.items() if n.startswith(_PREFIX)}


def for_other_priors(observations: Observations, kept: xr.Dataset) -> xr.Dataset:
    """Return such a dataset for a model that has other free variables."""
    return kept.assign_attrs(free_variables=_free_variables(observations))


def likelihood_of_stored(
    model: pm.Model, stored: Mapping[str, Any], wanted: RowsToRead
) -> LogLikelihood:
    """Derive the log-likelihoods of a stored coreset from its model.

    Parameters
    ----------
    model : pm.Model
        With all rows, or prototypes of them.
    stored : mapping of str
        The fields of the coreset: ``data``, ``indices``, ``n_observations``, ``n_distinct``.
    wanted : RowsToRead
        With the rows that the coreset was built from, if they are outside the model.

    Raises
    ------
    InvalidOptionError
        If there is an executor, but no rows.
    InvalidDataError
        If the model or the rows are not those that it was built from.
    """
    kept, indices = stored["data"], stored["indices"]
    if kept is None:
        if wanted.executor is not None:
            raise no_rows_for(wanted.executor)
        loglik = LogLikelihood(wanted.found_in(model), collapse="auto")
        if loglik.observations.n_obs != stored["n_observations"]:
            raise InvalidDataError(
                f"The coreset was built for {stored['n_observations']} observations, but the model "
                f"has {loglik.observations.n_obs}: pass the model that it was built from, with "
                "rows=open_rows(...) if it holds only some of its rows.",
                topic="coresets-in-files",
            )
        loglik.collapsed(collapse=False).source.at(indices)
        return loglik
    if "label" in kept:
        return likelihood_of_units(model, kept, wanted, stored["n_observations"])
    if not wanted.are_elsewhere:
        of_prototypes = likelihood_of_prototypes(model, columns_of_dataset(kept), wanted)
        rows_of_dataset(of_prototypes.observations, kept)  # raises if it is another model
        absent = AbsentRows(stored["n_distinct"], float(stored["n_observations"]))
        return of_prototypes.reading(absent)
    loglik = likelihood_of_rows(model, wanted, rng=np.random.default_rng(0))
    chosen, is_same = rows_of_dataset(loglik.observations, kept), False
    if loglik.n_rows == stored["n_distinct"] > max(indices, default=-1):
        is_same = all(map(np.array_equal, loglik.source.at(indices).arrays, chosen.arrays))
    if not is_same:
        raise InvalidDataError(
            f"The coreset was built from {stored['n_distinct']} other rows: open those, in their "
            "order, with open_rows, or build it again.",
            topic="coresets-in-files",
        )
    return loglik


def likelihood_of_units(
    model: pm.Model, kept: xr.Dataset, wanted: RowsToRead, n_observations: int
) -> LogLikelihood:
    """Fill a model with the units of a coreset that represent others, which are gone.

    Parameters
    ----------
    model : pm.Model
        With any data.
    kept : xarray.Dataset
        From `kept_dataset`.
    wanted : RowsToRead
        How units were found before.
    n_observations : int
        Number of all units.

    Raises
    ------
    InvalidDataError
        If the model is another one.
    """
    weighted = replace(wanted, case_weights=kept["weight"].to_numpy())
    units = weighted.found_in(model_of_units(model, [kept]))
    if kept.attrs["free_variables"] != _free_variables(units):
        raise InvalidDataError(
            f"The model has other free variables ({_free_variables(units)}) than the one that the "
            f"coreset was built from ({kept.attrs['free_variables']}): pass that one.",
            topic="coresets-in-files",
        )
    why = (
        "This coreset has a part of the units that it represents, with all their rows: it can be "
        "sampled, and their variables be drawn, but this needs all. Build a coreset of all units."
    )
    absent = AbsentRows(n_observations, float(n_observations), why)
    return LogLikelihood(units).reading(absent)


def _free_variables(observations: Observations) -> str:
    return json.dumps({name: observations.shapes[name] for name in sorted(observations.shapes)})


# -- models ----------------------------------------------------------------------------------------


class Densities(NamedTuple):
    """A few log-densities of a model, in nats, that identify it later.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_points)
        Log-likelihoods of some rows at points that depend on the sizes of the variables alone.
    prior : ndarray of shape (n_points,)
        The log-density of all other terms at these points.

    Examples
    --------
    >>> one = Densities(rows=np.zeros((1, 2)), prior=np.zeros(2))
    >>> one.same(Densities.read(one._replace(prior=np.ones(2)).text))
    (True, False)
    """

    rows: np.ndarray
    prior: np.ndarray

    @classmethod
    def of(cls, loglik: LogLikelihood, rows: Rows) -> Self:
        """Evaluate a model at normal numbers on the unconstrained scale; values may be infinite."""
        space, rng = loglik.observations.space, np.random.default_rng(0)
        points = np.zeros((4, space.n_dims))
        for _, columns in sorted(space.columns.items()):
            points[:, columns.ravel()] = 0.5 * rng.standard_normal((len(points), columns.size))
        with np.errstate(all="ignore"):
            values = loglik.matrix(space.constrain(points), rows, finite=False)
            return cls(rows=values, prior=loglik.rest.values(points))

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps({name: part.tolist() for name, part in self._asdict().items()})

    @classmethod
    def read(cls, text: str) -> Self:
        """Read them from JSON.

        Raises
        ------
        KeyError, ValueError, TypeError
            If it is something else.
        """
        found = json.loads(text)
        return cls(**{name: np.array(found[name], dtype=float) for name in cls._fields})

    def same(self, other: "Densities") -> tuple[bool, bool]:
        """Return whether the rows' log-likelihoods agree, and whether the other terms do.

        The tolerance allows for other processors, library versions and float32.
        """
        rows, prior = (
            one.shape == two.shape
            and bool(np.allclose(one, two, rtol=1e-5, atol=1e-6, equal_nan=True))
            for one, two in zip(self, other, strict=True)
        )
        return rows, prior


@dataclass(frozen=True, kw_only=True)
class Digests:
    """Digests that identify the model that a coreset was built from.

    Parameters
    ----------
    selected : str
        Of the free variables and of the data in the coreset's rows.
    every : str
        Of the data in all rows.
    densities : str
        Log-likelihoods of some rows, and the log-density of all others, as JSON, at points that
        depend on the sizes of the model's variables alone.
    """

    selected: str
    every: str
    densities: str


def digests(loglik: LogLikelihood, rows: Rows, *, of_data: bool) -> Digests:
    """Compute the digests of a model's free variables and data, and some log-densities.

    Digests depend on the names and contents of the arrays, not on their order in the model's graph.
    One pass over the data, at about a gigabyte per second.

    Parameters
    ----------
    loglik : LogLikelihood
        Of all rows.
    rows : Rows
        Those of the coreset.
    of_data : bool
        Whether the model holds all rows.

    Returns
    -------
    Digests

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> def hashes(y):
    ...     with pm.Model() as model:
    ...         pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array(y))
    ...     loglik = LogLikelihood(find_observations(model))
    ...     return digests(loglik, loglik.source.at(np.array([0, 1])), of_data=True)
    >>> one, other = hashes([1.0, 2.0, 3.0]), hashes([1.0, 2.0, 4.0])
    >>> one.selected == other.selected, one.every == other.every
    (True, False)
    """
    observations = loglik.observations
    densities = Densities.of(loglik, rows.take(slice(0, 20))).text
    if not of_data:
        return Digests(selected="", every="", densities=densities)
    used = set(graph_inputs([observations.loglik]))
    chosen = observations.numbers_of(rows.positions)
    arrays = [
        (row.name, np.moveaxis(row.values, row.axis, 0))
        for row in observations.rows
        if row.placeholder in used
    ]
    variables = [f"{name} {shape}" for name, shape in observations.shapes.items()]
    of_chosen = [f"{name} {array_hash(array[chosen]).hex()}" for name, array in arrays]
    of_all = [f"{name} {array_hash(array).hex()}" for name, array in arrays]
    return Digests(
        selected=_together([*variables, *of_chosen]), every=_together(of_all), densities=densities
    )


def compare_digests(stored: Digests, found: Digests) -> dict[str, Any]:
    """Raise for a model that a coreset was not built from; warn of changes outside its rows.

    Parameters
    ----------
    stored : Digests
        Of the model that it was built from.
    found : Digests
        Of the model that was given.

    Returns
    -------
    dict of str to object
        Fields that are invalid for this model, with the values to use instead.

    Raises
    ------
    InvalidDataError
        If the free variables, the data in the coreset's rows, or their likelihood differ.
    """
    if found.selected != stored.selected:
        raise InvalidDataError(
            "The model has other free variables, or other data in the coreset's rows, than "
            "the one that the coreset was built from: pass that one.",
            topic="coresets-in-files",
        )
    same_rows, same_prior = Densities.read(stored.densities).same(Densities.read(found.densities))
    if not same_rows:
        raise InvalidDataError(
            "The model has another likelihood than the one that the coreset was built from, or its "
            "variables have other bounds: pass that one, or build a coreset of this.",
            topic="coresets-in-files",
        )
    gone: dict[str, Any] = {}
    if found.every != stored.every:
        warn_user(
            "The model's data have changed in other rows than the coreset's: it was chosen for the "
            "old data, while check() and reweight() use the new. The draws of its build are "
            "dropped, so that sample() runs NUTS. Build it again if check() fails."
        )
        gone = {"proposal": None}
    if same_prior:
        return gone
    warn_user(
        "The model has other priors than the one that the coreset was built from: its diagnostics "
        "do not apply to this posterior, and the draws of its build are dropped, so that sample() "
        "runs NUTS. Use check() to measure its accuracy."
    )
    gone = dict.fromkeys(("certificate", "modes", "proposal", "built_from"))
    return gone | {"objective": math.nan}


def _together(parts: Iterable[str]) -> str:
    return blake2b("\0".join(sorted(parts)).encode(), digest_size=32).hexdigest()
