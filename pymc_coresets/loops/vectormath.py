"""Elementary functions that a compiler can vectorise, and the compilation mode that uses them.

The mathematical library's ``exp`` and ``log1p`` are function calls, so a compiler cannot vectorise
a loop that contains them: each element costs 20 to 30 ns. Written as polynomials, the same loop
processes 4 or 8 elements at a time. :func:`vectorise` replaces the functions in any model's graph
by such polynomials, just before loops are fused.

Functions of one argument are accurate to 3 units in the last place in float64, and have the right
limits at infinities and NaN; softplus is so above 1e-307, and 0 below.  Log-gamma (absolutely, near
its zeros), trigamma and powers are accurate to about 1e-14.  The polynomials of exp and softplus
have the smallest largest relative error (by Remez's exchange, in 60 digits: 2e-17 and 5e-18); those
of log are of the freely distributable fdlibm, and that of log-gamma is Stirling's.
"""

# ruff: noqa: ARG001, ARG002 (Numba and PyTensor determine the arguments of their callbacks)

import math
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from numba import njit
from pytensor.graph import Apply, Constant, FunctionGraph, Variable, node_rewriter

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import numba_njit, register_scalar_funcify
from pymc_coresets.loops.numba_api import bits_of, double_of

_LOG2_E, _HALF_LN2 = 1 / math.log(2), math.log(2) / 2
# Their sum is log(2); k times the first has no rounding error.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 1.5 * 2**52  # adding it rounds a double to an integer and stores this in the low bits
# Bits of a double.
_EXPONENT_BIAS, _MANTISSA = 1023, 2**52 - 1
_SQRT_HALF, _ONE = 0x3FE6A09E << 32, 1023 << 52

#: Most arrays among which the functions in a branch of a switch are found, and what needs them.
_BRANCH = 64

# PyTensor keeps compiled functions on disk: a changed function needs another key there.
_VERSION = sha256(Path(__file__).read_bytes()).hexdigest()


def _straight_line[F: Callable[..., object]](function: F) -> F:
    # Fast-math would reassociate the compensated sums; a product and a sum in one instruction only
    # rounds less.  Python's division would raise: a branch.  Python cannot call what PyTensor's
    # compiler makes, which takes two thirds of the time that Numba's does.
    made = numba_njit(function, fastmath={"contract"}, error_model="numpy", forceinline=True)
    return cast(F, made)


@_straight_line
def _expm1_of_small(r: float) -> float:
    """Compute exp(r) - 1, |r| <= log(2)/2, as r + r**2 q(r)."""
    # In pairs, to shorten the chain of dependent operations.
    w = r * r
    w2 = w * w
    low = (0.5 + 0.16666666666666644 * r) + w * (0.04166666666662431 + 0.008333333333356199 * r)
    middle = (0.0013888888917138222 + 0.0001984126978467025 * r) + w * (
        2.480152139653121e-05 + 2.755735550398224e-06 * r
    )
    high = 2.7620046585615247e-07 + 2.506816979045176e-08 * r
    return r + w * (low + w2 * (middle + w2 * high))


@_straight_line
def _exp_of_small(r: float) -> float:
    """Compute exp(r), |r| <= log(2)/2."""
    return 1.0 + _expm1_of_small(r)


@_straight_line
def _reduced(y: float) -> tuple[float, int]:
    """Return r and k, where y = k log(2) + r and |r| <= log(2)/2."""
    rounded = y * _LOG2_E + _ROUND
    k = rounded - _ROUND
    return (y - k * _LN2_HIGH) - k * _LN2_LOW, bits_of(rounded) - bits_of(_ROUND)


@_straight_line
def vector_exp(x: float) -> float:
    """Compute exp(x) = 2**k exp(r), |r| <= log(2)/2."""
    # A product that vanishes takes more than a hundred cycles, so none is formed where exp(x) is 0.
    vanishes = x < -745.2
    r, k = _reduced(min(0.0 if vanishes else x, 710.0))
    half = k >> 1  # in two factors, to reach results below the smallest normal number
    scaled = _exp_of_small(r) * double_of((half + _EXPONENT_BIAS) << 52)
    y = scaled * double_of((k - half + _EXPONENT_BIAS) << 52)
    y = 0.0 if vanishes else y
    return y if x == x else x  # noqa: PLR0124 (min loses NaN)


@_straight_line
def vector_expm1(x: float) -> float:
    """Compute exp(x) - 1."""
    near = _expm1_of_small(min(max(x, -_HALF_LN2), _HALF_LN2))
    return near if abs(x) <= _HALF_LN2 else vector_exp(x) - 1.0


@_straight_line
def _log_parts(x: float) -> tuple[float, float, float, float]:
    """Split x = 2**k m, sqrt(1/2) <= m < sqrt(2), into k, f = m - 1, and log(1 + f) - f."""
    bits = bits_of(x) + (_ONE - _SQRT_HALF)
    k = double_of((bits >> 52) - _EXPONENT_BIAS + bits_of(_ROUND)) - _ROUND
    f = double_of((bits & _MANTISSA) + _SQRT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (
        3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)
    )
    odd = z * (
        6.666666666666735130e-01
        + w
        * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half_square = 0.5 * f * f
    return k, f, s * (half_square + even + odd), half_square


@_straight_line
def vector_log(x: float) -> float:
    """Compute log(x) = k log(2) + log(m)."""
    small = x < 2.0**-1022  # below the normal numbers
    k, f, r, half_square = _log_parts(x * 2.0**54 if small else x)
    k = k - 54.0 if small else k
    y = k * _LN2_HIGH - ((half_square - (r + k * _LN2_LOW)) - f)
    y = x if x == np.inf else y
    y = -np.inf if x == 0.0 else y
    return y if x >= 0.0 else np.nan


@_straight_line
def vector_log1p(x: float) -> float:
    """Compute log(1 + x), corrected for the rounding of 1 + x."""
    u = 1.0 + x
    k, f, r, half_square = _log_parts(u)
    lost = (x - (u - 1.0)) / u
    y = k * _LN2_HIGH - ((half_square - (r + (k * _LN2_LOW + lost))) - f)
    y = x if x == np.inf else y
    y = -np.inf if x == -1.0 else y
    return y if x >= -1.0 else np.nan


@_straight_line
def vector_log1mexp(x: float) -> float:
    """Compute log(1 - exp(x)), x <= 0, corrected for the rounding of 1 - exp(x)."""
    u = -vector_expm1(x)
    lost = (-vector_exp(x) - (u - 1.0)) / u if x < -_HALF_LN2 else 0.0
    return vector_log(u) + lost


@_straight_line
def vector_softplus(x: float) -> float:
    """Compute log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|); 0 below -708.

    With s = e / (2 + e), log(1 + e) = 2 artanh(s) = e - (e**2/2 - s (e**2/2 + s**2 q(s**2))).
    """
    lowest = -708.0  # its exp is above the smallest normal number
    r, k = _reduced(max(-abs(x), lowest))
    e = _exp_of_small(r) * double_of((k + _EXPONENT_BIAS) << 52)
    e = e if abs(x) <= -lowest else 0.0
    s = e / (2.0 + e)
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    low = (0.6666666666666666 + 0.40000000000014813 * z) + z2 * (
        0.28571428567053472 + 0.22222222722631396 * z
    )
    middle = (0.18181789194221706 + 0.15385576378178434 * z) + z2 * (
        0.13314047479705864 + 0.12001936214906145 * z
    )
    high = 0.087965840064435625 + 0.16172372522579061 * z
    half_square = 0.5 * e * e
    log1p = e - (half_square - s * (half_square + z * (low + z4 * (middle + z4 * high))))
    return max(x, 0.0) + log1p


@_straight_line
def vector_sigmoid(x: float) -> float:
    """Compute 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + vector_exp(-x))


@_straight_line
def vector_power(x: float, y: float) -> float:
    """Compute x**y = +-exp(y log|x|); NaN where x is negative and y is not an integer."""
    magnitude = vector_exp(y * vector_log(abs(x)))
    magnitude = 1.0 if (y == 0.0) | (abs(x) == 1.0) else magnitude
    whole = np.floor(y) == y
    odd = whole & (np.floor(0.5 * y) != 0.5 * y)
    power = -magnitude if odd & (bits_of(x) < 0) else magnitude  # the sign bit: of -0.0 too
    return np.nan if (x < 0.0) & (x > -np.inf) & (not whole) else power


@_straight_line
def vector_gammaln(x: float) -> float:
    """Compute log(gamma(x)), x >= 0, by Stirling's series, shifted up by 8; NaN for negative x."""
    low = x < 8.0
    product = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0)
    z = x + 8.0 if low else x
    inverse = 1.0 / z
    w = inverse * inverse
    series = 1.0 / 12.0 + w * (
        -1.0 / 360.0
        + w
        * (
            1.0 / 1260.0
            + w * (-1.0 / 1680.0 + w * (1.0 / 1188.0 + w * (-691.0 / 360360.0 + w / 156.0)))
        )
    )
    constant = 0.41893853320467274178  # (log(2 pi) - 1) / 2
    stirling = (z - 0.5) * (vector_log(z) - 1.0) + constant + inverse * series
    y = stirling - vector_log(product if low else 1.0)
    y = x if x == np.inf else y
    return y if x >= 0.0 else np.nan


@_straight_line
def vector_trigamma(x: float) -> float:
    """Compute the second derivative of log(gamma(x)), x > 0, by its asymptotic series."""
    shifted = 0.0
    for i in range(8):
        shifted += 1.0 / ((x + i) * (x + i))
    low = x < 12.0
    inverse = 1.0 / (x + 8.0 if low else x)
    w = inverse * inverse
    series = 1.0 / 6.0 + w * (
        -1.0 / 30.0
        + w
        * (
            1.0 / 42.0
            + w * (-1.0 / 30.0 + w * (5.0 / 66.0 + w * (-691.0 / 2730.0 + w * 7.0 / 6.0)))
        )
    )
    y = inverse + w * (0.5 + inverse * series) + (shifted if low else 0.0)
    return y if x > 0.0 else np.nan


#: What replaces an operation of PyTensor.
_FUNCTIONS: dict[type, Callable[..., float]] = {
    ps.Exp: vector_exp,
    ps.Log: vector_log,
    ps.Log1p: vector_log1p,
    ps.Expm1: vector_expm1,
    ps.Log1mexp: vector_log1mexp,
    ps.Softplus: vector_softplus,
    ps.Sigmoid: vector_sigmoid,
    ps.GammaLn: vector_gammaln,
    ps.Pow: vector_power,
    # PyTensor has no Numba version: it calls Python for each number, which compiled loops cannot.
    ps.TriGamma: vector_trigamma,
}
_BY_NAME = {function.__name__: function for function in _FUNCTIONS.values()}
_KINDS = {function.__name__: kind for kind, function in _FUNCTIONS.items()}


@cache
def _for_python(name: str) -> Callable[..., float]:
    function = _BY_NAME[name]

    @njit
    def called(*inputs: float) -> float:
        return function(*inputs)

    return cast(Callable[..., float], called)


class _VectorFunction(ps.ScalarOp):
    """Scalar Op whose Numba implementation is one of the functions above, by its name."""

    __props__ = ("name",)
    nout = 1

    def impl(self, *inputs: float) -> float:
        return _for_python(self.name)(*inputs)

    def c_code(self, *_args: object, **_kwargs: object) -> str:
        raise NotImplementedError("Only Numba compiles these functions.")

    def supports_c_code(self, inputs: object, outputs: object) -> bool:
        # Loop fusion calls this for every Op, with any backend.
        return True


@register_scalar_funcify(_VectorFunction)
def _funcify(op: _VectorFunction, node: Apply, **kwargs: object) -> tuple[Any, str]:
    return _BY_NAME[op.name], sha256(f"{op.name} {_VERSION}".encode()).hexdigest()


@node_rewriter([ops.Elemwise])
def vectorise(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace functions of double precision by those of this module."""
    return _replaced(node)


@node_rewriter([ops.Elemwise])
def as_pytensors(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Undo `vectorise`: NumPy and SciPy have the functions of PyTensor."""
    if not isinstance(node.op.scalar_op, _VectorFunction):
        return None
    kind = _KINDS[node.op.scalar_op.name]
    return _elementwise(kind(ps.upgrade_to_float), node.inputs)


@node_rewriter([ops.Elemwise])
def compile_trigamma(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace the trigamma function by that of this module, and no other."""
    return _replaced(node) if type(node.op.scalar_op) is ps.TriGamma else None


def _replaced(node: Apply) -> list[Variable] | None:
    kind = type(node.op.scalar_op)
    if kind not in _FUNCTIONS or any(i.type.dtype != "float64" for i in node.inputs):
        return None
    if kind is ps.Pow and isinstance(node.inputs[1], Constant):
        return None  # such as a square, which the compiler turns into multiplications
    function = _VectorFunction(ps.upgrade_to_float, name=_FUNCTIONS[kind].__name__)
    return _elementwise(function, node.inputs)


@node_rewriter([ops.Elemwise])
def pull_function_out_of_switch(
    fgraph: FunctionGraph, node: Apply
) -> dict[Variable, Variable] | None:
    """Take f(a) and f(b), of which each branch of a switch needs one, from f(switch(c, a, b)).

    Half the calls of f.  Branches may compute further with it, and other switches on the same
    condition: as those of a log-density of binary outcomes and its derivatives, which need the
    sigmoid of the predictor where the outcome is zero, and of its negative where it is one.
    """
    if not isinstance(node.op.scalar_op, ps.Switch):
        return None
    condition, *branches = node.inputs
    of_left, of_right = (
        [v for v in _functions_in(branch) if _is_needed_where(fgraph, v, condition, 1 + number)]
        for number, branch in enumerate(branches)
    )
    for left, right in ((a, b) for a in of_left for b in of_right):
        [x], [y] = left.owner.inputs, right.owner.inputs
        if left.owner.op != right.owner.op or x.type.dtype != y.type.dtype:
            continue
        found = left.owner.op(ops.Elemwise(node.op.scalar_op)(condition, x, y))
        shapes = {v.type.broadcastable for v in (left, right, found)}
        if len(shapes) == 1:  # it is not computed for more numbers than before
            is_whole = [left, right] == branches
            return {node.outputs[0]: found} if is_whole else {left: found, right: found}
    return None


def _functions_in(variable: Variable) -> list[Variable]:
    """Return what is computed by functions of one argument for an elementwise result.

    The result itself by any such operation; what it is computed from by functions that take long.
    """
    found: dict[Variable, None] = {}
    left, seen = [variable], {variable}
    while left and len(seen) < _BRANCH:
        one = left.pop()
        if not isinstance(ops.op_of(one), ops.Elemwise):
            continue
        is_counted = one is variable or type(one.owner.op.scalar_op) in _FUNCTIONS
        if is_counted and len(one.owner.inputs) == 1:
            found[one] = None
        left += [v for v in one.owner.inputs if v not in seen]
        seen.update(one.owner.inputs)
    return [*found]


def _is_needed_where(
    fgraph: FunctionGraph, variable: Variable, condition: Variable, branch: int
) -> bool:
    """Whether an array is needed only in a branch, 1 or 2, of switches on a condition."""
    left, seen = [variable], {variable}
    while left and len(seen) < _BRANCH:
        one = left.pop()
        for client, place in fgraph.clients[one]:
            op = None if isinstance(client, str) else client.op
            if not isinstance(op, ops.Elemwise):
                return False
            if isinstance(op.scalar_op, ps.Switch) and client.inputs[0] is condition:
                if place != branch:
                    return False
                continue
            left += [v for v in client.outputs if v not in seen]
            seen.update(client.outputs)
    return not left


@node_rewriter([ops.Elemwise])
def compare_without_sigmoid(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite whether sigmoid(x), or 1 - sigmoid(x), is within [0, 1]: it is, unless x is NaN.

    Mixtures check their weights so, of which only logarithms are needed otherwise.
    """
    kind = type(node.op.scalar_op)
    if kind not in (ps.GE, ps.LE) or not isinstance(node.inputs[1], Constant):
        return None
    value, bound = node.inputs[0], np.asarray(node.inputs[1].data)
    if bound.size != 1 or not (bound.item() <= 0 if kind is ps.GE else bound.item() >= 1):
        return None
    whole = ops.op_of(value)
    if isinstance(whole, ops.Elemwise) and isinstance(whole.scalar_op, ps.Sub):
        one, value = value.owner.inputs
        if not isinstance(one, Constant) or not np.all(one.data == 1):
            return None
    inner = ops.op_of(value)
    if not (isinstance(inner, ops.Elemwise) and isinstance(inner.scalar_op, ps.Sigmoid)):
        return None
    found = _elementwise(ps.le, [value.owner.inputs[0], pt.constant(np.inf)])
    alike = found[0].type.broadcastable == node.outputs[0].type.broadcastable
    return found if alike else None


class _InlineComposite(ps.Composite):
    """A fused expression that is always compiled into its loop."""


@register_scalar_funcify(_InlineComposite)
def _funcify_inline(op: _InlineComposite, node: Apply, **kwargs: object) -> tuple[Any, str | None]:
    # The compiler would put a long expression into a function of its own, and a loop that calls
    # a function is not vectorised.
    function, key = ops.numba_funcify_Composite(op, node, **kwargs)
    written, source = ops.with_expressions(function)
    inline = numba_njit(written, forceinline=True, error_model="numpy")
    return inline, key and sha256(f"{key}{source}{_VERSION}".encode()).hexdigest()


@node_rewriter([ops.Elemwise])
def inline_composite(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Have fused expressions compiled into their loops."""
    own, inlined = node.op.scalar_op, _inlined(node.op.scalar_op)
    return None if inlined is own else _elementwise(inlined, node.inputs)


@node_rewriter([ops.FusedElemwise])
def inline_fused_composite(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Have the expression of a loop with sums or lookups compiled into it.

    PyTensor writes an expression anew where both its values and sums of them are needed.
    """
    made = ops.with_scalar_op(node.op, _inlined)
    if made is None:
        return None
    outputs: list[Variable] = made.make_node(*node.inputs).outputs
    return outputs


def _inlined(function: ps.ScalarOp) -> ps.ScalarOp:
    if not isinstance(function, ps.Composite) or isinstance(function, _InlineComposite):
        return function
    return _InlineComposite(function.inputs, function.outputs)


def _elementwise(function: ps.ScalarOp, inputs: Sequence[Variable]) -> list[Variable]:
    outputs: list[Variable] = ops.Elemwise(function).make_node(*inputs).outputs
    return outputs
