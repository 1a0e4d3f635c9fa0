"""All that is used of ArviZ beyond its documented functions, in one place.

`array_stats` is its statistics on plain arrays.  ArviZ may change these names in any release;
`tests/unit/test_compat.py` says what broke.
"""

from arviz_base import dict_to_dataset, xarray_sel_iter
from arviz_base.labels import BaseLabeller
from arviz_stats.base import array_stats
from arviz_stats.utils import ELPDDataLOOSubsample

__all__ = [
    "BaseLabeller",
    "ELPDDataLOOSubsample",
    "array_stats",
    "dict_to_dataset",
    "xarray_sel_iter",
]
