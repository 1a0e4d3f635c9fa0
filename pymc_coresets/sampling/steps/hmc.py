"""Hamiltonian Monte Carlo inside builds: NUTS that is kept warm, and many chains at once."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph import graph_inputs

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat.pymc_api import PyMCSamplingError
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.plain_loops import density_mode
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.rewrite import coreset_model, row_values
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.sampling.normal import CholeskyFactor, Normal
from pymc_coresets.sampling.steps.nuts import PrecisionLeapfrog, PrecisionPotential, text_of

N_CHAINS = 2

_TARGET_ACCEPT = 0.8
_FAILED = "NUTS failed on the posterior of a coreset"
_METRIC_WEIGHT = 10  # draws that the initial variances of the metric count for

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Draws of one run, and what the next may start from.

    Parameters
    ----------
    positions : ndarray of shape (n_draws, n_dims)
        Draws on the unconstrained scale, chain by chain.
    step_size : float
        Mean of the chains' adapted step sizes.
    n_divergences : int
        Among these draws.
    """

    positions: np.ndarray
    step_size: float
    n_divergences: int


class WarmNuts:
    """PyMC's NUTS on one density whose rows, weights and quadratic are inputs: compiled once.

    From the second run on it starts where the last one ended, with its metric and step size, and
    tunes for half as long.  Two chains run one after the other.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    quadratic : Quadratic or None
        What is added to the weighted rows; runs may add others of the same interface.
    tune : int
        Tuning steps of each chain.

    Attributes
    ----------
    last : Run, or None
        What the next run begins from.
    counts : dict of str to int
        Divergences among the draws, and runs that failed.
    """

    def __init__(self, loglik: LogLikelihood, quadratic: Quadratic | None, *, tune: int) -> None:
        self._loglik, self._quadratic = loglik, quadratic
        self.tune = tune
        self.last: Run | None = None
        self.counts = {"n_divergences": 0, "n_failed_starts": 0}

    def draw(
        self,
        posterior: WeightedPosterior,
        n_draws: int,
        *,
        starts: Sequence[np.ndarray] = (),
        metric: CholeskyFactor | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw on the unconstrained scale, (n_draws, n_dims).

        Where the density is 0 at the end of the last run, it begins anew.

        Parameters
        ----------
        posterior : WeightedPosterior
            Of the same model, and a quadratic of the same interface.
        n_draws : int
        starts : sequence of ndarray of shape (n_dims,), optional
            Where chains begin that begin anew, by default at the model's initial point.
        metric : CholeskyFactor, optional
            Of about the posterior's precision: every run begins anew, and only the step size is
            left to tune.
        rng : numpy.random.Generator

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        shared, known = self._shared, list(starts)
        values = row_values(self._loglik.observations, posterior.rows, posterior.weights)
        if posterior.quadratic is not None:
            values = values | posterior.quadratic.values
        for name, value in values.items():
            if name in shared:
                shared[name].set_value(value)
        last = self.last if metric is None else None
        try:
            run = self._run(n_draws, last, known, metric, rng)
        except SamplingError as error:
            if last is None:
                raise
            _log.info("NUTS starts anew: %s", error)
            run = self._run(n_draws, None, known, metric, rng)
        self.last = run
        self.counts["n_divergences"] += run.n_divergences
        return run.positions

    def _run(
        self,
        n_draws: int,
        last: Run | None,
        known: list[np.ndarray],
        metric: CholeskyFactor | None,
        rng: np.random.Generator,
    ) -> Run:
        tune = self.tune if last is None else self.tune // 2
        if metric is not None:
            tune = self.tune // 4
        starts = known or [self._space.start]
        if last is not None:
            starts = list(rng.choice(last.positions, N_CHAINS, replace=False))
        per_chain = -(-n_draws // N_CHAINS)
        try:
            # A trajectory that diverges may overflow, which is counted as a divergence.
            with np.errstate(over="ignore", invalid="ignore"):
                chains = [
                    self._chain(x, per_chain, tune, last, metric, stream)  # mode after mode
                    for x, stream in zip(cycle(starts), rng.spawn(N_CHAINS), strict=False)
                ]
        except (ValueError, RuntimeError, FloatingPointError, PyMCSamplingError) as error:
            self.counts["n_failed_starts"] += 1
            if last is None and not known and isinstance(error, PyMCSamplingError):
                raise at_initial_point(self._space.model) from error
            raise SamplingError(f"{_FAILED}: {text_of(error)}.") from error
        return Run(
            positions=np.concatenate([own.positions for own in chains])[:n_draws],
            step_size=float(np.mean([own.step_size for own in chains])),
            n_divergences=sum(own.n_divergences for own in chains),
        )

    def _chain(
        self,
        x: np.ndarray,
        n_draws: int,
        tune: int,
        last: Run | None,
        metric: CholeskyFactor | None,
        rng: np.random.Generator,
    ) -> Run:
        step, stream = self._step, rng.spawn(1)[0]
        integrator = pymc_api.CpuLeapfrogIntegrator
        if metric is not None:
            step.potential, integrator = PrecisionPotential(metric, stream), PrecisionLeapfrog
        else:
            mean, variance = x, np.ones(len(x))
            if last is not None:
                mean, variance = last.positions.mean(axis=0), last.positions.var(axis=0)
            step.potential = pymc_api.QuadPotentialDiagAdapt(
                len(x), mean, variance, _METRIC_WEIGHT, rng=stream
            )
        step.integrator = integrator(step.potential, self._space.density)
        size = 0.25 / len(x) ** 0.25 if last is None else last.step_size
        step.step_adapt = pymc_api.DualAverageAdaptation(size, _TARGET_ACCEPT, 0.05, 0.75, 10)
        step.reset()
        step.setup_chain(rng, tune, n_draws)
        state: Any = self._space.raveled(x)
        positions, n_divergences = [], 0
        for i in range(tune + n_draws):
            if i == tune:
                step.stop_tuning()
            state, [stats] = step.astep(state)
            if i >= tune:
                positions.append(state.data)
                n_divergences += bool(stats["diverging"])
        return Run(
            positions=np.stack(positions),
            step_size=float(step.step_adapt.current(tune=False)),
            n_divergences=n_divergences,
        )

    @cached_property
    def _space(self) -> Unconstrained:
        observations, some, of_one = self._loglik.observations, self._loglik.some_row, np.ones(1)
        model = coreset_model(observations, some, of_one, quadratic=self._quadratic, lean=True)
        discrete = [v.name for v in model.discrete_value_vars]
        if discrete:
            raise SamplingError(
                f"{discrete!r} are discrete, and NUTS cannot sample them: sum them out, or use "
                "method='pursuit' with weighting='prior', or with draws of your own."
            )
        return Unconstrained(model, mode=density_mode())

    @cached_property
    def _step(self) -> Any:  # noqa: ANN401
        return pm.NUTS(model=self._space.model, logp_dlogp_func=self._space.density)

    @cached_property
    def _shared(self) -> dict[str, SharedVariable]:
        inputs = graph_inputs([self._space.model.logp()])
        return {str(v.name): v for v in inputs if isinstance(v, SharedVariable)}


def at_initial_point(model: pm.Model) -> SamplingError:
    """Return what to raise where NUTS fails at the initial point of an internal model.

    Parameters
    ----------
    model : pm.Model
        With the user's names for all but the rows.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     limit = pm.Potential("limit", pm.math.log(mu - 1.0))
    >>> at_initial_point(model).message.partition(". ")[0]
    "NUTS failed on the posterior of a coreset: at the model's initial point, 'limit' is nan"
    """
    values = {name: value for name, value in model.point_logps().items() if not np.isfinite(value)}
    wrong = ", ".join(f"{name!r} is {value}" for name, value in values.items())
    return SamplingError(
        f"{_FAILED}: at the model's initial point, {wrong or 'the gradient is not finite'}. Give "
        "the variables an initval=... where their log-density is finite. The debug() of your own "
        "model says more."
    )


type Array = np.ndarray

_FEWEST, _MOST = 4, 16  # gradients of a trajectory
_ACCEPTED = 0.8  # of the proposals, at least: else there are twice as many gradients
_FORGOTTEN, _TRAJECTORIES = 0.05, 12


@dataclass(frozen=True, eq=False)
class _Chains:
    """Where chains are, (n_chains, n_dims), with the log-density there and its pull on them."""

    points: Array
    values: Array
    pull: Array

    def moved(self, others: "_Chains", which: Array) -> "_Chains":
        """Move some of the chains to where the others are."""
        return _Chains(
            np.where(which[:, None], others.points, self.points),
            np.where(which, others.values, self.values),
            np.where(which[:, None], others.pull, self.pull),
        )

    def correlation(self, others: "_Chains") -> float:
        """Return the largest one with other chains, of a coordinate or of the log-density."""
        one, other = (np.column_stack([c.points, c.values]) for c in (self, others))
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        sizes = np.sqrt(np.square(one).sum(axis=0) * np.square(other).sum(axis=0))
        return float((np.abs((one * other).sum(axis=0)) / sizes).max())


@dataclass(frozen=True, eq=False)
class SplitHmc:
    """Moves draws of a distribution near a density until they are draws of that density.

    For thousands of dimensions, in which the sum of many small differences makes importance weights
    useless.  All draws move at once, each as a chain of its own.  A trajectory is a quarter turn of
    the normal distribution around them, which is followed exactly; only what the density differs
    from that by takes steps.  So four gradients lead to a draw that hardly depends on where the
    chain began.

    Parameters
    ----------
    slopes : callable
        Returns the log-densities (n_points,), in nats, and gradients at points (n_points, n_dims).
    around : Normal
        About of the mean and precision of the density.

    References
    ----------
    Shahbaba, Lan, Johnson, Neal (2014). Split Hamiltonian Monte Carlo. Statistics and Computing
    24. https://doi.org/10.1007/s11222-012-9373-1

    Examples
    --------
    Logarithms of gamma variables, which are skewed:

    >>> hmc = SplitHmc(
    ...     lambda x: ((5 * x - np.exp(x)).sum(axis=1), 5 - np.exp(x)),
    ...     Normal(np.full(3, 1.5), CholeskyFactor(np.eye(3) / 0.22)),
    ... )
    >>> rng = np.random.default_rng(1)
    >>> draws = hmc.moved(rng.normal(1.5, 0.47, size=(2_000, 3)), rng=rng)
    >>> np.exp(draws).mean().round(1), np.exp(draws).var().round(0)
    (np.float64(5.0), np.float64(5.0))
    """

    slopes: Callable[[Array], tuple[Array, Array]]
    around: Normal

    def moved(self, points: Array, *, rng: np.random.Generator) -> Array | None:
        """Return as many draws, (n_chains, n_dims); None where they do not forget the points.

        Trajectories follow one another until the product of the correlations between the ends of
        each is at most 0.05, where the largest one counts, of a coordinate or the log-density, and
        every chain has moved.
        """
        chains, n_steps, left = self._at(points), _FEWEST, 1.0
        moved = np.zeros(len(points), bool)
        for _ in range(_TRAJECTORIES):
            before = chains
            chains, accepted = self._after_a_quarter(before, n_steps, rng)
            left, moved = left * before.correlation(chains), moved | accepted
            share = float(accepted.mean())
            _log.info("%d gradients: %.2f accepted, %.2g remembered", n_steps, share, left)
            if left <= _FORGOTTEN and moved.all():
                return chains.points
            if share < _ACCEPTED:
                n_steps *= 2
            if n_steps > _MOST or not np.isfinite(left):
                break
        return None

    def _at(self, points: Array) -> _Chains:
        """Evaluate the density; where it is not finite, it is zero, and pulls nowhere."""
        with np.errstate(all="ignore"):
            values, gradients = self.slopes(points)
        finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        gradients = np.where(finite[:, None], gradients, 0.0)
        pull = self.around.factor.solve(gradients.T).T + points - self.around.location
        return _Chains(points, np.where(finite, values, -np.inf), pull)

    def _after_a_quarter(
        self, start: _Chains, n_steps: int, rng: np.random.Generator
    ) -> tuple[_Chains, Array]:
        """Propose the ends of trajectories; return the chains, and which of them moved."""
        factor, location = self.around.factor, self.around.location
        velocity = factor.draw_inverse(len(start.points), rng=rng)
        energy = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - start.values
        end, angle = start, np.pi / 2 / n_steps
        cos, sin = np.cos(angle), np.sin(angle)
        for _ in range(n_steps):
            velocity = velocity + angle / 2 * end.pull
            away = end.points - location
            end = self._at(location + cos * away + sin * velocity)
            velocity = cos * velocity - sin * away + angle / 2 * end.pull
        with np.errstate(invalid="ignore"):
            ended = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - end.values
            gained = energy - ended
        which = np.log(rng.uniform(size=len(gained))) < gained
        return start.moved(end, which), which
