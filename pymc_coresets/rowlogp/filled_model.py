"""Models that hold a few rows, filled with all of them, where rows of one level belong together."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pymc as pm

from pymc_coresets.deadline import doing
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.numerics import free_memory
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.likelihood.prototypes import Prototypes
from pymc_coresets.reading.user_model import copy_with_rows
from pymc_coresets.rowlogp.of_model import RowsToRead
from pymc_coresets.rowlogp.units import chosen_units, may_have_units
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.values import converted

_log = logging.getLogger(__name__)

#: Of the free memory that columns may take: rows of units and what is merged are several copies.
_SHARE = 1 / 8


def with_rows_of_units(model: pm.Model, wanted: RowsToRead) -> tuple[pm.Model, RowsToRead]:
    """Return a copy of a model that holds all rows, if variables of levels are integrated out.

    All rows of a level are needed together, and they may be anywhere in the files.  So one reading
    puts them into the memory of this process, of which they may take an eighth.

    Parameters
    ----------
    model : pm.Model
        With prototype rows.
    wanted : RowsToRead
        With rows, or without: then nothing is changed.

    Returns
    -------
    model : pm.Model
    wanted : RowsToRead
        Without rows and executor, if the model holds them.

    Raises
    ------
    InvalidOptionError
        If the user named variables, and the rows have weights, or take too much memory.
    InvalidDataError
        If rows cannot be used.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> rows = open_rows({"y": np.zeros(900), "user": np.arange(900) // 3})
    >>> with pm.Model() as model:
    ...     user, y = (pm.Data(name, values) for name, values in rows.head(30).items())
    ...     z = pm.Normal("z", shape=300)
    ...     likelihood = pm.Normal("likelihood", z[user.astype(int)], 1.0, observed=y)
    >>> filled, _ = with_rows_of_units(model, RowsToRead(rows=rows, integrate="auto"))
    >>> len(filled["y"].get_value()), len(model["y"].get_value())
    (900, 30)
    """
    rows, named = wanted.rows, wanted.named
    if rows is None or not (wanted.integrate or wanted.units):
        return model, wanted
    held, inside = Prototypes.of(model, rows.columns), replace(wanted, rows=None, executor=None)
    inside = replace(inside, filled=True)
    known = wanted.units is not None
    if not (known or named or may_have_units(model) or _has_one_for_each(model, held.n_rows)):
        return model, wanted
    if not known and not chosen_units(inside.rows_of(model), named, n_rows=len(rows))[0]:
        return model, wanted
    try:
        _refuse(rows, held.values)
    except InvalidOptionError as error:
        if named or known:
            raise
        _log.warning("Variables of levels remain parameters. %s", error.message)
        return model, wanted
    with doing(f"reading {len(rows):,} rows, as all those of a level are needed together"):
        found = rows.together(held.values)
    every = {n: converted(n, found.pop(n), v.dtype, "the rows") for n, v in held.values.items()}
    return copy_with_rows(model, every), inside


def _has_one_for_each(model: pm.Model, n_rows: int) -> bool:
    """Whether a free variable may have one value for each row."""
    return any(n_rows in shape for shape in shapes_of(model.free_RVs))


def _refuse(rows: RowSource, held: Mapping[str, np.ndarray]) -> None:
    """Raise for rows that cannot be those of units."""
    if rows.has_weights:
        raise InvalidOptionError(
            "Rows with weights of their own cannot be integrated over: a level would have a part "
            "of an observation. Leave the weights out, or pass integrate=False."
        )
    n_bytes = len(rows) * sum(values[0].nbytes for values in held.values())
    if n_bytes > _SHARE * free_memory():
        raise InvalidOptionError(
            f"All rows of a level are needed together, in memory: their columns take "
            f"{n_bytes / 1e9:.1f} GB, more than {_SHARE:.3g} of what is free. Open fewer rows or "
            "columns, or pass integrate=False."
        )
