"""Labels of levels, which are known again in other models, in draws and in files."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from pymc_coresets.exceptions import UnsupportedModelError

_DATES = {"datetime64", "datetime", "date"}


def texts_of(labels: Iterable[object]) -> list[str]:
    """Return labels as text, the same for whatever type they have: those of one level are equal.

    Whole numbers are so whether integers or not, as a column of a frame that had holes is floating;
    dates are in nanoseconds, as files have them.

    Examples
    --------
    >>> texts_of([1, 2]) == texts_of(np.array([1.0, 2.0]))
    True
    >>> texts_of(np.array(["2000-01-31"], "datetime64[D]"))
    ['2000-01-31T00:00:00.000000000']
    """
    index = as_index(labels)
    if kind_of(index) == "dates":
        dates: np.ndarray = pd.to_datetime(index).to_numpy("datetime64[ns]")
        return [str(date) for date in dates]
    if index.dtype.kind == "f" and (index == np.round(index)).all():
        index = index.astype(np.int64)
    return [str(label) for label in index]


def kind_of(labels: pd.Index) -> str:
    """Return whether labels are dates, numbers or text.

    Examples
    --------
    >>> [kind_of(as_index(labels)) for labels in ([2.0], ["1"], [pd.Timestamp("2000-01-31")])]
    ['numbers', 'text', 'dates']
    """
    if pd.api.types.infer_dtype(labels, skipna=False) in _DATES:
        return "dates"
    return "numbers" if labels.dtype.kind in "iuf" else "text"


def as_index(labels: Iterable[object]) -> pd.Index:
    """Return labels in the form in which they are given to a model.

    Raises
    ------
    UnsupportedModelError
        If each label consists of several values.

    Examples
    --------
    >>> as_index(("a", "b")).tolist()
    ['a', 'b']
    """
    index = pd.Index(labels if isinstance(labels, np.ndarray) else list(labels))
    if index.nlevels > 1:
        raise UnsupportedModelError(
            f"The label ({', '.join(map(str, index[0]))}) has several parts: give each level one "
            f"of a single part, such as {'-'.join(map(str, index[0]))!r}, by which other models "
            "and files know it again."
        )
    return index
