"""The prior density of a model with blocks, level by level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph import Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.reading.blocks.factors import Factoring
from pymc_coresets.reading.blocks.parting import Parting
from pymc_coresets.reading.folding import numpy_function


class LevelTerm(NamedTuple):
    """An array whose entries are added up, each of which belongs to one level.

    Attributes
    ----------
    graph : TensorVariable
        The array, in nats, as a function of the inputs.
    levels : ndarray of int64
        The level of each entry, in C order; -1 where it depends on shared variables only.
    """

    graph: TensorVariable
    levels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LevelPrior:
    """What stays in a coreset's model besides the rows, as a sum over levels.

    Potentials and observed variables that are not summarised belong to it, and the Jacobians of
    transformations.

    Parameters
    ----------
    parting : Parting
    chosen : Factoring
        Which variables belong to levels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.blocks.structure import find_blocks
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     a = pm.Flat("a", shape=3)
    ...     b = pm.Potential("prior", 1.0 - 0.5 * (a**2).sum())
    ...     y = pm.Normal("y", a[[0, 1, 2, 2]], 1.0, observed=np.arange(4.0))
    >>> prior = find_blocks(find_observations(model)).prior
    >>> [term.levels for term in prior.terms]
    [array([0, 1, 2]), array([0, 1, 2])]
    """

    parting: Parting
    chosen: Factoring

    @property
    def inputs(self) -> Mapping[str, TensorVariable]:
        """What stands for each free variable, in the order of `Unconstrained`."""
        return self.parting.graphs.inputs

    @cached_property
    def terms(self) -> Sequence[LevelTerm]:
        """Arrays whose entries add up to the log-density, up to a constant."""
        found = list[LevelTerm]()
        for name, parts in self.parting.terms.items():
            for part, weight in zip(parts, self._weights(name), strict=True):
                graph, size = part * pt.constant(weight), math.prod(self.parting.known.shape(part))
                levels = self.chosen.blocks_of([p.in_terms[len(found)] for p in self.chosen.parts])
                found.append(LevelTerm(graph, np.broadcast_to(levels, size)))
        return found

    def _weights(self, name: str) -> list[NDArray[Any]]:
        """Return the coefficients, which are data, that the parts of a term are added up with."""
        parts = self.parting.terms[name]
        if not parts:
            return []
        shapes = [self.parting.known.shape(part) for part in parts]
        fresh = [pt.tensor(dtype=p.type.dtype, shape=s) for p, s in zip(parts, shapes, strict=True)]
        replaced: dict[Variable, Variable] = dict(zip(parts, fresh, strict=True))
        total = self.parting.graphs.terms[name].sum()
        [linear] = clone_replace([total], replaced, rebuild_strict=False)
        # Checks of values, such as that they sum to zero, have other inputs: their shape matters.
        given = [*fresh, *self.inputs.values()]
        weights = numpy_function(given, cast(list[Variable], pt.grad(linear, fresh)))
        return weights(*(np.zeros(v.type.shape, v.type.dtype) for v in given))
