"""Models that hold prototype rows: their data containers, and what they may not contain."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import pymc as pm
from pytensor.graph import Constant, Variable, ancestors
from pytensor.tensor import TensorType, TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.reading.user_model import labels_of, settable_data


class ColumnLike(Protocol):
    """Shape and dtype of a column of the rows, known before it is read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its entry in one row."""

    @property
    def dtype(self) -> np.dtype:
        """Of its entries."""


@dataclass(frozen=True, eq=False)
class Prototypes:
    """A few rows in a model's data containers, which stand for all; false if there are none.

    Attributes
    ----------
    values : mapping of str to ndarray
        Values of each container, with the rows along the first axis.
    inputs : mapping of str to TensorVariable
        The input for each container in the graphs.
    n_rows : int
        How many rows they hold.
    """

    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    inputs: Mapping[str, TensorVariable] = field(default_factory=dict)
    n_rows: int = 0

    def __bool__(self) -> bool:
        return bool(self.values)

    @classmethod
    def of(cls, model: pm.Model, columns: Mapping[str, ColumnLike]) -> Self:
        """Take the containers of a model that have the names of columns.

        Raises
        ------
        UnsupportedModelError
            If there are no columns, none of them has a container, or the rows have coords.
        InvalidDataError
            If they have another shape or another kind of numbers than the columns, or different
            numbers of rows, or fewer than two.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     x = pm.Data("x", np.arange(5.0))
        >>> Prototypes.of(model, {"x": np.zeros(())}).n_rows
        5
        """
        if not columns:
            raise UnsupportedModelError(
                "The rows are not in any pm.Data of the model, so that no others can take their "
                "place: put each array that has one entry for each row into a pm.Data, such as "
                "pm.Data('x', x), and build the coreset of that model."
            )
        values = {n: np.asarray(v) for n, v in settable_data(model).items() if n in columns}
        if not values:
            name = next(iter(columns))
            raise UnsupportedModelError(
                f"The rows have the columns {list(columns)!r}, but the model has no pm.Data of "
                "these names: put some rows of each array that has one entry for each row into a "
                f"pm.Data of its name, such as pm.Data({name!r}, rows.head(1_000)[{name!r}])."
            )
        for name, value in values.items():
            check_column(name, value, columns[name])
        lengths = {name: len(value) for name, value in values.items()}
        n_rows = next(iter(lengths.values()))
        if set(lengths.values()) != {n_rows} or n_rows < 2:
            raise InvalidDataError(
                f"The model's data containers hold {lengths} rows: give all of them the same rows, "
                "two at least, such as those of rows.head(1_000)."
            )
        _refuse_coords(model, values)
        inputs = {
            name: TensorType(str(value.dtype), shape=value.shape)(name=name)
            for name, value in values.items()
        }
        return cls(values, inputs, n_rows)

    @property
    def given(self) -> dict[Variable, np.ndarray]:
        """The containers that the inputs replace."""
        return {variable: self.values[name] for name, variable in self.inputs.items()}

    def refuse_other_uses(self, model: pm.Model, summarised: Collection[str]) -> None:
        """Refuse a model in which more than the likelihood is computed from rows.

        Parameters
        ----------
        model : pm.Model
        summarised : collection of str
            The terms that are summarised, and the deterministics along the rows: no coreset's model
            has them.

        Raises
        ------
        UnsupportedModelError
            If a variable that stays in the coreset's model is computed from rows; or if data have
            the dimension of the rows, but no column.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     x = pm.Data("x", np.arange(5.0))
        ...     spread = pm.Normal("spread", 0, x.std())
        >>> prototypes = Prototypes.of(model, {"x": np.zeros(())})
        >>> prototypes.refuse_other_uses(model, [])
        Traceback (most recent call last):
        pymc_coresets.exceptions.UnsupportedModelError: 'spread' stays in the coreset's model, but
        is computed from 'x', of whose rows this model holds prototypes only. Compute what it needs
        beforehand, or leave it out. (docs: troubleshooting#models-that-are-refused)
        """
        containers = {model[name] for name in self.values}
        dims_of_rows = row_dims(model, self.values)
        for variable in [*model.basic_RVs, *model.potentials, *model.deterministics]:
            found = containers.intersection(ancestors([variable]))
            if found and variable.name not in summarised:
                raise UnsupportedModelError(
                    f"{variable.name!r} stays in the coreset's model, but is computed from "
                    f"{min(v.name for v in found)!r}, of whose rows this model holds prototypes "
                    "only. Compute what it needs beforehand, or leave it out."
                )
        for variable in model.data_vars:
            dims = model.named_vars_to_dims.get(variable.name) or ()
            if variable.name not in self.values and dims_of_rows.intersection(dims):
                raise UnsupportedModelError(
                    f"{variable.name!r} has the dimension of the rows, but the rows have no column "
                    "of its name: name its column, or leave it out."
                )


def check_column(name: str, values: np.ndarray, column: ColumnLike) -> None:
    """Refuse a column that does not fit into the data container of its name.

    Raises
    ------
    InvalidDataError
        If its entry in a row has another shape, or numbers that the container cannot hold.
    """
    remedy = f"let both be alike, as in pm.Data({name!r}, rows.head(1_000)[{name!r}])."
    if values.ndim == 0 or values.shape[1:] != tuple(column.shape):
        raise InvalidDataError(
            f"A row of the column {name!r} has shape {tuple(column.shape)}, but pm.Data({name!r}) "
            f"has shape {values.shape}: {remedy}"
        )
    if not np.can_cast(column.dtype, values.dtype, casting="same_kind"):
        raise InvalidDataError(
            f"The column {name!r} holds {np.dtype(column.dtype)}, but pm.Data({name!r}) "
            f"{values.dtype}: {remedy}"
        )


def row_dims(model: pm.Model, names: Collection[str]) -> set[str]:
    """Return the first dimensions of some data containers."""
    dims = (model.named_vars_to_dims.get(name) or () for name in names)
    return {str(dim) for own in dims for dim in own[:1] if dim}


def _refuse_coords(model: pm.Model, names: Collection[str]) -> None:
    for dim in sorted(row_dims(model, names) & labels_of(model).keys()):
        raise UnsupportedModelError(
            f"The dimension {dim!r} of the rows has coords, which can only label prototypes: "
            "leave them out."
        )


def not_row_by_row(what: str) -> UnsupportedModelError:
    """Return the error for a row of the likelihood that needs more than a row of the containers.

    Examples
    --------
    >>> raise not_row_by_row("The rows of 'x' are sliced")
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The rows of 'x' are sliced, but the model holds
    prototype rows only: row n of the likelihood must be computed from row n of its pm.Data.
    Compute this beforehand, and name it as a column in a pm.Data, or give the model its value.
    (docs: troubleshooting#models-that-are-refused)
    """
    return UnsupportedModelError(
        f"{what}, but the model holds prototype rows only: row n of the likelihood must be "
        "computed from row n of its pm.Data. Compute this beforehand, and name it as a column in a "
        "pm.Data, or give the model its value."
    )


def constant_of_rows(variable: Variable, axis: int) -> UnsupportedModelError:
    """Return the error for data along the rows that are not in a container which `rows` names."""
    values = np.ravel(variable.data) if isinstance(variable, Constant) else np.empty(0)
    first = f" ({', '.join(map(str, values[:3].tolist()))}, ...)" if len(values) else ""
    name = repr(variable.name) if variable.name else "An unnamed array"
    n_rows = variable.type.shape[axis]
    return not_row_by_row(f"{name}{first} is a constant of {n_rows} rows in the likelihood")


def taken_over_rows(variable: Variable, row_inputs: Collection[Variable]) -> UnsupportedModelError:
    """Return the error for what is computed from several rows.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> taken_over_rows(x.max(), [x]).message[:63]
    "Max{axes=None} in the likelihood is taken over all rows of 'x',"
    """
    below = list(ancestors([variable]))
    names = sorted(f"{v.name!r}" for v in set(row_inputs) & set(below))
    nodes = [v.owner for v in below if not ops.is_input(v)]
    row_by_row = ops.Elemwise | ops.DimShuffle | ops.TypeCastingOp
    others = [n for n in nodes if not isinstance(n.op, row_by_row)]
    reductions = [n for n in others if isinstance(n.op, ops.CAReduce)]
    found = [*reductions, *others, *nodes]  # the first most likely takes the rows together
    operation = str(found[0].op) if found else repr(variable.name)
    of = ", ".join(names) or "the data"
    return not_row_by_row(f"{operation} in the likelihood is taken over all rows of {of}")
