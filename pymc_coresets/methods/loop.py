"""The loop shared by all methods, and measurement of a coreset at draws of its own posterior."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from pymc_coresets.deadline import until
from pymc_coresets.diagnostics.importance import MIN_DRAWS, SmoothedRatios, pareto_smooth
from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.exceptions import OutOfTimeError, SamplingError
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.passes import PassSums, PointwiseLogLikelihood
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix, Vector, tangent_vectors
from pymc_coresets.solving.solution import History, Selection, Status

_log = logging.getLogger(__name__)


#: Share of the tolerance from which a divergence is so near that more draws are to decide.
NEAR = 0.2


class CoresetPosterior[D](PointwiseLogLikelihood[D], Protocol):
    """Draws from pi_w for any rows and weights, and the log-likelihoods of any rows at them."""

    def draw(self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator) -> D:
        """Draw from the posterior of the rows with the given weights.

        Rows of weight 0 are allowed; without rows, the posterior is the prior.

        Raises
        ------
        SamplingError
            If the posterior cannot be sampled.
        """

    def rough_draw(
        self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator
    ) -> D:
        """Draw as fast as possible from roughly the region of that posterior."""


def rounds[S](
    state: S,
    propose: Callable[[S], S],
    measure: Callable[[S], Status | None],
    *,
    limit: int,
    deadline: float = math.inf,
) -> tuple[S, Status]:
    """Iterate from state to state until a stopping criterion holds: the loop of all methods.

    Parameters
    ----------
    state : object
        Initial state.
    propose : callable
        Maps a state to the next one, without modifying it.
    measure : callable
        Called with every state; returns a status to stop the run, or None.
    limit : int
        Largest number of steps.
    deadline : float
        Value of `time.perf_counter` after which no step begins, and none goes on.

    Returns
    -------
    state : object
        The last complete one: a step that is interrupted, or whose sampler fails, is discarded.
    status : Status

    Examples
    --------
    >>> rounds(1, lambda n: 2 * n, lambda n: Status.OPTIMAL if n > 5 else None, limit=9)
    (8, <Status.OPTIMAL: 'No other row brings the coreset closer to the full data.'>)
    """
    try:
        for _ in range(limit):
            if (status := measure(state)) is not None:
                return state, status
            if time.perf_counter() > deadline:
                return state, Status.OUT_OF_TIME
            with until(deadline):
                state = propose(state)
        return state, measure(state) or Status.ITERATION_LIMIT
    except KeyboardInterrupt:
        return state, Status.INTERRUPTED
    except OutOfTimeError:
        return state, Status.OUT_OF_TIME
    except SamplingError as error:
        _log.info("The last step was discarded: %s", error)
        return state, Status.SAMPLING_FAILED


def is_close_call(measured: "Measurement", tolerance: float) -> bool:
    """Whether twice as many draws may change what is said of a coreset.

    Its divergence, as it is or with two standard errors, is within a fifth of the tolerance.  The
    draws by which the best of several coresets was chosen say too little of it, besides.

    Parameters
    ----------
    measured : Measurement
    tolerance : float
        In nats.

    Examples
    --------
    >>> nowhere = Rows(np.arange(0), np.ones(0))
    >>> z = np.random.default_rng(1).normal(size=400)
    >>> def of_variance(variance):
    ...     total = np.sqrt(variance) * z / z.std()
    ...     sums = PassSums(total=total, norm_total=0.0, candidates=nowhere)
    ...     return Measurement.of(Selection(rows=nowhere, weights=np.ones(0)), np.zeros(400), sums)
    >>> [is_close_call(of_variance(v), 0.01) for v in (0.004, 0.008, 0.011, 0.02)]
    [False, True, True, False]
    """
    if not measured.is_judged:
        return False
    judged = measured.certificate
    at_least, at_most = judged.symmetrised_kl, judged.divergence
    return at_least <= (1 + NEAR) * tolerance and at_most >= (1 - NEAR) * tolerance


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement(Selection):
    """Weighted rows, draws of their posterior, and log-likelihoods at these draws.

    Parameters
    ----------
    rows, weights, quadratic
        See `Selection`.
    draws : object
        Draws of pi_w, of the posterior's own type.
    own : ndarray of shape (n_draws,)
        The coreset's log-likelihood at the draws: the weighted sum of log-likelihoods, in nats.
    sums : PassSums
        The sum over all rows, and candidates for the next step, if any.
    centred : ndarray of shape (n_rows, n_draws)
        Log-likelihoods of the rows minus their means over the draws, if they were kept.
    about : object, optional
        What else a method knows of the posterior and its draws.

    Notes
    -----
    `vectors` are the tangent vectors of the rows at pi_w: their inner products are covariances
    under it, and the gradient of KL(pi_w || pi) with respect to the weights of the rows is
    ``-vectors @ residual``.

    References
    ----------
    .. [1] Campbell, T. and Beronov, B. (2019). Sparse Variational Inference: Bayesian Coresets
       from Scratch, Equations 10 and 22. https://arxiv.org/abs/1906.03329

    Examples
    --------
    >>> nowhere = Rows(np.arange(0), np.ones(0))
    >>> one = Measurement(
    ...     rows=nowhere, weights=np.ones(0), draws=None, own=np.array([0.0, 1.0]),
    ...     sums=PassSums(total=np.array([3.0, 8.0]), norm_total=0.0, candidates=nowhere),
    ... )
    >>> one.log_ratios, one.objective
    (array([-2.,  2.]), 4.0)
    """

    draws: Any
    own: Vector
    sums: PassSums
    centred: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    about: Any = None

    @classmethod
    def failed(cls, chosen: Selection) -> Self:
        """Return that of rows whose posterior cannot be drawn from: an infinite divergence."""
        nothing = chosen.rows.take(slice(0, 0))
        sums = PassSums(total=np.zeros(1), norm_total=0.0, candidates=nothing)
        return cls.of(chosen, np.full(1, -np.inf), sums)

    @classmethod
    def of(
        cls,
        chosen: Selection,
        own: Vector,
        sums: PassSums,
        *,
        draws: object = None,
        **known: Any,  # noqa: ANN401
    ) -> Self:
        """Return the measurement of weighted rows; with `centred` and `about`, if known."""
        kept = {f.name: getattr(chosen, f.name) for f in fields(Selection)}
        return cls(own=own, sums=sums, draws=draws, **known, **kept)

    @cached_property
    def log_ratios(self) -> Vector:
        """``log r = sum_n (u_n - w_n) f_n`` minus its mean, (n_draws,), in nats."""
        with np.errstate(invalid="ignore"):  # where the density is zero
            ratios = self.sums.total - self.own
            centred: Vector = ratios - ratios.mean()
        return centred

    @cached_property
    def objective(self) -> float:
        """Variance of log r in nats, an estimate of the symmetrised KL divergence."""
        is_finite = np.isfinite(self.log_ratios).all()
        return float(np.var(self.log_ratios)) if is_finite else math.inf

    @property
    def is_judged(self) -> bool:
        """Whether there are diagnostics: from 30 draws or more, with finite ratios."""
        return self.log_ratios.size >= MIN_DRAWS and math.isfinite(self.objective)

    @cached_property
    def smoothed(self) -> SmoothedRatios:
        """The Pareto-smoothed ratios, if `is_judged`."""
        return pareto_smooth(self.log_ratios[None])

    @cached_property
    def certificate(self) -> Certificate:
        """Divergence between this posterior and the full one, by these ratios, if `is_judged`.

        The integrals over the path between the two posteriors in Lemma 3 of [1]_ are
        ``log E[r] - E[log r]`` and ``E[r log r]/E[r] - log E[r]``: with A(t) = log E[r^t], the
        variance of log r at t is A''(t), and both follow by integration by parts.  Estimates from
        the same draws also agree, so the closed forms are used.
        """
        return Certificate.of(self.smoothed)

    @cached_property
    def vectors(self) -> Vector:
        """Tangent vectors of the rows, (n_rows, n_draws)."""
        return tangent_vectors(self.centred)

    @cached_property
    def residual(self) -> Vector:
        """Tangent vector of log r, the error of the coreset's log-density, (n_draws,)."""
        return tangent_vectors(self.log_ratios)

    @property
    def gradient(self) -> Vector:
        """Estimated gradient of KL(pi_w || pi) with respect to the rows' weights, (n_rows,)."""
        gradient: Vector = -(self.vectors @ self.residual)
        return gradient

    def enter(self, history: History, objective: float = math.nan) -> None:
        """Add to a history, with the objective at the draws that chose the weights."""
        judged: dict[str, Any] = {}
        if self.is_judged:
            judged = {"pareto_khat": self.certificate.pareto_khat, "kl": self.certificate.kl}
            judged["reverse_kl"] = self.smoothed.reverse_kl
        history.add(size=self.size, objective=objective, heldout_objective=self.objective, **judged)

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of the measurement for a `Solution`; none if a ratio is not finite."""
        if not math.isfinite(self.objective):
            return {"objective": math.nan, "draws": self.draws}
        return {
            "objective": self.objective,
            "draws": self.draws,
            "log_ratios": self.log_ratios,
            "certificate": self.certificate if self.is_judged else None,
        }


@dataclass(frozen=True, eq=False)
class Measure[D]:
    """Draws from the posteriors of weighted rows, and evaluates all rows at the draws.

    Parameters
    ----------
    posterior : CoresetPosterior
        Log-likelihoods of all rows, and draws.
    rng : numpy.random.Generator
        The only source of randomness.
    history : History
        Counts the cost.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.rowlogp.evaluation import LogLikelihood
    >>> from pymc_coresets.sampling.sampler import CoresetSampler
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[1.0, 2.0])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> everything = Selection(rows=loglik.all_rows, weights=np.ones(2))
    >>> Measure(CoresetSampler(loglik), np.random.default_rng(1)).at(everything, 100).objective
    0.0
    """

    posterior: CoresetPosterior[D]
    rng: np.random.Generator
    history: History = field(default_factory=History)

    def at(
        self,
        chosen: Selection,
        n_draws: int,
        *,
        rng: np.random.Generator | None = None,
        draw: Callable[..., D] | None = None,
        sums: Callable[[D, Matrix], PassSums] | None = None,
    ) -> Measurement:
        """Draw from the posterior of weighted rows: one pass over the data.

        Parameters
        ----------
        chosen : Selection
            Rows whose log-likelihoods are wanted, including all of positive weight.
        n_draws : int
            Number of draws.
        rng : numpy.random.Generator, optional
            For these draws only.
        draw : callable, optional
            Replaces ``posterior.draw``, with the same arguments.
        sums : callable, optional
            Replaces the pass over all rows; takes the draws and the rows' log-likelihoods there.
        """
        support, draw = chosen.support, draw or self.posterior.draw
        with self.history.drawing():
            draws = draw(support.rows, support.weights, n_draws, rng=rng or self.rng)
        loglik = self.loglik(draws, chosen.rows, n_draws)
        seen = self.sums(draws, n_draws) if sums is None else sums(draws, loglik)
        with np.errstate(invalid="ignore"):  # infinite log-likelihoods have no mean
            centred = loglik - loglik.mean(axis=1, keepdims=True)
            own = chosen.weights @ centred
        return Measurement.of(chosen, own, seen, draws=draws, centred=centred)

    def sums(self, draws: D, n_draws: int, **candidates: Any) -> PassSums:  # noqa: ANN401
        """Evaluate all rows at some draws, and keep some: see `PointwiseLogLikelihood.sums`."""
        with self.history.evaluating(self.n_rows, n_draws, of=self.n_rows):
            return self.posterior.sums(draws, **candidates)

    def estimate(self, draws: D, loglik: Matrix, *, size: int) -> PassSums:
        """Estimate the sum over all rows, without bias, instead of a pass: see `sums` of `at`.

        From `size` rows drawn with replacement in proportion to their case weights.
        """
        subsample = self.posterior.subsample(size, key=random_key(self.rng))
        total = subsample.weights @ self.loglik(draws, subsample.rows, loglik.shape[1])
        return PassSums(total=total, norm_total=0.0, candidates=subsample.rows)

    def loglik(self, draws: D, rows: Rows, n_draws: int) -> Matrix:
        """Return log-likelihoods of some rows, (n_rows, n_draws), in nats; they may be infinite."""
        with self.history.evaluating(len(rows), n_draws, of=self.n_rows):
            return self.posterior.loglik(draws, rows)

    def of_candidates(self, draws: D, sums: PassSums) -> Matrix:
        """Return the log-likelihoods of a pass's candidates at its draws, (n_rows, n_draws)."""
        return sums.loglik_or(lambda rows: self.loglik(draws, rows, len(sums.total)))

    @property
    def n_rows(self) -> int:
        """Number of all rows N."""
        return self.posterior.n_rows


def decide(
    known: Measurement, view: Measurement, change: Callable[[], Vector], taken: float
) -> tuple[Measurement, float]:
    """Accept a step, unless it worsened the objective because it was too long.

    Parameters
    ----------
    known : Measurement
        Start of the step.
    view : Measurement
        End of the step; its divergence is infinite if the sampler failed there.
    change : callable
        Returns the change of the log-density at the draws of the start, (n_draws,), in nats.
    taken : float
        Length of the step, as a share of the way to the sum over all rows.

    Returns
    -------
    view : Measurement
        Start of the next step: the end of this one, or its start if it was too long.
    share : float
        Length of the next step, as a share of the way to the sum over all rows: 1, or less than
        that of a step that was too long.

    Examples
    --------
    >>> nowhere = Rows(np.arange(0), np.ones(0))
    >>> here = Measurement(
    ...     rows=nowhere, weights=np.ones(0), draws=None, own=np.zeros(100),
    ...     sums=PassSums(total=np.arange(100.0), norm_total=0.0, candidates=nowhere),
    ... )
    >>> there = Measurement.failed(here)
    >>> change = 4 * np.random.default_rng(1).normal(size=100)
    >>> view, share = decide(here, there, lambda: change, 0.5)
    >>> view is here, share
    (True, 0.125)
    """
    if view.objective < known.objective:
        return view, 1.0
    step = change()
    if math.isfinite(view.objective) and pareto_smooth(step[None]).sound:
        return view, 1.0
    return known, taken * sound_part(step)


def sound_part(step: Vector) -> float:
    """Return the largest part of a step with usable importance weights at the initial draws.

    Parameters
    ----------
    step : ndarray of shape (n_draws,)
        Change of the log-density at the draws, in nats.

    Returns
    -------
    float
        1/2, 1/4, ..., 2**-10 at least.

    Examples
    --------
    >>> sound_part(4.0 * np.random.default_rng(1).normal(size=1_000))
    0.25
    """
    part = 0.5
    while part > 2.0**-10 and not pareto_smooth(part * step[None]).sound:
        part /= 2
    return part
