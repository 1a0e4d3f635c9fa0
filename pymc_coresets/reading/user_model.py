"""The user's model: which one is meant, the data that it held, and copies with other rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm
from pytensor.graph import Constant, FunctionGraph, Variable, ancestors
from scipy import sparse

from pymc_coresets.compat.neighbours import held_model
from pymc_coresets.compat.pymc_api import (
    coords_of,
    fgraph_from_model,
    model_from_fgraph,
    modelcontext,
    set_coords,
)
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError

#: What to do where other data lie in the user's model.
PUT_BACK = "Put the old data back for this call, or build a coreset of the new ones."

type _Labels = tuple[Any, ...] | None


def current_model() -> pm.Model | None:
    """Return the model of the context, or None outside of any.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     current_model() is model
    True
    >>> current_model() is None
    True
    """
    try:
        return modelcontext(None)
    except TypeError:
        return None


def given_model(model: object) -> pm.Model:
    """Return the model that was passed or, for None, that of the context.

    Parameters
    ----------
    model : pm.Model or None
        What the user passed, or what holds one, see `held_model`.

    Returns
    -------
    pm.Model

    Raises
    ------
    InvalidOptionError
        If it is not a model, or None outside of any model's context.

    Examples
    --------
    >>> given_model("hello")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: model is a str, but must be a pm.Model.
    (docs: troubleshooting#arguments)
    """
    found = current_model() if model is None else held_model(model)
    if found is None:
        raise InvalidOptionError(
            "There is no model here: pass model=..., or call this inside `with pm.Model():`."
        )
    if not isinstance(found, pm.Model):
        others = f" Other options have names, as draws={model}." if isinstance(model, int) else ""
        raise InvalidOptionError(
            f"model is a {type(model).__name__}, but must be a pm.Model.{others}"
        )
    return found


def data_of(variable: Constant | SharedVariable) -> np.ndarray:
    """Return what a data container of a model holds, or was frozen to; not a copy.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    >>> data_of(x)
    array([0., 1., 2.])
    """
    if isinstance(variable, Constant):
        frozen: np.ndarray = variable.data
        return frozen
    held: np.ndarray = variable.get_value(borrow=True)
    return held


def settable_data(model: pm.Model) -> dict[str, np.ndarray]:
    """Return what the data containers hold that other data can be put into; not copies.

    Raises
    ------
    UnsupportedModelError
        If one holds a sparse matrix.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    >>> settable_data(model)
    {'x': array([0., 1., 2.])}
    """
    held = {str(v.name): data_of(v) for v in model.data_vars if isinstance(v, SharedVariable)}
    for name, values in held.items():
        if sparse.issparse(values):
            raise UnsupportedModelError(
                f"The data container {name!r} holds a sparse matrix, with which PyMC cannot "
                "sample. Use pytensor.shared(...) in place of pm.Data."
            )
    return held


def labels_of(model: pm.Model) -> dict[str, tuple[Any, ...]]:
    """Return the labels of the dimensions that have some.

    Examples
    --------
    >>> with pm.Model(coords={"dog": ["a", "b"]}) as model:
    ...     model.add_coord("trial", length=3)
    >>> labels_of(model)
    {'dog': ('a', 'b')}
    """
    return {dim: labels for dim, labels in model.coords.items() if labels is not None}


def copy_with_rows(model: pm.Model, rows: Mapping[str, np.ndarray]) -> pm.Model:
    """Copy a model, and put other rows into the data containers of the copy.

    Parameters
    ----------
    model : pm.Model
        Left as it is.
    rows : mapping of str to ndarray
        New values of some containers.

    Returns
    -------
    pm.Model

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(5.0))
    >>> copy_with_rows(model, {"x": np.ones(2)})["x"].get_value(), len(x.get_value())
    (array([1., 1.]), 5)
    """
    fgraph, _ = fgraph_from_model(convertible(model))
    copy = converted_back(model, fgraph)
    for name, values in rows.items():
        copy[name].set_value(values)
    return copy


def without_variables(model: pm.Model, names: Collection[str]) -> pm.Model:
    """Copy a model without some free variables, and without what is computed from them.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a"), pm.Normal("b")
    ...     twice = pm.Deterministic("twice", 2 * b)
    >>> list(without_variables(model, ["b"]).named_vars)
    ['a']
    """
    fgraph, memo = fgraph_from_model(convertible(model))
    gone = {memo[model[name]] for name in names}
    kept = [v for v in fgraph.outputs if gone.isdisjoint(ancestors([v]))]
    smaller = FunctionGraph(outputs=kept, clone=False)
    set_coords(smaller, *coords_of(fgraph))
    return converted_back(model, smaller)


def converted_back(
    model: pm.Model,
    fgraph: FunctionGraph,
    renamed: Callable[[Sequence[str | None]], Sequence[str | None]] = tuple,
) -> pm.Model:
    """Convert the graph of a model into a model, with what `convertible` leaves out."""
    copy = model_from_fgraph(fgraph, mutate_fgraph=True)
    carry_over(model, copy, renamed)
    return copy


def carry_over(
    model: pm.Model,
    copy: pm.Model,
    renamed: Callable[[Sequence[str | None]], Sequence[str | None]] = tuple,
) -> None:
    """Give a copy of `convertible` what that leaves out of the model, for the variables it has.

    Parameters
    ----------
    model, copy : pm.Model
        A point of one is then one of the other: the free variables are in the same order.
    renamed : callable
        Returns the dims of the copy from those of the model.

    Raises
    ------
    UnsupportedModelError
        If an initial value is symbolic.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a", initval=2.0), pm.Normal("b")
    ...     x = pm.Data("x", np.ones((5, 2)), dims=("row", None))
    >>> with pm.Model() as copy:
    ...     b, a, x = pm.Normal("b"), pm.Normal("a"), pm.Data("x", np.ones((5, 2)))
    >>> carry_over(model, copy)
    >>> copy.free_RVs, copy.named_vars_to_dims["x"], float(copy.rvs_to_initial_values[a])
    ([a, b], ('row', None), 2.0)
    """
    places = {rv.name: place for place, rv in enumerate(model.free_RVs)}
    copy.free_RVs.sort(key=lambda rv: places[rv.name])
    for rv, value in model.rvs_to_initial_values.items():
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise UnsupportedModelError(
                f"{rv.name!r} has a symbolic initial value, which cannot be carried over to the "
                "coreset model. Give it as numbers (initval=...), or leave it out."
            )
        if value is not None and rv.name in copy.named_vars:
            copy.set_initval(copy[rv.name], value)
    for name, dims in model.named_vars_to_dims.items():
        if dims and None in dims and name in copy.named_vars:
            copy.named_vars_to_dims[name] = renamed(dims)


def convertible(model: pm.Model) -> pm.Model:
    """Return a view of the model without what PyMC's conversion refuses.

    Those are initial values, and dims with unnamed entries; both are carried over by name.  The
    view shares all else with the user's model, which other threads may be reading.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", initval=2.0)
    >>> list(convertible(model).rvs_to_initial_values.values())
    [None]
    """
    dims = model.named_vars_to_dims
    view = object.__new__(type(model))
    vars(view).update(
        vars(model),
        rvs_to_initial_values=dict.fromkeys(model.rvs_to_initial_values),
        named_vars_to_dims={n: d for n, d in dims.items() if not d or None not in d},
    )
    return view


@dataclass(frozen=True, eq=False)
class ModelSnapshot:
    """The user's model and its data, without copies: `pm.set_data` leaves the old arrays alone.

    Attributes
    ----------
    live : pm.Model
        The user's, in which other data may lie by now.
    values : mapping of str to ndarray
        Previous values of each data container.
    lengths : mapping of str to int
        Of the dimensions whose length may change.
    labels : mapping of str to tuple or None
        Coordinates of the dimensions.
    terms : tuple of str
        Random variables and potentials that the model had.
    imputed : frozenset of str
        Its free variables for missing outcomes, which depend on the others, and none on them.
    integrated : frozenset of str
        Its free variables that are integrated out of the likelihood.
    """

    live: pm.Model
    values: Mapping[str, np.ndarray]
    lengths: Mapping[str, int]
    labels: Mapping[str, _Labels]
    terms: tuple[str, ...]
    imputed: frozenset[str] = frozenset()
    integrated: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, model: pm.Model, without: Collection[str] = (), imputed: Collection[str] = ()
    ) -> Self:
        """Take down what a model holds now.

        Parameters
        ----------
        model : pm.Model
        without : collection of str
            Containers of prototype rows, in which any rows do.
        imputed : collection of str
            Free variables for missing outcomes.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     x = pm.Data("x", np.arange(3.0))
        ...     snapshot = ModelSnapshot.of(model)
        ...     pm.set_data({"x": np.ones(2)})
        >>> snapshot.changed, snapshot.model["x"].get_value()
        (['x'], array([0., 1., 2.]))
        """
        moved = {dim for name in without for dim in model.named_vars_to_dims.get(name) or ()}
        return cls(
            model,
            {n: values for n, values in settable_data(model).items() if n not in without},
            {dim: length for dim, length in _lengths(model).items() if dim not in moved},
            {dim: labels for dim, labels in model.coords.items() if dim not in moved},
            terms_of(model),
            frozenset(imputed),
        )

    @property
    def changed(self) -> list[str]:
        """The containers and dimensions of the user's model that hold something else now."""
        values, lengths, coords = settable_data(self.live), _lengths(self.live), self.live.coords
        resized = {dim for dim, length in self.lengths.items() if lengths[dim] != length}
        moved = {d for d, old in self.labels.items() if old is not coords[d] and old != coords[d]}
        other = [name for name, old in self.values.items() if not _same(old, values[name])]
        return other + sorted(resized | moved)

    @property
    def whole(self) -> pm.Model:
        """The user's model; a copy that holds the old data, where it holds others now."""
        return self._put_back if self.changed else self.live

    @property
    def model(self) -> pm.Model:
        """The same; a copy without missing outcomes and what is integrated out, if anything is."""
        return self._without_some if self.imputed or self.integrated else self.whole

    @cached_property
    def _without_some(self) -> pm.Model:
        model = self.whole
        copy = without_variables(model, self.imputed | self.integrated)
        for name, values in settable_data(model).items():
            if name in copy.named_vars:
                copy[name].set_value(values, borrow=True)  # no copies of the data
        return copy

    @cached_property
    def _put_back(self) -> pm.Model:
        copy = copy_with_rows(self.live, self.values)
        copy.coords.update(self.labels)
        for dim, length in self.lengths.items():
            copy.dim_lengths[dim].set_value(np.array(length))
        return copy

    def unchanged(self, remedy: str) -> pm.Model:
        """Return the user's model itself.

        Raises
        ------
        InvalidDataError
            If it holds other data now.
        """
        if self.changed:
            raise InvalidDataError(
                "The data of the model are not those that the coreset represents: "
                f"pm.set_data has changed {self.changed!r}. {remedy}"
            )
        return self.live


def _lengths(model: pm.Model) -> dict[str, int]:
    shared = {d: v for d, v in model.dim_lengths.items() if isinstance(v, SharedVariable)}
    return {dim: int(length.get_value()) for dim, length in shared.items()}


def _same(old: np.ndarray, new: np.ndarray) -> bool:
    if old is new:
        return True
    masked = np.array_equal(np.ma.getmaskarray(old), np.ma.getmaskarray(new))
    floats = old.dtype.kind == new.dtype.kind == "f"
    return masked and np.array_equal(old, new, equal_nan=floats)


def terms_of(model: pm.Model) -> tuple[str, ...]:
    """Return the names of what the log-density of a model is the sum of.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     a = pm.Normal("a")
    ...     b = pm.Potential("b", 2 * a)
    >>> terms_of(model)
    ('a', 'b')
    """
    return tuple(str(getattr(v, "name", v)) for v in (*model.basic_RVs, *model.potentials))
