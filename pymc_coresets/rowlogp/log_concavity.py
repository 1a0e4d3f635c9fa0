"""Proofs that a posterior is log-concave, and so has no mode besides the one that is known.

Of each variable in the graph of the log-density, whether it is convex or concave follows from those
of its inputs by the rules of disciplined convex programming (Grant, Boyd and Ye 2006).  The
logarithm is followed as well: ``log(sigmoid(x))`` and ``log(1 - sigmoid(x))`` are concave
although neither operand is.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph import Apply, Constant, Variable, graph_inputs

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import CheckParameterValue, LogTransform, ZeroSumTransform
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.rest import rest_graph


@dataclass(frozen=True, kw_only=True)
class Convexity:
    """What is known of the entries of an array, as functions of a point of a space.

    Parameters
    ----------
    convex, concave : bool
        Whether all are known to be; both if they are affine.
    log_convex, log_concave : bool
        Whether the logarithms of all are known to be; the entries are positive then.
    nonnegative : bool
        Whether no entry is negative anywhere.
    """

    convex: bool = False
    concave: bool = False
    log_convex: bool = False
    log_concave: bool = False
    nonnegative: bool = False

    @property
    def affine(self) -> bool:
        """Whether the entries are affine."""
        return self.convex and self.concave

    @property
    def positive(self) -> bool:
        """Whether all entries are positive everywhere: they have a logarithm."""
        return self.log_convex or self.log_concave

    @property
    def mirrored(self) -> "Convexity":
        """The convexity of minus the array."""
        return Convexity(convex=self.concave, concave=self.convex)

    @property
    def reciprocal(self) -> "Convexity":
        """The convexity of one over the array."""
        return _of_logs(convex=self.log_concave, concave=self.log_convex)

    def plus(self, other: "Convexity") -> "Convexity":
        """Return the convexity of a sum."""
        return replace(self.and_of(other), log_concave=False)

    def times(self, other: "Convexity") -> "Convexity":
        """Return the convexity of a product."""
        convex, concave = (
            self.log_convex and other.log_convex,
            self.log_concave and other.log_concave,
        )
        return replace(
            _of_logs(convex=convex, concave=concave),
            nonnegative=self.nonnegative and other.nonnegative,
        )

    def and_of(self, other: "Convexity") -> "Convexity":
        """Return what holds of both: of the entries of both arrays."""
        return Convexity(
            convex=self.convex and other.convex,
            concave=self.concave and other.concave,
            log_convex=self.log_convex and other.log_convex,
            log_concave=self.log_concave and other.log_concave,
            nonnegative=self.nonnegative and other.nonnegative,
        )


UNKNOWN = Convexity()
AFFINE = Convexity(convex=True, concave=True)
CONSTANT = AFFINE
POSITIVE = Convexity(convex=True, concave=True, log_convex=True, log_concave=True, nonnegative=True)


def _of_logs(*, convex: bool, concave: bool) -> Convexity:
    """Return the convexity of an array by that of its logarithm."""
    return Convexity(
        convex=convex, log_convex=convex, log_concave=concave, nonnegative=convex or concave
    )


def _signed(values: np.ndarray) -> Convexity:
    """Return the convexity of a constant with some values; unknown ones are NaN."""
    if (values > 0).all():
        return POSITIVE
    return replace(CONSTANT, nonnegative=bool((values >= 0).all()))


def is_log_concave(loglik: LogLikelihood) -> bool:
    """Whether the posterior is proven to be log-concave on the unconstrained scale.

    If it is, its modes are one connected set.  False does not say that it is not: of variables
    that are integrated out, of rows that are not in memory, and of operations without a rule,
    nothing is known.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     rate = pm.math.exp(pm.Normal("a"))
    ...     y = pm.Poisson("y", rate, observed=np.arange(3))
    >>> is_log_concave(LogLikelihood(find_observations(model)))
    True
    """
    if "log-concave" not in loglik.derived:
        loglik.derived["log-concave"] = _proven(loglik.observations)
    return bool(loglik.derived["log-concave"])


def _proven(observations: Observations) -> bool:
    of_prior = Convexities(dict.fromkeys(observations.model.value_vars, AFFINE), {})
    return rows_are_log_concave(observations) and of_prior.of(rest_graph(observations)).concave


def rows_are_log_concave(observations: Observations, given: Collection[str] = ()) -> bool:
    """Whether the likelihood is proven to be log-concave in all variables but some.

    On the unconstrained scale, whatever the values of the latter are.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     effects = pm.HalfNormal("scale") * pm.Normal("z", shape=3)
    ...     rates = pm.math.exp(effects[[0, 0, 1, 1, 2, 2]])
    ...     y = pm.Poisson("y", rates, observed=np.arange(6))
    >>> observations = find_observations(model)
    >>> rows_are_log_concave(observations, ["scale"]), rows_are_log_concave(observations)
    (True, False)
    """
    model = observations.model
    if observations.integrated or model.discrete_value_vars:
        return False
    of_parameters: dict[Variable, Convexity] = {
        observations.parameters[rv.name]: _on_own_scale(model.rvs_to_transforms[rv])
        for rv in model.free_RVs
        if rv.name not in given
    }
    rows: dict[Variable, np.ndarray] = {}
    if not observations.prototypes:
        rows = {row.placeholder: row.values for row in observations.rows}
    return Convexities(of_parameters, rows).of(observations.loglik).concave


def _on_own_scale(transform: object) -> Convexity:
    """Return the convexity of a free variable, as a function of its unconstrained value."""
    if transform is None or isinstance(transform, ZeroSumTransform):
        return AFFINE
    return _of_logs(convex=True, concave=True) if isinstance(transform, LogTransform) else UNKNOWN


class Convexities:
    """The convexities of the variables of a graph.

    Parameters
    ----------
    leaves : mapping of Variable to Convexity
        The inputs that depend on the point.
    rows : mapping of Variable to ndarray
        Values of other inputs.  Those that are missing are constants of unknown sign.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> found = Convexities({x: AFFINE}, {})
    >>> found.of(pt.log1p(pt.exp(x)) - 3 * x).convex, found.of(pt.exp(x) * x).convex
    (True, False)
    """

    def __init__(
        self, leaves: Mapping[Variable, Convexity], rows: Mapping[Variable, np.ndarray]
    ) -> None:
        self._found = dict(leaves)
        self._rows = rows

    def of(self, variable: Variable) -> Convexity:
        """Return the convexity of a variable."""
        for node in io_toposort([], [variable]):
            depends = [i in self._found for i in node.inputs]
            if any(depends):
                self._found |= dict.fromkeys(node.outputs, self._after(node))
        return self._found.get(variable, CONSTANT)

    def _known(self, variable: Variable) -> Convexity:
        return self._found.get(variable, CONSTANT)

    def _signed(self, variable: Variable) -> Convexity:
        """Return a convexity; of constants, with the sign of their values."""
        known = variable in self._found
        return self._found[variable] if known else _signed(self._values(variable))

    def _together(self, inputs: Sequence[Variable]) -> list[Convexity]:
        """Return convexities; of constants, with signs only if all others have one."""
        others = [self._found[i] for i in inputs if i in self._found]
        signed = all(own.nonnegative for own in others)
        return [self._signed(i) if signed else self._known(i) for i in inputs]

    def _values(self, variable: Variable) -> np.ndarray:
        """Return the values of a constant; NaN, which compares with nothing, if they are unknown.

        So they are at a point that is not given, and of rows that are not in memory.
        """
        if isinstance(variable, Constant):
            return np.asarray(variable.data)
        inputs = [i for i in graph_inputs([variable]) if not isinstance(i, Constant)]
        if any(i not in self._rows and not isinstance(i, ops.SharedVariable) for i in inputs):
            return np.array(np.nan)
        [values] = values_of([variable], self._rows)
        return values

    def _after(self, node: Apply) -> Convexity:
        """Return the convexity of the result of an operation."""
        if isinstance(node.op, ops.Elemwise):
            return self._elementwise(type(node.op.scalar_op), node.inputs)
        for kinds, rule in _OF_ARRAYS:
            if isinstance(node.op, kinds):
                return rule(self, node)
        return UNKNOWN

    def moved(self, node: Apply) -> Convexity:
        """Return that of an array whose entries are rearranged."""
        first, *others = node.inputs
        return UNKNOWN if any(i in self._found for i in others) else self._signed(first)

    def joined(self, node: Apply) -> Convexity:
        """Return that of arrays side by side."""
        return reduce(Convexity.and_of, self._together(node.inputs))

    def changed(self, node: Apply) -> Convexity:
        """Return that of an array some of whose entries are others, or are added to."""
        first, new, *places = node.inputs
        if any(i in self._found for i in places):
            return UNKNOWN
        return reduce(Convexity.plus, self._together([first, new]))

    def added_up(self, node: Apply) -> Convexity:
        """Return that of sums along axes."""
        [x] = node.inputs
        is_sum = isinstance(node.op.scalar_op, ps.Add)
        return replace(self._known(x), log_concave=False) if is_sum else UNKNOWN

    def product(self, node: Apply) -> Convexity:
        """Return that of a matrix product."""
        core = getattr(node.op, "core_op", node.op)
        dependent = [i for i in node.inputs if i in self._found]
        affine = len(dependent) == 1 and self._found[dependent[0]].affine
        return AFFINE if affine and isinstance(core, _PRODUCTS) else UNKNOWN

    def first(self, node: Apply) -> Convexity:
        """Return that of the first input."""
        return self._signed(node.inputs[0])

    def softmax(self, node: Apply) -> Convexity:
        """Return that of probabilities by an affine function: their logarithms are concave."""
        affine = self.first(node).affine
        if isinstance(node.op, ops.LogSoftmax):
            return Convexity(concave=affine)
        return Convexity(log_concave=affine, nonnegative=True)

    def log_sum_exp(self, node: Apply) -> Convexity:
        """Return that of a logarithm of a sum of exponentials."""
        return Convexity(convex=self.first(node).convex)

    # -- elementwise -------------------------------------------------------------------------------

    def _elementwise(self, kind: type, inputs: Sequence[Variable]) -> Convexity:
        if kind in _OF_ONE:
            return _OF_ONE[kind](self._known(inputs[0]))
        return _OF_SEVERAL[kind](self, *inputs) if kind in _OF_SEVERAL else UNKNOWN

    def sum(self, *terms: Variable) -> Convexity:
        """Return that of a sum."""
        return reduce(Convexity.plus, self._together(terms))

    def larger(self, *inputs: Variable) -> Convexity:
        """Return that of a maximum."""
        both = reduce(Convexity.and_of, self._together(inputs))
        return Convexity(convex=both.convex, nonnegative=both.nonnegative)

    def smaller(self, *inputs: Variable) -> Convexity:
        """Return that of a minimum."""
        both = reduce(Convexity.and_of, self._together(inputs))
        return Convexity(concave=both.concave, nonnegative=both.nonnegative)

    def second(self, _: Variable, x: Variable) -> Convexity:
        """Return that of the second input, which has the first one's shape."""
        return self._signed(x)

    def difference(self, one: Variable, other: Variable) -> Convexity:
        """Return that of ``one - other``; of ``1 - sigmoid(x)``, which is ``sigmoid(-x)``."""
        if _is(other, ps.Sigmoid) and (self._values(one) == 1).all():
            return self._complement(other)
        return self._known(one).plus(self._known(other).mirrored)

    def log_of_one_more(self, x: Variable) -> Convexity:
        """Return that of ``log(1 + x)``; also of ``log(1 - sigmoid(y))``."""
        if _is(x, ps.Neg) and _is(x.owner.inputs[0], ps.Sigmoid):
            return _log(self._complement(x.owner.inputs[0]))
        return _log(POSITIVE.plus(self._known(x)))

    def _complement(self, probability: Variable) -> Convexity:
        """Return that of one minus a sigmoid function."""
        return _sigmoid(self._known(probability.owner.inputs[0]).mirrored)

    def multiplied(self, *factors: Variable) -> Convexity:
        """Return that of a product."""
        constant = [i for i in factors if i not in self._found]
        product = reduce(Convexity.times, [self._found[i] for i in factors if i in self._found])
        return reduce(self._scaled, constant, product)

    def _scaled(self, x: Convexity, by: Variable) -> Convexity:
        """Return the convexity of an array times a constant."""
        values = self._values(by)
        sign = _signed(values)
        if sign.positive:
            return x
        if sign.nonnegative:
            return replace(x, log_convex=False, log_concave=False)
        if (values <= 0).all():
            return x.mirrored
        return AFFINE if x.affine else UNKNOWN

    def divided(self, one: Variable, other: Variable) -> Convexity:
        """Return that of a ratio."""
        if other not in self._found:
            return self._scaled(self._known(one), other)
        below = self._found[other].reciprocal
        return self._scaled(below, one) if one not in self._found else self._found[one].times(below)

    def power(self, base: Variable, exponent: Variable) -> Convexity:
        """Return that of a power with a constant exponent."""
        values, x = self._values(exponent), self._signed(base)
        if (values < 0).all():
            return x.reciprocal if x.positive else UNKNOWN
        if not (values > 0).all():
            return UNKNOWN
        found = _of_logs(convex=x.log_convex, concave=x.log_concave)
        even = bool((values % 2 == 0).all())
        convex = (values >= 1).all() and x.nonnegative and x.convex
        return replace(
            found,
            convex=found.convex or bool(convex) or (even and x.affine),
            nonnegative=even or x.nonnegative,
        )

    def chosen(self, condition: Variable, one: Variable, other: Variable) -> Convexity:
        """Return that of entries of one array or the other."""
        if condition not in self._found:
            return reduce(Convexity.and_of, self._together([one, other]))
        if self._holds(condition, always=True):
            return self._signed(one)
        return self._signed(other) if self._holds(condition, always=False) else UNKNOWN

    def _holds(self, condition: Variable, *, always: bool) -> bool:
        """Whether a condition on the point is known to hold everywhere, or nowhere.

        Some guard against rounding: no exponential is zero, and no logarithm infinite.
        """
        kind = type(ops.scalar_op_of(condition))
        inputs = condition.owner.inputs if condition.owner else []
        if kind in {ps.EQ, ps.NEQ}:
            return always == (kind is ps.NEQ) and self._differ(*inputs)
        if kind in {ps.GE, ps.GT, ps.LE, ps.LT}:
            one, other = inputs if kind in {ps.GE, ps.GT} else reversed(inputs)
            return always and self._is_above(one, other, strictly=kind in {ps.GT, ps.LT})
        parts = [i for i in inputs if i in self._found]
        if kind is ps.Invert:
            return self._holds(parts[0], always=not always)
        decides = kind in _DECIDES and _DECIDES[kind] == always
        return decides and any(self._holds(i, always=always) for i in parts)

    def _differ(self, one: Variable, other: Variable) -> bool:
        """Whether two arrays are known to have no equal entries at any point."""
        constant, varying = (one, other) if other in self._found else (other, one)
        values, x = self._values(constant), self._known(varying)
        finite = x.convex or x.concave
        return bool((finite and np.isinf(values).all()) or (x.positive and (values <= 0).all()))

    def _is_above(self, one: Variable, other: Variable, *, strictly: bool) -> bool:
        """Whether an array of no negative entries is compared with a number that is not positive.

        For a strict comparison, an array of positive entries.
        """
        values, x = self._values(other), self._known(one)
        above = x.positive or (x.nonnegative and not (strictly and (values == 0).any()))
        return bool(above and (values <= 0).all())


def _is(variable: Variable, operation: type) -> bool:
    """Whether a variable is the result of an elementwise operation."""
    return isinstance(getattr(ops.op_of(variable), "scalar_op", None), operation)


# -- functions of one array ------------------------------------------------------------------------


def _exp(x: Convexity) -> Convexity:
    return _of_logs(convex=x.convex, concave=x.concave)


def _log(x: Convexity) -> Convexity:
    return Convexity(convex=x.log_convex, concave=x.log_concave or x.concave)


def _sigmoid(x: Convexity) -> Convexity:
    return Convexity(log_concave=x.concave, nonnegative=True)


def _softplus(x: Convexity) -> Convexity:
    return Convexity(convex=x.convex, nonnegative=True)


def _square(x: Convexity) -> Convexity:
    found = _of_logs(convex=x.log_convex, concave=x.log_concave)
    convex = found.convex or x.affine or (x.nonnegative and x.convex)
    return replace(found, convex=convex, nonnegative=True)


def _absolute(x: Convexity) -> Convexity:
    return Convexity(convex=x.affine or (x.nonnegative and x.convex), nonnegative=True)


def _root(x: Convexity) -> Convexity:
    found = _of_logs(convex=x.log_convex, concave=x.log_concave)
    return replace(found, concave=x.concave, nonnegative=True)


def _erfc(x: Convexity) -> Convexity:
    """Of a function that falls, and is log-concave."""
    return Convexity(log_concave=x.convex, nonnegative=True)


def _same(x: Convexity) -> Convexity:
    return x


_OF_ONE: dict[type, Callable[[Convexity], Convexity]] = {
    ps.Neg: lambda x: x.mirrored,
    ps.Exp: _exp,
    ps.Expm1: lambda x: Convexity(convex=x.convex),
    ps.Log: _log,
    ps.Sigmoid: _sigmoid,
    ps.Softplus: _softplus,
    ps.Sqr: _square,
    ps.Sqrt: _root,
    ps.Abs: _absolute,
    ps.Reciprocal: lambda x: x.reciprocal,
    ps.Erfc: _erfc,
    ps.Identity: _same,
    ps.Cast: _same,
}

_OF_SEVERAL: dict[type, Callable[..., Convexity]] = {
    ps.Add: Convexities.sum,
    ps.Sub: Convexities.difference,
    ps.Mul: Convexities.multiplied,
    ps.TrueDiv: Convexities.divided,
    ps.Pow: Convexities.power,
    ps.Switch: Convexities.chosen,
    ps.Second: Convexities.second,
    ps.Log1p: Convexities.log_of_one_more,
    ps.ScalarMaximum: Convexities.larger,
    ps.ScalarMinimum: Convexities.smaller,
}

_PRODUCTS = (ops.Dot, ops.SparseDot, ops.StructuredDot)
_OF_ARRAYS: list[tuple[Any, Callable[[Convexities, Apply], Convexity]]] = [
    (ops.MOVES, Convexities.moved),
    ((ops.Join, ops.MakeVector), Convexities.joined),
    ((ops.IncSubtensor, ops.AdvancedIncSubtensor), Convexities.changed),
    (ops.CAReduce, Convexities.added_up),
    ((*_PRODUCTS, ops.Blockwise), Convexities.product),
    (CheckParameterValue, Convexities.first),
    ((ops.Softmax, ops.LogSoftmax), Convexities.softmax),
    (ops.LogSumExp, Convexities.log_sum_exp),
]

#: Parts of a condition that decide it: one that fails, or one that holds.
_DECIDES: dict[type, bool] = {ps.AND: False, ps.Mul: False, ps.OR: True}
