"""What a model that holds a template of the rows may not contain, in words."""

from collections.abc import Collection

import numpy as np
from pytensor.graph import Constant, Variable, ancestors

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError

_N_SHOWN = 3
_ROW_BY_ROW = (ops.Elemwise, ops.DimShuffle, ops.TypeCastingOp)


def constant_of_rows(variable: Variable, axis: int) -> UnsupportedModelError:
    """Return the error for data along the rows that are not in a container which `rows` names.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> raise constant_of_rows(pt.constant([1.0, 2.0, 3.0, 4.0], name="x"), 0)
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: 'x' (1.0, 2.0, 3.0, ...) is a constant of 4
    rows in the likelihood, but the model holds a template of the rows only. Make it a pm.Data, and
    name its column in the rows. (docs: troubleshooting#models-that-are-refused)
    """
    n_rows, values = variable.type.shape[axis], ""
    if isinstance(variable, Constant):
        first = np.asarray(variable.data).ravel()[:_N_SHOWN].tolist()
        values = f" ({', '.join(map(str, first))}, ...)"
    name = repr(variable.name) if variable.name else "An unnamed array"
    return UnsupportedModelError(
        f"{name}{values} is a constant of {n_rows} rows in the likelihood, but the model holds a "
        "template of the rows only. Make it a pm.Data, and name its column in the rows."
    )


def not_by_row(variable: Variable) -> UnsupportedModelError:
    """Return the error for a container of rows that is sliced, reordered or transposed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> raise not_by_row(pt.vector("x"))
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The rows of 'x' are sliced, reordered, or not
    along its first axis: row n of the likelihood must be computed from row n of the data. Do that
    to the data beforehand, and name the result as a column of its own.
    (docs: troubleshooting#models-that-are-refused)
    """
    return UnsupportedModelError(
        f"The rows of {variable.name!r} are sliced, reordered, or not along its first axis: row n "
        "of the likelihood must be computed from row n of the data. Do that to the data "
        "beforehand, and name the result as a column of its own."
    )


def taken_over_rows(variable: Variable, row_inputs: Collection[Variable]) -> UnsupportedModelError:
    """Return the error for what is computed from several rows.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> raise taken_over_rows(x.max(), [x])
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: Max{axes=None} in the likelihood is taken over
    all rows of 'x', of which the model holds a template only. Compute it beforehand, and give the
    model its value; or name a column that holds it for each row.
    (docs: troubleshooting#models-that-are-refused)
    """
    below = list(ancestors([variable]))
    names = sorted(f"{v.name!r}" for v in set(row_inputs) & set(below))
    of = f"of {', '.join(names)}" if names else "of the data"
    return UnsupportedModelError(
        f"{_operation(variable, below)} in the likelihood is taken over all rows {of}, of which "
        "the model holds a template only. Compute it beforehand, and give the model its value; or "
        "name a column that holds it for each row."
    )


def _operation(variable: Variable, below: Collection[Variable]) -> str:
    """Name the operation that most likely takes the rows together."""
    nodes = [v.owner for v in below if v.owner is not None]
    others = [n for n in nodes if not isinstance(n.op, _ROW_BY_ROW)]
    reductions = [n for n in others if isinstance(n.op, ops.CAReduce)]
    found = [*reductions, *others, *nodes]
    return str(found[0].op) if found else repr(variable.name)
