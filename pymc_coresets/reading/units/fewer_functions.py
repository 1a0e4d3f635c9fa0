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
    """A product of exponentials of numbers ``sign * exponent``, and of what is left."""

    exponents: list[tuple[int, TensorVariable]]
    left: list[tuple[int, TensorVariable]]

    @classmethod
    def of(cls, x: TensorVariable, sign: int = 1) -> "_Product":
        function = ops.scalar_op_of(x)
        if isinstance(function, ps.Exp):
            [exponent] = ops.checked_tensors(x.owner.inputs)
            return cls([(sign, exponent)], [])
        if isinstance(ops.op_of(x), Spread):
            of_units, sizes = ops.checked_tensors(x.owner.inputs)
            if isinstance(ops.scalar_op_of(of_units), ps.Exp):
                [exponent] = ops.checked_tensors(of_units.owner.inputs)
                return cls([(sign, ops.checked_tensor(x.owner.op(exponent, sizes)))], [])
        if isinstance(function, ps.Mul | ps.TrueDiv):
            first, *others = ops.checked_tensors(x.owner.inputs)
            inverse = -sign if isinstance(function, ps.TrueDiv) else sign
            parts = [cls.of(first, sign), *(cls.of(v, inverse) for v in others)]
            return cls([e for p in parts for e in p.exponents], [e for p in parts for e in p.left])
        return cls([], [(sign, x)])

    @property
    def rest(self) -> TensorVariable:
        """The product of what is left."""
        above = [x for sign, x in self.left if sign > 0] or [pt.ones(())]
        below = [x for sign, x in self.left if sign < 0]
        return ops.checked_tensor(reduce(truediv, below, _joined(pt.mul, above)))


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
        logs = [x if sign > 0 else -x for sign, x in product.exponents]
        return [_joined(pt.add, [*logs, *([pt.log(product.rest)] if product.left else [])])]
    [of_all] = power
    if not all(of_all.type.broadcastable):  # exponentials would be of each row
        return kept(node, inputs)
    powers = [pt.exp((of_all if sign > 0 else -of_all) * x) for sign, x in product.exponents]
    return [_joined(pt.mul, [*powers, *([product.rest**of_all] if product.left else [])])]


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
