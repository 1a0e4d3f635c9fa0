"""NUTS for the posteriors of many coresets of one model, which begins where it ended before."""

import logging
from functools import cached_property
from typing import Literal

import numpy as np
import pymc as pm
from pytensor.graph import graph_inputs

from pymc_coresets.compat.pymc_api import PyMCSamplingError
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.plain_loops import density_mode
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.rewrite import coreset_model, row_values
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.steps.metric import Factor
from pymc_coresets.sampling.steps.nuts import (
    N_CHAINS,
    NutpieNuts,
    PyMCNuts,
    Run,
    nuts_failure,
)

type InnerNuts = Literal["pymc", "nutpie"]

_log = logging.getLogger(__name__)


class WarmNuts:
    """NUTS on one density whose rows, weights and quadratic are inputs: it is compiled once.

    From the second run on it starts where the last one ended, with its step size, and tunes for
    half as long.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    quadratic : Quadratic or None
        What is added to the weighted rows; runs may add others of the same interface.
    tune : int
        Tuning steps of each of two chains.
    nuts_sampler : {"pymc", "nutpie"}
        Whose NUTS, on the same compiled density: nutpie's loop does not run in Python.

    Attributes
    ----------
    starts : list of ndarray of shape (n_dims,)
        Modes of the posterior of all rows, where they are known: the first run begins there.
    last : Run, or None
        What the next run begins from.
    n_divergences, n_failed_starts : int
        Divergences among the draws, and runs that failed.
    """

    def __init__(
        self,
        loglik: LogLikelihood,
        quadratic: Quadratic | None,
        *,
        tune: int,
        nuts_sampler: InnerNuts,
    ) -> None:
        self._loglik, self._quadratic = loglik, quadratic
        self.tune, self.nuts_sampler = tune, nuts_sampler
        self.starts: list[np.ndarray] = []
        self.last: Run | None = None
        self._metric: Factor | None = None
        self.n_divergences = self.n_failed_starts = 0

    def begin_at(self, points: np.ndarray, metric: Factor | None) -> None:
        """Begin at points (n_points, n_dims), with the precision there, if that is known."""
        self.starts, self._metric, self.last = list(points[:N_CHAINS]), metric, None

    def draw(
        self,
        rows: Rows,
        weights: np.ndarray,
        quadratic: Quadratic | None,
        n_draws: int,
        *,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw on the unconstrained scale, (n_draws, n_dims).

        Where the density is 0 at the end of the last run, it begins anew.

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        nuts = self._nuts
        for name, value in self._values(rows, weights, quadratic).items():
            if name in self._shared:
                self._shared[name].set_value(value)
        try:
            run = self._run(nuts, n_draws, self.last, rng)
        except SamplingError as error:
            if self.last is None:
                raise
            _log.info("NUTS starts anew: %s", error)
            run = self._run(nuts, n_draws, None, rng)
        self.last = run
        self.n_divergences += run.n_divergences
        return run.positions

    def _run(
        self, nuts: NutpieNuts | PyMCNuts, n_draws: int, last: Run | None, rng: np.random.Generator
    ) -> Run:
        tune = self.tune if last is None else self.tune // 2
        if self._metric is not None:  # and only the step size is left to tune
            tune = self.tune // 4
        nuts.metric = self._metric
        known = self.starts
        # At one known mode after another.
        starts = np.stack([known[i % len(known)] for i in range(N_CHAINS)]) if known else None
        at_initial_point = last is None and starts is None
        try:
            return nuts.run(n_draws, tune=tune, last=last, rng=rng, starts=starts)
        except (ValueError, RuntimeError, FloatingPointError, PyMCSamplingError) as error:
            self.n_failed_starts += 1
            if isinstance(error, SamplingError):
                raise
            raise nuts_failure(error, self._model if at_initial_point else None) from error

    def _values(
        self, rows: Rows, weights: np.ndarray, quadratic: Quadratic | None
    ) -> dict[str, np.ndarray]:
        values = row_values(self._loglik.observations, rows, weights)
        return values if quadratic is None else values | quadratic.values

    @cached_property
    def _model(self) -> pm.Model:
        observations, some, of_one = self._loglik.observations, self._loglik.some_row, np.ones(1)
        return coreset_model(observations, some, of_one, quadratic=self._quadratic, lean=True)

    @cached_property
    def _nuts(self) -> NutpieNuts | PyMCNuts:
        discrete = [v.name for v in self._model.discrete_value_vars]
        if discrete:
            raise SamplingError(
                f"{discrete!r} are discrete, and NUTS cannot sample them: sum them out, or use "
                "method='pursuit' with weighting='prior', or with draws of your own."
            )
        space = Unconstrained(self._model, mode=density_mode())
        return NutpieNuts(space) if self.nuts_sampler == "nutpie" else PyMCNuts(space)

    @cached_property
    def _shared(self) -> dict[str, SharedVariable]:
        inputs = graph_inputs([self._model.logp()])
        return {str(v.name): v for v in inputs if isinstance(v, SharedVariable)}
