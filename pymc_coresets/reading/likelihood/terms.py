"""A model's likelihood terms, their observation axis and its length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pymc as pm
from pytensor.graph import graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.reading.folding import evaluate, known_length
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.likelihood.missing import dims_of_data


@dataclass(frozen=True)
class Term:
    """One likelihood term: an observed variable, or a potential with one value for each row.

    Attributes
    ----------
    name : str
        Name of the variable in the model.
    axis : int
        Its observation axis.
    length : int
        Its number of observations.
    """

    name: str
    axis: int
    length: int


def as_names(dim: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in ``dim=``: none, one, or several that differ.

    Examples
    --------
    >>> as_names("obs"), as_names(["dog", "trial"]), as_names(None)
    (('obs',), ('dog', 'trial'), ())
    """
    names = () if dim is None else (dim,) if isinstance(dim, str) else tuple(dim)
    if len(set(names)) < len(names) or (dim is not None and not names):
        raise InvalidOptionError(f"dim={dim!r} must be a name, or several that differ.")
    return names


def term_names(
    model: pm.Model, observed: str | Sequence[str] | None, dim: tuple[str, ...]
) -> list[str]:
    """Name the terms to summarise: those asked for, those with the dims, or all.

    Raises
    ------
    UnsupportedModelError
        If there are none, or the model has no such dimension.

    Examples
    --------
    >>> import numpy as np
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
    >>> term_names(model, None, ())
    ['y']
    """
    for name in dim:
        if name not in model.coords:
            raise UnsupportedModelError(
                f"dim={name!r} is not a dimension of the model. It has {list(model.coords)!r}."
            )
    dims = model.named_vars_to_dims
    available = [v.name for v in (*model.observed_RVs, *model.potentials)]
    if observed is not None:
        names = [observed] if isinstance(observed, str) else list(observed)
        unknown = [name for name in names if name not in available]
        if unknown or not names:
            raise UnsupportedModelError(
                f"observed={names!r}: {unknown!r} is not an observed variable or potential "
                f"of the model. It has {available!r}."
            )
        return names
    if dim:
        return _with_dims(model, available, dim)
    names = [v.name for v in model.observed_RVs]
    axis_dims = {dims[name][0] for name in names if dims.get(name)}
    names += [
        p.name
        for p in model.potentials
        if p.type.ndim and (not names or dims.get(p.name, (None,))[0] in axis_dims)
    ]
    if not names:
        scalars = [p.name for p in model.potentials]
        raise UnsupportedModelError(
            "The model has no observed variable, and no potential with one value per observation: "
            "there is no likelihood to summarise. Give a variable its data with observed=..."
            + (f" If one of {scalars!r} is a sum over data, name it: observed=..." * bool(scalars))
        )
    return names


def _with_dims(model: pm.Model, available: Sequence[str], dim: tuple[str, ...]) -> list[str]:
    one = len(dim) == 1
    own = model.named_vars_to_dims
    found = {n: own.get(n) or () if one else dims_of_data(model, n) for n in available}
    names = [name for name, dims in found.items() if set(dim) <= set(dims)]
    if not names:
        wanted = f"dimension {dim[0]!r}" if one else f"dimensions {dim!r}"
        raise UnsupportedModelError(
            f"No observed variable of the model has the {wanted}: give {'it' if one else 'them'} "
            f"to one (dims={dim[0] if one else dim!r}), or name the variables with "
            f"observed=[...]. It has {list(available)!r}."
        )
    return names


def refuse_constant(plain: PlainModel, names: Sequence[str]) -> None:
    """Refuse terms whose potentials depend on no parameter.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> plain = PlainModel(pm.Model(), {"mu": pt.scalar()}, {"y": pt.constant([1.0, 2.0])})
    >>> refuse_constant(plain, ["y"])
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of ['y'] depends on no free
    variable (the model has only ['mu']): there is no posterior to approximate. Give a variable of
    the likelihood a prior, or name other observed variables with observed=[...].
    (docs: troubleshooting#models-that-are-refused)
    """
    parameters = plain.parameters
    inputs = set(graph_inputs([plain.graphs[name] for name in names]))
    if inputs.isdisjoint(parameters.values()):
        has = f"only {list(parameters)!r}" if parameters else "none"
        raise UnsupportedModelError(
            f"The log-likelihood of {list(names)!r} depends on no free variable (the model has "
            f"{has}): there is no posterior to approximate. Give a variable of the likelihood a "
            "prior, or name other observed variables with observed=[...]."
        )


def refuse_complex(graphs: Mapping[str, TensorVariable]) -> None:
    """Refuse terms whose potentials are complex numbers.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> refuse_complex({"y": pt.constant([1j, 2.0])})
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: The log-likelihood of 'y' is computed of complex
    numbers. Give the real and imaginary parts of the data as two arrays.
    (docs: troubleshooting#the-data-and-the-model)
    """
    for name, graph in graphs.items():
        if graph.type.dtype.startswith("complex"):
            raise InvalidDataError(
                f"The log-likelihood of {name!r} is computed of complex numbers. Give the real and "
                "imaginary parts of the data as two arrays."
            )


def axis_of_rows(model: pm.Model, name: str, dim: str | None) -> int:
    """Return the axis of a term that has the observations: that of the dimension, or the first.

    Raises
    ------
    UnsupportedModelError
        If the term has dimensions, but not this one.

    Examples
    --------
    >>> axis_of_rows(pm.Model(), "y", None)
    0
    """
    dims = model.named_vars_to_dims.get(name, ())
    if dim is not None and dims and dim not in dims:
        raise UnsupportedModelError(
            f"{name!r} has the dimensions {dims!r}, not {dim!r}. Leave it out of observed=[...]."
        )
    return dims.index(dim) if dim is not None and dims else 0


def refuse_joint(name: str, graph: TensorVariable, dim: str | None) -> NoReturn:
    """Refuse potentials without an observation axis that are no sum over it.

    Raises
    ------
    UnsupportedModelError
    """
    raise UnsupportedModelError(
        f"The log-likelihood of {name!r} is "
        + ("one number" if graph.type.ndim == 0 else f"not split along {dim!r}")
        + " and, like a Gaussian process' marginal likelihood, no sum of terms along an axis: a "
        "coreset cannot be chosen from it.",
        topic="no-sum-over-rows",
    )


def n_rows_of(name: str, graph: TensorVariable, axis: int) -> int:
    """Return the number of observations along an axis of a term's potentials.

    Raises
    ------
    UnsupportedModelError
        If it depends on free variables.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> n_rows_of("y", pt.zeros((5, 3)), 0)
    5
    """
    length = known_length(graph, axis)
    if length is None:
        raise UnsupportedModelError(
            f"The number of observations of {name!r} depends on the values of free variables: "
            "there are no rows to choose from. Give the data a fixed length."
        )
    return length


def refuse_single(terms: Sequence[Term], n_obs: int) -> None:
    """Refuse a single observation, or none.

    Raises
    ------
    UnsupportedModelError

    Examples
    --------
    >>> refuse_single([Term("x", 0, 5), Term("y", 1, 5)], 5)
    """
    if n_obs < 2:
        raise UnsupportedModelError(
            f"{terms[0].name!r} has {n_obs} observation: there is nothing to choose from."
        )


def refuse_local(model: pm.Model, terms: Sequence[Term], local: Sequence[str]) -> NoReturn:
    """Refuse variables that have one value for each observation.

    Raises
    ------
    UnsupportedModelError
    """
    raise UnsupportedModelError(
        f"The free variables {list(local)!r} have one value per observation. A coreset cannot "
        "leave them out: marginalise them (pm.Censored, pm.Mixture, an overdispersed likelihood, "
        "quadrature, pymc_extras.marginalize, ...), or keep them all with allow_local=True."
        + _advice_on_cells(model, terms, local),
        topic="local-latent-variables",
    )


def _advice_on_cells(model: pm.Model, terms: Sequence[Term], local: Sequence[str]) -> str:
    """Suggest that each cell be a row, where the variables are shared by cells of a matrix."""
    for term in terms:
        dims = dims_of_data(model, term.name)
        lengths = evaluate([model.dim_lengths[d] for d in dims if d is not None])
        shapes = [model[name].type.ndim for name in local]
        if len(lengths) > 1 and None not in dims and max(shapes) < len(dims):
            return (
                f" If each cell of {term.name!r} is an observation, give dim={dims!r}: these "
                "variables then are shared by several."
            )
    return ""
