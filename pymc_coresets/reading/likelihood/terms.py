"""Which likelihood terms of a model are summarised, and what is refused."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import pymc as pm
from pytensor.graph import Variable, ancestors, graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, io_toposort
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.likelihood.missing import dims_of_data
from pymc_coresets.reading.likelihood.row_terms import RowTerm, Term, observed_length, row_term
from pymc_coresets.reading.pushdown import Pushdown

_FEW = 500  # terms that cost NUTS next to nothing, and stay exact where they are


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


def by_default(plain: PlainModel, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Choose the terms: the longest ones, and others of many rows that can be taken apart.

    A potential is a part of the likelihood if it is a sum, or has one value, over many rows of
    data: a potential of lookups alone, as of neighbours on a map, is a prior.

    Parameters
    ----------
    plain : PlainModel
        With the graphs of these terms, and of `other_potentials`.
    names : sequence of str
        From `term_names`.

    Returns
    -------
    names : list of str
        Of the terms to summarise.
    whole : tuple of str
        Others with many data, which stay in the coreset's model: in words, with their lengths.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model() as model:
    ...     rate, t = pm.Gamma("rate", 1, 1), np.linspace(1, 2, 600)
    ...     seen = pm.Exponential("seen", rate, observed=np.ones(900))
    ...     censored = pm.Potential("censored", -(rate * t).sum())
    >>> by_default(plain_model(model, ["seen", "censored"]), ["seen"])[0]
    ['seen', 'censored']
    """
    model = plain.model
    every = [*names, *other_potentials(model, names)]
    terms = {name: row_term(plain, name, None) for name in every}
    observed = [v.name for v in model.observed_RVs if v.name in names] or list(names)
    longest = max((t.term.length for name in observed if (t := terms[name])), default=0)
    no_rows = [observed_length(model, name, 0) for name in observed if terms[name] is None]
    if max((n or 1 for n in no_rows), default=0) > longest:
        return list(names), ()  # what is no sum of rows is the likelihood, and refused
    outcomes = [n for n in names if (t := terms[n]) is not None and t.term.length == longest]
    covariates = set(ancestors([model[n] for n in outcomes])) - {model[n] for n in outcomes}
    chosen, whole = [], []
    for name in every:
        if name in outcomes or (
            model[name] not in covariates  # whose missing values PyMC imputes
            and _is_worth_it(terms[name], plain, is_data=name in observed)
        ):
            chosen.append(name)
        elif (length := _length_of_data(plain.graphs[name])) >= _FEW:
            whole.append(f"{name!r} (computed from {length:,} rows)")
    return chosen, tuple(whole)


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


def refuse_joint(name: str, graph: TensorVariable, dim: str | None) -> NoReturn:
    """Refuse potentials without an observation axis that are no sum over it.

    Raises
    ------
    UnsupportedModelError
    """
    raise UnsupportedModelError(
        f"The log-likelihood of {name!r} is "
        + ("one number" if graph.type.ndim == 0 else f"not split along {dim!r}")
        + ": one joint density, not a sum over rows, and a coreset cannot be chosen from it. For a "
        "Gaussian process take an approximation with few coefficients, such as pm.gp.HSGP.",
        topic="no-sum-over-rows",
    )


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
    joint = any(getattr(model[name].owner.op, "ndim_supp", 0) for name in local)
    raise UnsupportedModelError(
        f"The free variables {list(local)!r} have one value per observation. A coreset cannot "
        "leave them out, and integrate='auto' takes out what is independent from row to row given "
        "the other variables: write the likelihood without them (pm.Censored, pm.Mixture, an "
        "overdispersed likelihood, ...), or keep them all with allow_local=True."
        + (" In place of a Gaussian process at the rows, take pm.gp.HSGP." if joint else "")
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


# -- terms that are chosen by default --------------------------------------------------------------


def other_potentials(model: pm.Model, names: Sequence[str]) -> list[str]:
    """Name the potentials that are not among the terms.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     centred = pm.Potential("centred", -(pm.Normal("mu", shape=2).sum() ** 2))
    >>> other_potentials(model, ["y"])
    ['centred']
    """
    return [p.name for p in model.potentials if p.name not in names]


def _is_worth_it(found: RowTerm | None, plain: PlainModel, *, is_data: bool) -> bool:
    """Whether a term has many rows, and can be taken apart into them."""
    if found is None or found.term.length < _FEW:
        return False
    pushdown = Pushdown(plain.parameters.values(), found.term.length)
    try:
        rows = pushdown.select(found.rows, found.term.axis)
    except UnsupportedModelError:
        return False
    by_value = is_data or not pushdown.placeholders.isdisjoint(_used_by_value(rows))
    return by_value and not pushdown.local and not pushdown.unselected


def _length_of_data(graph: TensorVariable) -> int:
    constants = (v for v in _used_by_value(graph) if isinstance(v, TensorConstant))
    return max((max(np.shape(v.data), default=0) for v in constants), default=0)


def _used_by_value(graph: TensorVariable) -> set[Variable]:
    """Return the inputs of a graph that are more than an index of something else."""
    used: set[Variable] = {graph}
    for node in reversed(list(io_toposort([], [graph]))):
        if not used.isdisjoint(node.outputs):
            is_lookup = isinstance(node.op, AdvancedSubtensor)
            used.update(node.inputs[:1] if is_lookup else node.inputs)
    return used.intersection(graph_inputs([graph]))
