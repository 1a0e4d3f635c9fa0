"""Equal graphs of log-densities with fewer functions of each row: most of their time is for these.

What PyMC writes is right for any distribution, and costly where units have many rows and nodes: the
scale of a unit is exponentiated for each of its rows, and a Weibull density raises a product to a
power, of whose factors most do not depend on the unit.  Gradients follow, if these are taken
afterwards.
"""

from collections.abc import Sequence
from functools import reduce
from operator import truediv
from typing import NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Op, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import kept, rewritten_by
from pymc_coresets.reading.units.ragged import Spread


def with_fewer_functions(graphs: Sequence[Variable]) -> list[Variable]:
    """Take exponentials out of powers and logarithms, and compute what units have before rows.

    Parameters
    ----------
    graphs : sequence of Variable

    Examples
    --------
    >>> from pymc_coresets.reading.units.ragged import spread
    >>> time, z, sizes = pt.vector("time"), pt.vector("z"), pt.lvector("sizes")
    >>> [found] = with_fewer_functions([(time / pt.exp(spread(z, sizes))) ** 1.5])
    >>> found.eval({time: [2.0, 1.0], z: [0.0], sizes: [2]}, mode="FAST_COMPILE").round(3)
    array([2.828, 1.   ])
    """
    with ops.compiling():
        return rewritten_by(_of_units_first, rewritten_by(_without_exponentials, graphs))


class _Product(NamedTuple):
    """The exponential of a sum, times some numbers, over some others."""

    exponents: list[TensorVariable]
    above: list[TensorVariable]
    below: list[TensorVariable]

    @classmethod
    def of(cls, x: TensorVariable) -> "_Product":
        function = ops.scalar_op_of(x)
        if isinstance(function, ps.Exp):
            return cls(ops.checked_tensors(x.owner.inputs), [], [])
        if isinstance(ops.op_of(x), Spread):
            of_units, sizes = ops.checked_tensors(x.owner.inputs)
            if isinstance(ops.scalar_op_of(of_units), ps.Exp):
                [exponent] = of_units.owner.inputs
                return cls([ops.checked_tensor(x.owner.op(exponent, sizes))], [], [])
        if isinstance(function, ps.Mul | ps.TrueDiv):
            first, *others = map(cls.of, ops.checked_tensors(x.owner.inputs))
            more = [p.inverse for p in others] if isinstance(function, ps.TrueDiv) else others
            return reduce(cls.times, more, first)
        return cls([], [x], [])

    def times(self, other: "_Product") -> "_Product":
        """Return the product with another one."""
        return _Product(*(own + more for own, more in zip(self, other, strict=True)))

    @property
    def inverse(self) -> "_Product":
        """One over it."""
        return _Product([-x for x in self.exponents], self.below, self.above)

    @property
    def rests(self) -> list[TensorVariable]:
        """The product without the exponential, if there is anything else."""
        if not (self.above or self.below):
            return []
        above = _joined(pt.mul, self.above or [pt.ones(())])
        return [ops.checked_tensor(reduce(truediv, self.below, above))]


def _without_exponentials(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    """Take exponentials, which are positive, out of powers and logarithms of products."""
    function = ops.scalar_op_of(node.outputs[0])
    if not isinstance(function, ps.Pow | ps.Log):
        return kept(node, inputs)
    base, *power = ops.checked_tensors(inputs)
    product = _Product.of(base)
    if not product.exponents:
        return kept(node, inputs)
    if not power:
        return [_joined(pt.add, [*product.exponents, *map(pt.log, product.rests)])]
    [of_all] = power
    if not all(of_all.type.broadcastable):  # exponentials would be of each row
        return kept(node, inputs)
    powers = [pt.exp(of_all * x) for x in product.exponents]
    return [_joined(pt.mul, [*powers, *(rest**of_all for rest in product.rests)])]


def _joined(operation: Op, parts: Sequence[TensorVariable]) -> TensorVariable:
    return ops.checked_tensor(operation(*parts) if len(parts) > 1 else parts[0])


def _of_units_first(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    """Compute what depends on a unit alone once for the unit, and not for each of its rows."""
    if not isinstance(node.op, ops.Elemwise) or len(node.outputs) != 1:
        return kept(node, inputs)
    own = [v for v in inputs if isinstance(ops.op_of(v), Spread)]
    kinds = {(v.owner.op, v.owner.inputs[1]) for v in own}
    if len(kinds) != 1:
        return kept(node, inputs)
    [(op, sizes)] = kinds
    axis = own[0].type.ndim - 1 - op.n_after

    def of_units(some: Sequence[Variable]) -> Variable:
        known = [v.owner.inputs[0] if v in own else v for v in some]
        return ops.checked_tensor(op(node.op(*known), sizes))

    others = [v for v in inputs if v not in own and not v.type.broadcastable[axis]]
    if not others:
        return [of_units(inputs)]
    if isinstance(node.op.scalar_op, ps.Add | ps.Mul) and len(inputs) - len(others) > 1:
        joined = of_units([v for v in inputs if v not in others])
        return [ops.checked_tensor(node.op(joined, *others))]
    return kept(node, inputs)
