"""The shortest ways through the public call: a model is read, compared with PyMC, and has rows."""

import warnings
from typing import Any

from pymc_coresets import Coreset, CoresetWarning, build_coreset

__all__ = ["QUIET", "of_all_rows", "of_some_rows", "read"]

QUIET = {"random_seed": 1, "progressbar": False}


def of_some_rows(model: object = None, size: int = 3, **options: Any) -> Coreset:
    """Build a coreset of rows drawn uniformly, which needs no posterior, in a tenth of a second."""
    return _built(model, method="uniform", size=size, **options)


def of_all_rows(model: object = None, **options: Any) -> Coreset:
    """Build the coreset that has each row, with a weight of one."""
    return _built(model, method="exact", collapse=False, **options)


def read(model: object = None, **options: Any) -> Any:
    """Return the log-likelihoods of the rows of a model, which were compared with PyMC."""
    return of_some_rows(model, **options).loglikelihood


def _built(model: object, **options: Any) -> Coreset:
    """Build a coreset; what so few rows are good for is not asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)
        return build_coreset(model, **QUIET | options)
