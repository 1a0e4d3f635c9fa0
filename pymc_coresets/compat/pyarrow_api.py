"""Non-public parts of pyarrow: the filter of a dataset, and the dataset without it."""

from typing import Any


def filter_of(dataset: object) -> Any:  # noqa: ANN401
    """Return the expression that `pyarrow.dataset.Dataset.filter` was given, or None.

    Examples
    --------
    >>> filter_of(object()) is None
    True
    """
    return getattr(dataset, "_scan_options", {}).get("filter")


def unfiltered(dataset: Any) -> Any:  # noqa: ANN401
    """Return a dataset without its filter; the dataset itself stays as it is.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.dataset as ds
    >>> dataset = ds.dataset(pa.table({"x": [1, 2]}))
    >>> unfiltered(dataset.filter(ds.field("x") > 1)).count_rows()
    2
    """
    if filter_of(dataset) is None:
        return dataset
    copy = dataset.filter(filter_of(dataset))
    copy._scan_options = {}  # noqa: SLF001
    return copy
