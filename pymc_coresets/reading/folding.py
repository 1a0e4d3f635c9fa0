"""Values of the parts of a graph that need no inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable

__all__ = ["PLAIN_MODE", "evaluate"]

#: For graphs that are too cheap to compile: evaluated by NumPy, with PyTensor's stabilisations.
PLAIN_MODE = Mode(linker="py", optimizer="fast_compile").including("stabilize")


def evaluate(variables: Sequence[Variable]) -> list[np.ndarray]:
    """Evaluate variables without free inputs, by NumPy, with nothing to compile.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> evaluate([pt.constant([1.0, 2.0]) * 2])
    [array([2., 4.])]
    """
    computed = [v for v in dict.fromkeys(variables) if not isinstance(v, Constant)]
    values: dict[Variable, Any] = {v: v.data for v in variables if isinstance(v, Constant)}
    if computed:
        plain = Mode(linker="py", optimizer="None")
        results = pytensor.function([], computed, mode=plain, on_unused_input="ignore")()
        values |= dict(zip(computed, results, strict=True))
    return [np.asarray(values[v]) for v in variables]
