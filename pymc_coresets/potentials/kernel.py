"""What is compiled of a model: a graph without data, sent to other processes as such."""

import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from threading import RLock
from typing import cast

import cloudpickle
import numpy as np
import pytensor
from pytensor.graph import FunctionGraph, Variable

from pymc_coresets.compat.pytensor_api import compiling, unwrapped
from pymc_coresets.potentials.fused_loops import Program, loop_mode
from pymc_coresets.rows.values import Rows

_N_KEPT = 16  # kernels of a process

_lock = RLock()
_known: dict[bytes, "Kernel"] = {}


class Kernel:
    """Functions of rows and of some values that many blocks of rows have in common.

    A pickle holds the graph, which is compiled once in each process; not the compiled function,
    which PyTensor would compile again anyway, and no data.

    Parameters
    ----------
    given : sequence of Variable
        Inputs that many blocks have in common.
    of_rows : sequence of Variable
        The inputs for a block, after those: see `evaluated`.
    outputs : sequence of Variable
    axes : mapping from int to int
        Which of the arrays of rows are inputs, and along which axis these have the rows there.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> slope, n, x = pt.scalar("slope"), pt.lscalar("n"), pt.vector("x")
    >>> kernel = pickle.loads(pickle.dumps(Kernel([slope], [n, x], [n * slope * x], {0: 0})))
    >>> rows = Rows(np.arange(2), np.ones(2), (np.array([1.0, 3.0]),))
    >>> evaluate = kernel.program.given(np.array(0.5))
    >>> evaluate(np.array(2), *kernel.arrays(rows))
    [array([1., 3.])]
    """

    def __init__(
        self,
        given: Sequence[Variable],
        of_rows: Sequence[Variable],
        outputs: Sequence[Variable],
        axes: Mapping[int, int],
    ) -> None:
        self._given, self._of_rows, self._outputs = list(given), list(of_rows), list(outputs)
        self.axes = dict(axes)
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The compiled functions."""
        with _lock:  # PyTensor compiles in one thread at a time
            fgraph = self._rewritten
            if self._program is None:  # it was sent from another process
                self._program = Program(fgraph, fgraph.toposort(), len(self._given))
            return self._program

    @property
    def graph(self) -> bytes:
        """The graph as it is sent: rewritten, which may turn out otherwise in another process."""
        with _lock:
            fgraph = self._rewritten
        parts = fgraph.inputs, fgraph.outputs, len(self._given), self.axes
        return zlib.compress(cloudpickle.dumps(parts))

    @cached_property
    def _rewritten(self) -> FunctionGraph:
        inputs, mode = [*self._given, *self._of_rows], loop_mode(n_given=len(self._given))
        with compiling():
            function = pytensor.function(inputs, self._outputs, mode=mode, on_unused_input="ignore")
        self._program = cast(Program, unwrapped(function))
        return cast(FunctionGraph, function.maker.fgraph)

    def __reduce__(self) -> tuple[Callable[[bytes], "Kernel"], tuple[bytes]]:
        return _kernel_of, (self.graph,)

    def arrays(self, rows: Rows) -> list[np.ndarray]:
        """Return the arrays of rows that are inputs, as these have them."""
        return [
            np.ascontiguousarray(np.moveaxis(rows.arrays[i], 0, axis))
            for i, axis in self.axes.items()
        ]


def _kernel_of(graph: bytes) -> Kernel:
    """Return the kernel of a graph: the same one whenever the same graph is sent."""
    key = blake2b(graph).digest()
    with _lock:
        kernel = _known.pop(key, None)
        if kernel is None:
            inputs, outputs, n_given, axes = pickle.loads(zlib.decompress(graph))
            kernel = Kernel(inputs[:n_given], inputs[n_given:], outputs, axes)
            kernel.__dict__["_rewritten"] = FunctionGraph(inputs, outputs, clone=False)
        _known[key] = kernel  # the last
        while len(_known) > _N_KEPT:
            del _known[next(iter(_known))]
    return kernel
