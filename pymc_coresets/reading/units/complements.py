"""Log-probabilities of what is censored, without the complement of a complement."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import kept, rewritten_by


def without_double_complements(graphs: Sequence[Variable]) -> list[Variable]:
    """Write ``log(1 - exp(log(1 - exp(x))))`` as x, also within cases that have a constant instead.

    Times beyond the end of a study have the complement of a distribution function, which for
    exponential and Weibull times is a complement itself: two logarithms and two exponentials for
    each row and node, with a derivative that cancels where either probability is small.

    Parameters
    ----------
    graphs : sequence of Variable

    Examples
    --------
    >>> x, seen = pt.vector("x"), pt.bvector("seen")
    >>> of_times = pt.switch(seen, pt.log1mexp(x), -np.inf)
    >>> [found] = without_double_complements([pt.log1mexp(of_times)])
    >>> found.eval({x: [-1e-30, -2.0, -2.0], seen: np.array([1, 1, 0], dtype="int8")})
    array([-1.e-30, -2.e+00,  0.e+00])
    """
    with ops.compiling():
        return rewritten_by(_written, graphs)


def _written(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    if isinstance(ops.scalar_op_of(node.outputs[0]), ps.Log1mexp):
        for found in _complement(inputs[0]):
            if found.type == node.outputs[0].type:
                return [found]
    return kept(node, inputs)


def _complement(log_probability: Variable) -> Iterator[Variable]:
    """Yield the logarithm of the complement, if it needs no function."""
    node, operation = log_probability.owner, ops.scalar_op_of(log_probability)
    if isinstance(log_probability, Constant):
        known = np.asarray(log_probability.data, dtype="float64")  # it may be a rounded one
        with np.errstate(all="ignore"):
            yield pt.constant(np.log(-np.expm1(known)))
    elif isinstance(operation, ps.Log1mexp):
        [x] = ops.checked_tensors(node.inputs)
        yield pt.switch(x <= 0.0, x, np.nan)
    elif isinstance(operation, ps.Switch):
        condition, *cases = node.inputs
        for found in product(*map(_complement, cases)):
            yield pt.switch(condition, *found)
    elif isinstance(ops.op_of(log_probability), ops.DimShuffle):
        yield from map(node.op, _complement(node.inputs[0]))
