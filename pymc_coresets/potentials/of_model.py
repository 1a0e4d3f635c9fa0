"""The potentials of a user's model, compared with PyMC before anything relies on them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.backends.choice import Jax
from pymc_coresets.potentials.evaluation import Collapse, LogLikelihood
from pymc_coresets.potentials.from_rows import Sampled, likelihood_of_rows
from pymc_coresets.potentials.verification import verify
from pymc_coresets.reading.context import given_model
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewriting.rewrite import WEIGHTS
from pymc_coresets.rows.sources.row_source import RowSource

__all__ = ["full_model", "likelihood_of_model"]


def full_model(model: pm.Model | None) -> pm.Model:
    """Return the model that was passed or that of the context, which is no coreset's.

    Raises
    ------
    InvalidOptionError
        If it is no model, or None outside of any model's context.
    UnsupportedModelError
        If it is the model of a coreset.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     full_model(None) is model
    True
    """
    found = given_model(model)
    if WEIGHTS in found.named_vars:
        raise UnsupportedModelError("This is the model of a coreset already. Give the full model.")
    return found


def likelihood_of_model(  # noqa: PLR0913
    model: pm.Model,
    *,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    allow_local: bool = False,
    collapse: Collapse = "auto",
    rows: RowSource | None = None,
    executor: Any = None,  # noqa: ANN401 - of several libraries
    backend: Jax | None = None,
    rng: np.random.Generator,
    watch: Callable[[int, int], None] | None = None,
    sampled: Sampled | None = None,
) -> LogLikelihood:
    """Take a model apart, and compare what comes of it with PyMC.

    Parameters
    ----------
    model : pm.Model
        With all rows, or a template of those in `rows`.
    observed, dim, allow_local
        See `find_observations`.
    collapse : bool or "auto"
        Whether to merge equal rows.
    rows, executor, watch, sampled
        See `likelihood_of_rows`.
    backend : Jax, optional
        See `LogLikelihood`.
    rng : numpy.random.Generator

    Returns
    -------
    LogLikelihood

    Raises
    ------
    UnsupportedModelError, InvalidDataError
        As `verify`, `find_observations` and `likelihood_of_rows` do.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> likelihood_of_model(model, rng=np.random.default_rng(1)).n_rows
    3
    """
    if rows is not None:
        where: dict[str, Any] = {"observed": observed, "dim": dim, "executor": executor}
        where |= {"backend": backend, "watch": watch, "sampled": sampled}
        return likelihood_of_rows(model, rows, **where, rng=rng)
    found = find_observations(model, observed=observed, dim=dim, allow_local=allow_local)
    loglik = LogLikelihood(found, backend=backend)
    verify(loglik, rng=rng)
    return loglik.collapsed(collapse=collapse)
