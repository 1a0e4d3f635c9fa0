"""A posterior's density in parts: what groups of rows share, and what each of them has alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pymc_coresets.compat.pytensor_api import graph_inputs
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.fused_loops import density_mode
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.rewrite import POTENTIAL
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.grouped import GroupedRows

__all__ = ["GroupedDensity", "GroupedPrior"]

type Array = NDArray[np.float64]
type Whole = NDArray[np.int64]

_ABSENT = -1


class GroupedPrior:
    """The prior of a model, level by level, on the unconstrained scale.

    Parameters
    ----------
    space : Unconstrained
        All terms of its model but the potential of the rows belong to the prior.
    local : mapping of str to (int or None)
        The variables that belong to levels, and along which axis; None for several axes.
    local_columns : sequence of ndarray of int64
        Where the variables of each level stand in the unconstrained vector.

    Raises
    ------
    UnsupportedModelError
        If a term besides the priors of these variables depends on them.

    Attributes
    ----------
    shared_columns : ndarray of int64, of shape (p,)
        Where the other variables stand.
    local_columns : ndarray of int64, of shape (G, q)
        Those of the levels, q for the largest; -1 where a level has fewer.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     effect = pm.Normal("effect", mu, 1.0, shape=3)
    >>> columns = [np.array([1]), np.array([2]), np.array([3])]
    >>> prior = GroupedPrior(Unconstrained(model), {"effect": 0}, columns)
    >>> draws, shared, by_level = prior.at(np.zeros((2, 4)))
    >>> shared.round(3), by_level.shape
    (array([-0.919, -0.919]), (2, 3))
    """

    def __init__(
        self,
        space: Unconstrained,
        local: Mapping[str, int | None],
        local_columns: Sequence[Whole],
    ) -> None:
        self._space, self._local = space, local
        n_local = max(map(len, local_columns))
        self.local_columns = np.full((len(local_columns), n_local), _ABSENT)
        levels = np.full(space.n_dims, _ABSENT)
        for level, columns in enumerate(local_columns):
            self.local_columns[level, : len(columns)] = columns
            levels[columns] = level
        self.shared_columns = np.flatnonzero(levels == _ABSENT)
        self._levels = levels
        self._refuse_other_terms()

    def _refuse_other_terms(self) -> None:
        # They would be taken for terms of shared variables, and the draws for those of the model.
        model = self._space.model
        local = {model.rvs_to_values[model[name]]: name for name in self._local}
        for name, axis in self._local.items():
            if axis is None and self._parts[name].type.ndim != self._space.columns[name].ndim:
                raise UnsupportedModelError(
                    f"Several axes of {name!r} run over levels, and its prior is not elementwise: "
                    "write it with a prior for each entry, or use method='pursuit'."
                )
        for name, term in self._parts.items():
            of_levels = [local[v] for v in graph_inputs([term]) if v in local]
            if of_levels and name not in self._local:
                raise UnsupportedModelError(
                    f"{name!r} depends on {of_levels[0]!r}, which has a value for each level, and "
                    "is neither its prior nor made of the rows. Write it into the prior, or use "
                    "method='pursuit'."
                )

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which of the variables (G, q) there are."""
        present: NDArray[np.bool_] = self.local_columns != _ABSENT
        return present

    def at(self, x: Array) -> tuple[Draws, Array, Array]:
        """Return draws of the variables, and the log-density, shared (B,) and by level (B, G)."""
        found = [self._terms(*self._values(row)) for row in x]
        names = [rv.name for rv in self._space.model.free_RVs]
        *values, shared = (np.stack(column) for column in zip(*found, strict=True))
        draws = Draws(dict(zip(names, values[: len(names)], strict=True)))
        by_level = np.zeros((len(x), len(self.local_columns)))
        for term, member in zip(values[len(names) :], self._members, strict=True):
            by_level += term.reshape(len(x), -1) @ member
        return draws, shared, by_level

    def _values(self, x: Array) -> list[Array]:
        return [x[of].reshape(shape) for of, shape in self._slices]

    @cached_property
    def _slices(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Where the value of each variable stands in the vector, and its shape."""
        columns, rvs = self._space.columns, self._space.model.values_to_rvs
        own = [columns[rvs[value].name] for value in self._space.model.value_vars]
        return [(slice(c.min(), c.max() + 1), c.shape) for c in own]

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """The terms of the log-density, of variables that belong to levels and of others."""
        model = self._space.model
        parts = [v for v in [*model.basic_RVs, *model.potentials] if v.name != POTENTIAL]
        terms = dict(zip((v.name for v in parts), model.logp(vars=parts, sum=False), strict=True))
        for name, axis in self._local.items():
            if axis is not None:
                others = [i for i in range(terms[name].type.ndim) if i != axis]
                terms[name] = terms[name].sum(axis=others)
        return terms

    @cached_property
    def _members(self) -> list[csr_array]:
        """Which level each entry of a variable's term belongs to: (n_entries, G) of 0 and 1."""
        columns, found = self._space.columns, []
        for name, axis in self._local.items():
            own = columns[name]
            if axis is not None:
                own = np.moveaxis(own, axis, 0).reshape(own.shape[axis], -1)[:, 0]
            levels = self._levels[own.ravel()]
            entries = (np.ones(levels.size), (np.arange(levels.size), levels))
            found.append(csr_array(entries, shape=(levels.size, len(self.local_columns))))
        return found

    @cached_property
    def _terms(self) -> Any:  # noqa: ANN401
        """Free variables on their own scale, and the terms of the log-density."""
        model, parts = self._space.model, self._parts
        shared = sum(
            (t.sum() for name, t in parts.items() if name not in self._local), np.zeros(())
        )
        local = [parts[name] for name in self._local]
        outputs = [*model.replace_rvs_by_values(model.free_RVs), *local, shared]
        function = pm.compile(
            model.value_vars, outputs, mode=density_mode(), on_unused_input="ignore"
        )
        function.trust_input = True
        return function


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
        absent = ~self.prior.present
        if absent.any():
            by_level -= np.square(np.where(absent, local, 0.0)).sum(axis=2) / 2
        return alone, by_level

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
