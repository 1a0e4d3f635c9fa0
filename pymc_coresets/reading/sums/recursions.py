"""Refuse recursions over the rows: each term of such a log-likelihood needs all rows before it."""

from collections.abc import Callable, Iterable, Iterator

from pytensor.graph import Variable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.known import describe, reached
from pymc_coresets.reading.selection_rules import axis_before_integers, index_of, input_axes

#: A variable that rows could not be selected below, and its axis that has them.
type Stop = tuple[Variable, int]

#: Whether a variable is computed from any parameter.
type _Place = tuple[Variable, int | None]
type _Depends = Callable[[Variable], bool]


def refuse_recursion(name: str, stops: Iterable[Stop], n_obs: int, depends: _Depends) -> None:
    """Refuse a term of which each row needs the others, through a loop or a matrix of all rows.

    Parameters
    ----------
    name : str
        Of the term.
    stops : iterable of Stop
        Where the selection of rows ended.
    n_obs : int
    depends : callable
        Whether a variable depends on the parameters.

    Raises
    ------
    UnsupportedModelError
        If there is such a loop or matrix that depends on free variables.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x, rate = pt.vector("x", shape=(5,)), pt.scalar("rate")
    >>> stock = pytensor.scan(
    ...     lambda new, old, rate: new + rate * old,
    ...     sequences=[x], outputs_info=[pt.zeros(())], non_sequences=[rate], return_updates=False,
    ... )
    >>> refuse_recursion("y", [(stock, 0)], 5, lambda v: True)
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of 'y' is a recursion over
    the rows: through Scan{scan_fn, while_loop=False, inplace=none} (in 'x[0:]'), each row needs all
    rows before it, and a few rows cost as much as all. If effects last for a limited time, write a
    finite convolution (pt.signal.convolve1d, or lagged data times weights); otherwise sample the
    model itself. (docs: troubleshooting#no-sum-over-rows)
    """
    for variable, axis in stops:
        loop = _loop_along(variable, axis, depends)
        if loop is not None:
            raise UnsupportedModelError(
                f"The log-likelihood of {name!r} is a recursion over the rows: through "
                f"{describe(loop)}, each row needs all rows before it, and a few rows cost as much "
                "as all. If effects last for a limited time, write a finite convolution "
                "(pt.signal.convolve1d, or lagged data times weights); otherwise sample the model "
                "itself."
            )
        if variable.type.shape.count(n_obs) > 1:
            raise UnsupportedModelError(
                f"In the log-likelihood of {name!r}, each row needs all others through "
                f"{describe(variable)}, a matrix of {n_obs} x {n_obs} that depends on free "
                "variables, as for a Gaussian process: a coreset cannot be chosen from it. Take an "
                "approximation with few coefficients, such as pm.gp.HSGP."
            )


def _loop_along(variable: Variable, axis: int, depends: _Depends) -> Variable | None:
    """Find a loop whose steps are rows; where rows have loops of their own, there is none."""

    def below(place: _Place) -> Iterable[_Place]:
        v, along = place
        ends = v.owner is None or isinstance(v.owner.op, ops.Scan) or not depends(v)
        return [] if ends else _below(v, along)

    start: _Place = (variable, axis)
    for v, along in reached([start], below):
        if v.owner is not None and isinstance(v.owner.op, ops.Scan) and not along and depends(v):
            return v
    return None


def _below(variable: Variable, axis: int | None) -> Iterator[_Place]:
    """List what a variable is computed from, with the axes of the rows; None if it is not known."""
    node = variable.owner
    if axis is None:
        yield from ((v, None) for v in node.inputs)
    elif isinstance(node.op, ops.Subtensor):
        yield node.inputs[0], axis_before_integers(index_of(node)[0], axis)
    elif isinstance(node.op, ops.Join | ops.IncSubtensor):
        yield from ((v, axis) for v in node.inputs)
    else:
        axes = input_axes(node.op, node, axis) or [None] * len(node.inputs)
        known = any(a is not None for a in axes)
        yield from (
            (v, a) for v, a in zip(node.inputs, axes, strict=True) if a is not None or not known
        )
