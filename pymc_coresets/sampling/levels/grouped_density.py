"""A posterior's density in parts: what groups of rows share, and what each of them has alone."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from scipy.sparse import csr_array

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.blocks.structure import Blocks
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import of_points
from pymc_coresets.rows.grouped import GroupedRows

type Array = NDArray[np.float64]

_ABSENT = -1


class GroupedPrior:
    """What a model has besides its rows, level by level, on the unconstrained scale.

    Priors, potentials, and observed variables that are not summarised.

    Parameters
    ----------
    blocks : Blocks
        Which coordinates and which terms belong to which level.

    Attributes
    ----------
    shared_columns : ndarray of int64, of shape (p,)
        Where the shared variables stand in the unconstrained vector.
    local_columns : ndarray of int64, of shape (G, q)
        Those of the levels, q for the largest; -1 where a level has fewer.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.blocks.structure import find_blocks
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     effect = pm.Normal("effect", pm.Normal("mu"), 1.0, shape=3)
    ...     y = pm.Normal("y", effect[[0, 1, 2, 2]], 1.0, observed=np.arange(4.0))
    >>> prior = GroupedPrior(find_blocks(find_observations(model)))
    >>> draws, shared, by_level = prior.at(np.array([[2.0, 0.0, 0.0, 3.0]]))
    >>> by_level - by_level.min()  # known up to a constant
    array([[0. , 0. , 1.5]])
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.shared_columns = blocks.shared_columns
        n_local = max(map(len, blocks.local_columns))
        self.local_columns = np.full((blocks.n_blocks, n_local), _ABSENT)
        for level, columns in enumerate(blocks.local_columns):
            self.local_columns[level, : len(columns)] = columns

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which of the variables (G, q) there are."""
        present: NDArray[np.bool_] = self.local_columns != _ABSENT
        return present

    def at(self, x: Array) -> tuple[Draws, Array, Array]:
        """Return draws of the variables, and the log-density, shared (B,) and by level (B, G)."""
        values = [
            np.asarray(x[:, own].reshape(-1, *v.type.shape), v.type.dtype)
            for own, v in self._inputs
        ]
        *draws, terms = self._terms(*values)
        sums = terms @ self._members
        variables = self._blocks.prior.parting.graphs.variables
        return Draws(dict(zip(variables, draws, strict=True))), sums[:, -1], sums[:, :-1]

    @cached_property
    def _inputs(self) -> list[tuple[slice, TensorVariable]]:
        """Where each value variable stands in the unconstrained vector."""
        inputs = list(self._blocks.prior.inputs.values())
        ends = np.cumsum([0, *(np.prod(v.type.shape, dtype=int) for v in inputs)])
        return [(slice(*ends[i : i + 2]), v) for i, v in enumerate(inputs)]

    @cached_property
    def _members(self) -> csr_array:
        """The level of each entry of all terms, 0 or 1: (n_entries, G + 1), shared ones last."""
        owners = [np.zeros(0, np.int64), *(term.levels for term in self._blocks.prior.terms)]
        levels = np.concatenate(owners) % (self._blocks.n_blocks + 1)  # of -1, the last
        entries = (np.ones(levels.size), (np.arange(levels.size), levels))
        return csr_array(entries, shape=(levels.size, self._blocks.n_blocks + 1))

    @cached_property
    def _terms(self) -> Callable[..., list[Array]]:
        """Free variables on their own scale, and all terms of the log-density in one vector."""
        prior = self._blocks.prior
        terms = pt.concatenate([np.zeros(0), *(term.graph.ravel() for term in prior.terms)])
        outputs = [*prior.parting.graphs.variables.values(), terms]
        return of_points(list(prior.inputs.values()), outputs)


@dataclass(frozen=True, eq=False)
class GroupedDensity:
    """The log-density of a model with weighted rows, as a function of shared and local variables.

    A level with fewer variables than others has standard normal ones instead, which nothing else
    depends on.

    Parameters
    ----------
    prior : GroupedPrior
    loglikelihood : LogLikelihood
    data : GroupedRows
    """

    prior: GroupedPrior
    loglikelihood: LogLikelihood
    data: GroupedRows

    def __call__(self, shared: Array, local: Array) -> tuple[Array, Array]:
        """Evaluate points, shared (B, p) and local (B, G, q): returns (B,) and (B, G), in nats."""
        draws, alone, by_level = self.prior.at(self.positions(shared, local))
        by_level += self.sums(draws)
        by_level -= self.of_absent(local)
        return alone, by_level

    def of_absent(self, local: Array) -> Array | float:
        """Return what standard normal stand-ins for absent variables subtract, (B, G), in nats."""
        absent = ~self.prior.present
        return np.square(np.where(absent, local, 0.0)).sum(axis=2) / 2 if absent.any() else 0.0

    def sums(self, draws: Draws) -> Array:
        """Return the weighted sums of the potentials of each level, (n_draws, G), in nats."""
        return self.loglikelihood.by_group(draws, self.data)

    def positions(self, shared: Array, local: Array) -> Array:
        """Join shared (B, p) and local (B, G, q) variables to unconstrained vectors (B, D)."""
        prior, present = self.prior, self.prior.present
        x = np.empty((len(shared), prior.shared_columns.size + int(present.sum())))
        x[:, prior.shared_columns] = shared
        x[:, prior.local_columns[present]] = local[:, present]
        return x
