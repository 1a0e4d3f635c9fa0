"""A model with the data that it held when its rows were found, whatever `pm.set_data` puts in."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm

from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.reading.template.copies import copy_with_rows, settable_data

#: What to do where other data lie in the user's model.
PUT_BACK = "Put the old data back for this call, or build a coreset of the new ones."

type _Labels = tuple[Any, ...] | None


@dataclass(frozen=True, eq=False)
class HeldModel:
    """The user's model and its data, without copies: `pm.set_data` leaves the old arrays alone.

    Attributes
    ----------
    live : pm.Model
        The user's, in which other data may lie by now.
    values : mapping of str to ndarray
        What each data container held.
    lengths : mapping of str to int
        Of the dimensions whose length may change.
    labels : mapping of str to tuple or None
        Coordinates of the dimensions.
    terms : tuple of str
        Random variables and potentials that the model had.
    """

    live: pm.Model
    values: Mapping[str, np.ndarray]
    lengths: Mapping[str, int]
    labels: Mapping[str, _Labels]
    terms: tuple[str, ...]

    @classmethod
    def of(cls, model: pm.Model, without: Collection[str] = ()) -> Self:
        """Take down what a model holds now.

        Parameters
        ----------
        model : pm.Model
        without : collection of str
            Containers of a template of rows, in which any rows do.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     x = pm.Data("x", np.arange(3.0))
        ...     held = HeldModel.of(model)
        ...     pm.set_data({"x": np.ones(2)})
        >>> held.changed, held.model["x"].get_value()
        (['x'], array([0., 1., 2.]))
        """
        moved = {dim for name in without for dim in model.named_vars_to_dims.get(name) or ()}
        return cls(
            model,
            {n: values for n, values in settable_data(model).items() if n not in without},
            {dim: length for dim, length in _lengths(model).items() if dim not in moved},
            {dim: labels for dim, labels in model.coords.items() if dim not in moved},
            terms_of(model),
        )

    @property
    def changed(self) -> list[str]:
        """The containers and dimensions of the user's model that hold something else now."""
        values, lengths, coords = settable_data(self.live), _lengths(self.live), self.live.coords
        resized = {dim for dim, length in self.lengths.items() if lengths[dim] != length}
        moved = {dim for dim, old in self.labels.items() if old != coords[dim]}
        other = [name for name, old in self.values.items() if not _same(old, values[name])]
        return other + sorted(resized | moved)

    @property
    def model(self) -> pm.Model:
        """The user's model; a copy that holds the old data, where it holds others now."""
        return self._put_back if self.changed else self.live

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
                "Your model holds other data now than those that the coreset stands for: "
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
