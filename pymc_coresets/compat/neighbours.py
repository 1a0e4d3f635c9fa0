"""Objects that hold a PyMC model: of Bambi, HSSM and pymc-marketing, without importing these."""

from collections.abc import Mapping
from typing import Any

import pymc as pm


def held_model(holder: Any) -> Any:  # noqa: ANN401
    """Return the PyMC model that another package's model holds; what holds none, as it is.

    Such objects are recognised by what they have.  HSSM's have ``pymc_model``, and ``initvals``,
    without which no decision is possible where the model begins; those of pymc-marketing ``model``
    once they are built, and Bambi's ``backend.model``, which their ``build()`` makes.

    Parameters
    ----------
    holder : object
        The user's argument.

    Returns
    -------
    pm.Model or object

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> model = pm.Model()
    >>> held_model(SimpleNamespace(model=model)) is held_model(model) is model
    True
    >>> held_model("hello")
    'hello'
    """
    if isinstance(holder, pm.Model):
        return holder
    for name in ("pymc_model", "model"):
        if isinstance(found := getattr(holder, name, None), pm.Model):
            return _beginning_at(found, getattr(holder, "initvals", None))
    if hasattr(holder, "backend") and callable(getattr(holder, "build", None)):
        if getattr(holder.backend, "model", None) is None:
            holder.build()
        return getattr(holder.backend, "model", holder)
    return holder


def doubt_about(holder: object) -> str:
    """Return what draws of a model do not serve for; empty if there is nothing to say.

    Bambi centres predictors by default, and only its own ``fit`` puts the intercept back.

    Examples
    --------
    >>> doubt_about(pm.Model())
    ''
    """
    components = getattr(getattr(holder, "backend", None), "distributional_components", None)
    parts = components.values() if isinstance(components, Mapping) else ()
    if all(getattr(part, "design_matrix_without_intercept", None) is None for part in parts):
        return ""
    return (
        "Bambi has centred the predictors: the intercept of these draws is that of centred ones, "
        "with which Bambi's predict() is wrong. Pass center_predictors=False to bambi.Model; "
        "coreset.predict() is right in both cases."
    )


def _beginning_at(model: pm.Model, values: object) -> pm.Model:
    """Return a view of a model with the initial values that its holder passes to samplers."""
    if not isinstance(values, Mapping):
        return model
    known = {rv: values.get(rv.name, v) for rv, v in model.rvs_to_initial_values.items()}
    view = object.__new__(type(model))
    vars(view).update(vars(model), rvs_to_initial_values=known)
    return view
