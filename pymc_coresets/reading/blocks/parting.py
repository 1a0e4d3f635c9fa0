"""Which coordinates of a free variable are independent given all others; the prior of levels."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph import Apply, Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.blocks.dependence import Dependence
from pymc_coresets.reading.blocks.factors import Factoring, Part
from pymc_coresets.reading.blocks.row_uses import RowUses
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.graphs import UnconstrainedGraphs
from pymc_coresets.reading.known import Known, reached
from pymc_coresets.reading.observations import Observations


class Linked(NamedTuple):
    """A free variable all of whose coordinates hang together.

    Attributes
    ----------
    name : str
    why : str
        What links them, as the end of a sentence about its levels.
    looked_up : bool
        Whether rows look up entries of it, or of what is computed from it.
    """

    name: str
    why: str
    looked_up: bool


@dataclass(frozen=True, eq=False)
class Parting:
    """What the rows and the prior depend on, in the coordinates of the free variables.

    Parameters
    ----------
    observations : Observations
    graphs : UnconstrainedGraphs
        Of the same model, without the terms that are summarised.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.graphs import unconstrained_graphs
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     walk = pm.GaussianRandomWalk("walk", init_dist=pm.Normal.dist(), shape=3)
    ...     y = pm.Normal("y", walk[[0, 2, 2]], 1.0, observed=np.arange(3.0))
    >>> parting = Parting(find_observations(model), unconstrained_graphs(model, ["y"]))
    >>> parting.part("walk").why[:31]
    "the density of 'walk' links the"
    """

    observations: Observations
    graphs: UnconstrainedGraphs

    @cached_property
    def known(self) -> Known:
        """Tells the free inputs of all graphs from data."""
        obs = self.observations
        rows = [obs.n_rows, *(r.placeholder for r in obs.rows)]
        return Known([*self.graphs.inputs.values(), *obs.parameters.values(), *rows])

    @cached_property
    def uses(self) -> RowUses:
        """What the rows take of the arrays that they share."""
        return RowUses(self.observations, self.known)

    @cached_property
    def terms(self) -> Mapping[str, Sequence[Variable]]:
        """The summands of each term of the prior."""
        return {name: list(summands(g, self.known)) for name, g in self.graphs.terms.items()}

    @cached_property
    def _used(self) -> Sequence[NDArray[np.int64] | None]:
        """Which entries of each shared array the rows of each pattern use; None for all."""
        uses = self.uses
        return [uses.entries(use, uses.patterns) for use in uses.uses]

    def part(self, name: str) -> Part | Linked:
        """Find the components of one free variable, which has several coordinates."""
        found = Dependence(self.graphs.inputs[name], self.known)
        why = None
        for reason in self._links(found, name):
            if why is None and not found.components().any():
                why = reason
        in_rows = self._in_rows(found)
        components = found.components()
        if not components.any():
            why = why or "each row depends on several of them"
            return Linked(name, why, self._is_looked_up(found))

        def numbered(labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
            given = np.zeros(0, dtype=np.int64) if labels is None else labels.ravel()
            return np.where(given >= 0, components[given], -1)

        return Part(
            name,
            components,
            numbered(in_rows),
            tuple(numbered(found.labels.get(v)) for term in self.terms.values() for v in term),
            tuple(numbered(found.labels.get(use.table)) for use in self.uses.uses),
        )

    def _links(self, found: Dependence, name: str) -> Iterator[str]:
        """Follow what stays in a coreset's model, and say after each step what it was."""
        variables, parameters = self.graphs.variables, self.observations.parameters
        found.follow(variables.values())
        yield f"{name!r} is constrained as a whole, as by a sum to zero or an order"
        for other, variable in variables.items():
            if variable in found.labels:
                found.labels[parameters[other]] = found.labels[variable]
        for term, parts in self.terms.items():
            found.follow(parts)
            yield (
                f"the density of {term!r} links them, as a Gaussian process, a random walk, a "
                "spatial prior or a covariance between levels does"
            )

    def _in_rows(self, found: Dependence) -> NDArray[np.int64]:
        """Link what the rows use together, and return a label for each pattern of rows."""
        labels = np.full(self.uses.patterns.n_rows, -1)
        for use, entries in zip(self.uses.uses, self._used, strict=True):
            found.follow([use.table])
            table = found.labels.get(use.table)
            if table is not None:
                used = table.reshape(1, -1) if entries is None else table.ravel()[entries]
                own = np.broadcast_to(found.linked(used, (1,)), len(labels))
                labels = found.linked(np.stack([labels, own]), (0,))
        return labels

    def _is_looked_up(self, found: Dependence) -> bool:
        return any(
            use.table in found.labels and entries is not None
            for use, entries in zip(self.uses.uses, self._used, strict=True)
        )


def summands(graph: Variable, known: Known) -> Iterator[Variable]:
    """Find the parts of a graph whose entries are added up, with factors that are data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> a, b = pt.vectors("ab")
    >>> [v.name for v in summands((a - 2 * b + 1).sum(), Known([a, b]))]
    ['b', 'a']
    """

    def below(part: Variable) -> Sequence[Variable]:
        varies = part.owner is not None and known.depends(part)
        return (_added(part.owner, known) or []) if varies else []

    return (v for v in reached([graph], below) if known.depends(v) and not below(v))


def _added(node: Apply, known: Known) -> Sequence[Variable] | None:
    """Return the inputs that a node adds up, if that is all that it does."""
    op = node.op
    if isinstance(op, ops.CheckAndRaise):
        return node.inputs[:1]
    if isinstance(op, ops.DimShuffle | ops.Join | ops.MakeVector):
        return list(node.inputs)
    if isinstance(op, ops.CAReduce):
        return node.inputs if isinstance(op.scalar_op, ps.Add) else None
    if not isinstance(op, ops.Elemwise):
        return None
    match op.scalar_op:
        case ps.Add() | ps.Sub() | ps.Neg() | ps.Identity():
            return list(node.inputs)
        case ps.Mul():
            varying = [v for v in node.inputs if known.depends(v)]
            return varying if len(varying) == 1 else None
        case ps.TrueDiv():
            return None if known.depends(node.inputs[1]) else node.inputs[:1]
    return None


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
