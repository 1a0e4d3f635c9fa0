"""Chains that were made in advance, as a step method of PyMC, which records them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pytensor.graph import Variable

from pymc_coresets.compat.pymc_api import BlockedStep, StepMethodState
from pymc_coresets.reading.unconstrained import Unconstrained

#: Draws of a chain, (n_draws, n_dims), their log-densities, and the acceptance before each.
type Recorded = tuple[np.ndarray, np.ndarray, np.ndarray]


class Playback(BlockedStep):  # type: ignore[misc] # PyMC's are not typed
    """Plays back chains that were made in advance.

    So `pm.sample` computes deterministics, and makes the same DataTree as for any step method.  All
    chains must run in one process, one after the other.

    Parameters
    ----------
    vars : list of Variable
        All of the model.
    space : Unconstrained
        Of the model.
    chain : callable
        Returns the draws of a chain, their log-densities, and the acceptance before each, given the
        chain's number and its number of draws; also takes `rng`.  The same chain for the same
        number or generator.

    Examples
    --------
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> from pymc_coresets.sampling.steps.metropolis import IndependentProposals
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 3.0, 1.0)
    ...     space, around = Unconstrained(model), heavy_tailed(np.array([3.2]), np.eye(1))
    ...     own = IndependentProposals(space, around, lambda x: -((x[:, 0] - 3.0) ** 2) / 2)
    ...     step = Playback(model.value_vars, space, own.chain)
    ...     idata = pm.sample(
    ...         1_000, tune=0, chains=2, cores=1, step=step, random_seed=1, progressbar=False
    ...     )
    >>> bool(abs(idata["posterior"]["mu"].mean() - 3.0) < 0.1)
    True
    """

    name = "playback"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "tune": (bool, []),
        "accepted": (float, []),
        "lp": (float, []),
    }
    _state_class = StepMethodState

    def __init__(
        self,
        vars: list[Variable],  # noqa: A002 (PyMC's name)
        space: Unconstrained,
        chain: Callable[..., Recorded],
        *,
        model: pm.Model | None = None,  # noqa: ARG002 (which PyMC adds)
        blocked: bool = True,  # noqa: ARG002
    ) -> None:
        self.vars, self.rng, self.tune = vars, np.random.default_rng(), False
        self._space, self._made, self._number = space, chain, 0
        self._recorded: Mapping[str, str] = {}
        self._take((space.start[None], np.zeros(1), np.zeros(1)))

    @property
    def start(self) -> dict[str, np.ndarray]:
        """A point where chains may start, as the first step leaves it."""
        return self._space.initial_point

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Take the next chain."""
        super().setup_chain(rng, tune, draws)
        self._take(self._made(self._number, tune + draws, rng=self.rng))
        self._number, self._next = self._number + 1, 0

    def recorded(self, names: Sequence[str]) -> Callable[..., list[np.ndarray]] | None:
        """Return what gives a trace the values of variables at the last point of `step`.

        They are computed for all points of a chain at once, and no function is made for them.  None
        if there are others than the free variables and those of the unconstrained space.
        """
        model = self._space.model
        known = {v.name: v.type.dtype for v in (*model.value_vars, *model.free_RVs)}
        if not known.keys() >= set(names):
            return None
        self._recorded = {name: known[name] for name in names}
        self._take(self._chain)
        return lambda *_, **__: [own[self._next - 1] for own in self._values]

    def _take(self, chain: Recorded) -> None:
        self._chain, (points, *_) = chain, chain
        self._next = len(points)
        if not self._recorded:
            return
        space = self._space
        values = dict(space.constrain(points).values)
        for rv, value in space.model.rvs_to_values.items():
            if rv.name in space.columns:
                values[value.name] = points[:, space.columns[rv.name]]
        self._values = [values[n].astype(dtype, copy=False) for n, dtype in self._recorded.items()]

    def step(
        self,
        point: Mapping[str, np.ndarray],  # noqa: ARG002
    ) -> tuple[dict[str, np.ndarray], list[dict[str, object]]]:
        """Move to the next point of the chain."""
        (points, logp, accepted), i = self._chain, self._next
        self._next += 1
        stats = {"tune": self.tune, "accepted": accepted[i], "lp": logp[i]}
        return self._space.point(points[i]), [stats]
