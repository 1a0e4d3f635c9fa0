"""Replacements of all rows in a posterior that is cheap to sample, with one interface."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws, enough_for, evaluate_enough
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.judging import TOLERANCE, Certificate
from pymc_coresets.diagnostics.known_posterior import Modes
from pymc_coresets.diagnostics.posterior_draws import UNRELIABLE, Chains, draws_tree
from pymc_coresets.diagnostics.verdicts import Level, Reason, Verdict, doubts_of_levels
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood

_CHEAP = 10**9  # log-likelihoods, which take seconds


class Replacement(Protocol):
    """What replaces the log-likelihood of all rows in a posterior, and the density that this has.

    Points (n_points, D) are on the unconstrained scale; log-densities are in nats, up to a
    constant.
    """

    @property
    def n_products(self) -> float:
        """About how many numbers are multiplied for the density at a point."""

    def loglik(self, draws: DrawsLike, /) -> Floats:
        """Return the log-likelihood at draws, (n_draws,); it need not be finite."""

    def log_density(self, points: Floats, /) -> Floats:
        """Return the log-densities at points, (n_points,); minus infinity if not finite."""

    def slopes(self, points: Floats, /) -> Sequence[Floats]:
        """Return the log-densities at points, and their gradients, (n_points, D)."""


def no_slopes(_: Floats) -> Sequence[Floats]:
    """Raise: the draws of a density are independent, and need no comparison with it."""
    raise NotImplementedError


@dataclass(frozen=True, eq=False)
class KnownLikelihood:
    """A function of draws that replaces the log-likelihood of all rows: see `Replacement`.

    Parameters
    ----------
    of : LogLikelihood
        Of the model, which has the prior.
    loglik : callable
    slopes : callable, optional
    """

    of: LogLikelihood
    loglik: Callable[[DrawsLike], Floats]
    slopes: Callable[[Floats], Sequence[Floats]] = no_slopes
    n_products: float = 0.0

    def log_density(self, points: Floats) -> Floats:
        """See `Replacement`."""
        return self.of.rest.with_rows(points, self.loglik)


@dataclass(frozen=True, kw_only=True, eq=False)
class ApproximatePosterior:
    """Replacement of all rows in an approximate posterior, with access to all rows.

    Parameters
    ----------
    parts : sequence of LogLikelihood
        The log-likelihoods of all rows, in one or several parts.
    replacement : Replacement
        A quadratic and weighted rows, polynomials, or a known distribution.
    impossible : str
        Message for draws that are impossible under the full data, with a remedy.
    remedy : str
        Remedy for unreliable importance weights.
    of_earlier : callable
        Log-likelihood of rows that are no longer available, at draws: (n_draws,).
    has_all_rows : callable
        Whether the approximate posterior is the full one.
    require_all_rows : callable
        Raises if some rows are not available.
    groups : mapping of str to Dataset
        Groups that `sample` adds to its draws.
    modes : Modes, optional
        Those of the full posterior, if they were looked for.
    tolerance : float
        Symmetrised KL divergence in nats that is small enough.
    certificate : Certificate, optional
        Diagnostics of the construction.
    caveat : str
        Error that a comparison with the available rows cannot detect, with a remedy.
    known_start : callable
        Adds to the options of `pm.sample` what is known of the posterior beforehand.
    complete : callable
        Adds draws of variables that were integrated out to draws that lack them; of the levels of
        a `model` alone, if it is given.
    progressbar : bool
        Whether to show how far a call is, if it is not told.
    lost : mapping of str to frozenset of str
        Labels of levels along a dim that are represented without their rows.
    """

    parts: Sequence[LogLikelihood]
    replacement: Replacement
    impossible: str
    remedy: str
    of_earlier: Callable[[Draws], Floats] = lambda draws: np.zeros(draws.n_draws)
    has_all_rows: Callable[[], bool] = lambda: False
    require_all_rows: Callable[[], None] = lambda: None
    groups: Mapping[str, xr.Dataset] = field(default_factory=dict)
    modes: Modes | None = None
    tolerance: float = TOLERANCE
    caveat: str = ""
    certificate: Certificate | None = None
    known_start: Callable[..., dict[str, Any]] = lambda options, **_: options
    complete: Callable[..., xr.DataTree] = lambda idata, _, **__: idata
    progressbar: bool = True
    lost: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def free(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the free variables."""
        return self.parts[0].observations.shapes

    @property
    def n_in_memory(self) -> int:
        """Number of rows, if the user's model holds all of them; 0 elsewhere."""
        if len(self.parts) > 1 or self.parts[0].source is not self.parts[0].in_memory:
            return 0
        return self.parts[0].observations.n_obs

    def log_densities(self, idata: xr.DataTree, *, exactly: bool = False) -> tuple[Floats, Floats]:
        """Log-likelihood of all rows, and what stands for it, at draws: (n_draws,) each.

        Zeros where the approximate posterior is the full one, unless they are wanted exactly.
        """
        draws = Draws.of(idata, self.free)  # which names what the draws lack
        if self.has_all_rows() and not exactly:
            return np.zeros(draws.n_draws), np.zeros(draws.n_draws)
        return self.log_densities_at(draws)

    def log_densities_at(self, draws: Draws) -> tuple[Floats, Floats]:
        """Return both at any points of the support, (n_draws,); they need not be finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            full: Floats = np.sum([part.sums(draws).total for part in self.parts], axis=0)
            own = self.replacement.loglik(draws)
            return full + self.of_earlier(draws), own

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""
        return self.parts[0].observations.space

    def doubts(self, idata: xr.DataTree) -> Iterator[Verdict]:
        """Return the errors of draws that importance weights cannot correct, if any are known."""
        if self.certificate is not None:
            known = replace(self.certificate, caveat=self.caveat)
            if self.modes is not None:
                known = replace(known, modes=self.modes.seen_in(idata))
            yield from known.doubts()
        elif self.caveat:
            yield Verdict.starting(Level.DOUBTFUL, Reason.CAVEAT, self.caveat)
        yield from doubts_of_levels(idata["posterior"].attrs.get(UNRELIABLE, ""))

    def evaluated(
        self, chains: Chains, ess: float = math.inf, *, exactly: bool = False
    ) -> EvaluatedDraws:
        """Evaluate all rows at as many draws as are worth `ess` independent ones, or are cheap."""
        n_terms = sum(part.n_terms for part in self.parts)
        is_known = self.has_all_rows() and not exactly
        return evaluate_enough(
            chains,
            partial(self.log_densities, exactly=exactly),
            enough_for(chains, ess),
            first=math.inf if is_known else max(ess, _CHEAP / n_terms),
            impossible=self.impossible,
        )


class HasApproximatePosterior(Protocol):
    """A result that can be sampled: a coreset, or a summary."""

    @property
    def model(self) -> pm.Model:
        """A plain PyMC model of the approximate posterior."""

    @property
    def approximation(self) -> ApproximatePosterior:
        """Replacement of all rows in it."""


def log_ratios(result: HasApproximatePosterior, idata: xr.DataTree) -> np.ndarray:
    """Log of the full over the approximate posterior density at draws, up to a constant.

    Costs one pass over the data for all draws, and none if the coreset has all rows; memory
    O(n_draws).

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, in the group ``posterior``.

    Returns
    -------
    ndarray of shape (n_chains, n_draws)
        In nats: the log-likelihood of all rows, less what stands for it.

    Raises
    ------
    InvalidDataError
        If the draws lack a variable, or are impossible under the full data.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=50, tune=50, chains=2, random_seed=1, progressbar=False)
    >>> coreset.log_ratios(idata).shape
    (2, 50)
    """
    return result.approximation.evaluated(Chains(draws_tree(idata))).log_ratios
