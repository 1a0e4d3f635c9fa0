"""Models that cannot be summarised, and the alternatives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import pymc as pm
import pytensor.scalar as ps
from pytensor.graph import Variable, ancestors, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.wording import describe
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.known import KnownValues, reached
from pymc_coresets.reading.likelihood.row_terms import RowTerm, Term
from pymc_coresets.reading.likelihood.terms import dims_of_data


def refuse_joint(
    names: str,
    why: str,
    remedy: str = "Each row needs others: it is a recursion over the rows, or a joint density as "
    "of a Gaussian process, and a coreset cannot be chosen from it. For a Gaussian process, take "
    "one with few coefficients, such as pm.gp.HSGP; for effects that last for a limited time, a "
    "finite convolution (pt.signal.convolve1d, or lagged data times weights); otherwise sample "
    "the model itself.",
) -> NoReturn:
    """Refuse a log-likelihood that is not a sum over rows.

    Parameters
    ----------
    names : str
        Of its terms, in words.
    why : str
        What it is instead.
    remedy : str, optional

    Examples
    --------
    >>> refuse_joint("'y'", "is one number", "Name its rows.")
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of 'y' is one number. Name
    its rows. (docs: troubleshooting#no-sum-over-rows)
    """
    raise UnsupportedModelError(
        f"The log-likelihood of {names} {why}. {remedy}", topic="no-sum-over-rows"
    )


def refuse_entangled(split: RowTerm, stopped: Sequence[str]) -> None:
    """Refuse a sum of which each term needs the data of others.

    Parameters
    ----------
    split : RowTerm
    stopped : sequence of str
        Operations that the selection of rows could not pass.
    """
    if split.is_sum and stopped:
        through = ", ".join({describe(v) for v in _loops(split.rows)} or stopped)
        why = f"a sum of {split.term.length} terms, of which each needs other rows too"
        refuse_joint(repr(split.term.name), f"is one number: {why}, through {through}")


def refuse_recursion(
    names: str, stops: Iterable[tuple[Variable, int]], n_obs: int, known: KnownValues
) -> None:
    """Refuse terms of which each row needs the others, through a loop or a matrix of all rows.

    Parameters
    ----------
    names : str
        Of the terms, in words.
    stops : iterable of (Variable, int)
        Where the selection of rows ended.
    n_obs : int
    known : KnownValues
        Distinguishes parameters from data.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x, rate = pt.vector("x", shape=(5,)), pt.scalar("rate")
    >>> stock = pytensor.scan(
    ...     lambda new, old, rate: new + rate * old,
    ...     sequences=[x], outputs_info=[pt.zeros(())], non_sequences=[rate], return_updates=False,
    ... )
    >>> try:
    ...     refuse_recursion("'y'", [(stock, 0)], 5, KnownValues([x, rate]))
    ... except UnsupportedModelError as error:
    ...     print(error.message[:72])
    The log-likelihood of 'y' is a recursion over the rows: through a loop (
    """
    for variable, _ in stops:
        for loop in filter(known.depends, _loops(variable)):
            if n_obs not in known.shape(loop)[1:]:  # or rows have loops of their own
                why = f"is a recursion over the rows: through {describe(loop)}, each row needs all"
                refuse_joint(names, f"{why} rows before it, and a few rows cost as much as all")
        if variable.type.shape.count(n_obs) > 1:
            matrix = f"a matrix of {n_obs} x {n_obs} that depends on free variables"
            refuse_joint(names, f"is joint: {describe(variable)} is {matrix}")


def _loops(variable: Variable) -> Iterable[Variable]:
    return (v for v in ancestors([variable]) if v.owner and isinstance(v.owner.op, ops.Scan))


def refuse_constant(plain: PlainModel, names: Sequence[str]) -> None:
    """Refuse terms whose log-likelihoods depend on no parameter.

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
    """Refuse terms whose log-likelihoods are complex numbers.

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
    most = max(model[name].type.ndim for name in local)
    found = (dims_of_data(model, term.name) for term in terms)
    dims = next((dims for dims in found if len(dims) > max(most, 1) and None not in dims), ())
    axes = {term.axis for term in terms}
    joint = any(max(axes) >= _n_independent(model[name]) for name in local)
    raise UnsupportedModelError(
        f"The free variables {list(local)!r} have one value per observation. A coreset cannot "
        "leave them out, and integrate='auto' takes out what is independent from row to row given "
        "the other variables: write the likelihood without them (pm.Censored, pm.Mixture, an "
        "overdispersed likelihood, ...), or keep them all with allow_local=True."
        + (" In place of a Gaussian process at the rows, take pm.gp.HSGP." if joint else "")
        + (f" If each cell of a matrix is an observation, give dim={dims!r}." if dims else ""),
        topic="local-latent-variables",
    )


def _n_independent(variable: TensorVariable) -> int:
    """Return how many axes a variable has before those of a joint distribution, such as a walk."""
    return int(variable.type.ndim - getattr(variable.owner.op, "ndim_supp", 0))


def refuse_jumps(loglik: TensorVariable, parameters: Mapping[str, TensorVariable]) -> None:
    """Refuse continuous variables along which the log-likelihood of every row only jumps.

    There is no curvature along them, and gradients do not lead to the jump.

    Parameters
    ----------
    loglik : TensorVariable
        The log-likelihood of each row.
    parameters : mapping of str to TensorVariable
        The free variables that it is a graph of.

    Raises
    ------
    UnsupportedModelError
        If rows see one by comparisons and roundings alone.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> tau = pt.dscalar("tau")
    >>> try:
    ...     refuse_jumps(pt.switch(pt.dvector("t") > tau, 0.0, -1.0), {"tau": tau})
    ... except UnsupportedModelError as error:
    ...     print(error.message[:62])
    Rows see 'tau' by a comparison or rounding alone: along it the
    """
    start: list[Variable] = [loglik]
    smooth = set(reached(start, _through_smooth))
    below = set(ancestors([v for v in smooth if _is_step(v)]))
    for variable in parameters.values():
        if _is_step(variable) or variable in smooth or variable not in below:
            continue
        raise UnsupportedModelError(
            f"Rows see {variable.name!r} by a comparison or rounding alone: along it their "
            "log-likelihood is flat but for jumps, where it has no curvature and NUTS does not "
            "find its way. Write a steep smooth change in its place, low + (high - low) * "
            "pm.math.sigmoid((t - tau) / width) for pm.math.switch(t > tau, high, low), where the "
            "width is a small number or a free variable; or choose rows all the same, by "
            "method='pursuit' with weighting='prior' or draws of your own."
        )


def _is_step(variable: Variable) -> bool:
    """Whether a variable is discrete, or rounded."""
    roundings = ps.Floor | ps.Ceil | ps.Trunc | ps.RoundHalfToEven | ps.RoundHalfAwayFromZero
    rounded = isinstance(ops.scalar_op_of(variable), roundings | ps.Sign)
    return rounded or not str(variable.type.dtype).startswith("float")


def _through_smooth(variable: Variable) -> Sequence[Variable]:
    return [] if ops.is_input(variable) or _is_step(variable) else variable.owner.inputs
