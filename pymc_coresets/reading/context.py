"""Which model is meant: the one that was passed, or that of the context."""

from typing import Any

import pymc as pm

from pymc_coresets.compat.pymc_api import modelcontext
from pymc_coresets.exceptions import InvalidOptionError


def current_model() -> pm.Model | None:
    """Return the model of the context, or None outside of any.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     current_model() is model
    True
    >>> current_model() is None
    True
    """
    try:
        return modelcontext(None)
    except TypeError:
        return None


def given_model(model: Any) -> pm.Model:  # noqa: ANN401
    """Return the model that was passed or, for None, that of the context.

    Parameters
    ----------
    model : pm.Model or None
        What the user passed.

    Returns
    -------
    pm.Model

    Raises
    ------
    InvalidOptionError
        If it is no model, or None outside of any model's context.

    Examples
    --------
    >>> given_model("hello")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: model is a str, but must be a pm.Model.
    (docs: troubleshooting#arguments)
    """
    if model is not None and not isinstance(model, pm.Model):
        raise InvalidOptionError(f"model is a {type(model).__name__}, but must be a pm.Model.")
    found = current_model() if model is None else model
    if found is None:
        raise InvalidOptionError(
            "There is no model here: pass model=..., or call this inside `with pm.Model():`."
        )
    return found
