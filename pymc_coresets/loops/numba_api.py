"""All that is used of Numba and llvmlite beyond `numba.njit`, in one place.

Numba may change these interfaces in any release; `tests/unit/test_compat.py` says what broke.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _reinterpret(source: types.Type, target: types.Type, llvm: ir.Type) -> Callable[..., Any]:
    """Make a function for compiled code that reads the bits of a number as another type."""

    @intrinsic
    def reinterpret(context: object, x: object) -> tuple[Any, Callable[..., ir.Value]]:  # noqa: ARG001
        def generate(
            context: object,  # noqa: ARG001
            builder: ir.IRBuilder,
            signature: object,  # noqa: ARG001
            args: Sequence[ir.Value],
        ) -> ir.Value:
            return builder.bitcast(args[0], llvm)

        return target(source), generate

    function: Callable[..., Any] = reinterpret
    return function


#: In compiled code: the bits of a float64 as an int64, and back.
bits_of: Callable[[float], int] = _reinterpret(types.float64, types.int64, ir.IntType(64))
double_of: Callable[[int], float] = _reinterpret(types.int64, types.float64, ir.DoubleType())
