"""All that is used of ArviZ beyond its documented functions, in one place.

`array_stats` is its statistics on plain arrays.  ArviZ may change these names in any release;
`tests/unit/test_compat.py` says what broke.
"""

from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller
from arviz_stats.base import array_stats

__all__ = [
    "BaseLabeller",
    "array_stats",
    "xarray_sel_iter",
]
