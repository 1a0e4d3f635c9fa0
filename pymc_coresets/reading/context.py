"""The model that a function works on: the one it is given, or that of the ``with`` block."""

import pymc as pm

from pymc_coresets.exceptions import InvalidOptionError

__all__ = ["the_model"]


def the_model(model: pm.Model | None) -> pm.Model:
    """Return `model`, or the model of the enclosing ``with`` block where it is None.

    Raises
    ------
    InvalidOptionError
        If `model` is something else, or there is no enclosing block.

    Examples
    --------
    >>> with pm.Model(name="survey"):
    ...     the_model(None).name
    'survey'
    """
    if model is None:
        model = pm.Model.get_context(error_if_none=False)
        if model is None:
            raise InvalidOptionError(
                "There is no model: call this inside `with model:`, or pass model=..."
            )
    if not isinstance(model, pm.Model):
        raise InvalidOptionError(f"model={model!r} is not a PyMC model (pm.Model).")
    return model
