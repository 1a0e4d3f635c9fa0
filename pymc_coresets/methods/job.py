"""What a method is given to work with, and what it has to offer."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.methods.loop import CoresetPosterior
from pymc_coresets.progress import Reporter
from pymc_coresets.rows.keyed import MANY_ROWS, random_key
from pymc_coresets.solving.candidates import MOST_DRAWS, n_candidates
from pymc_coresets.solving.solution import Solution

_CANDIDATES_PER_ROW = 20
_UNITS_PER_CANDIDATE = 5  # they are evaluated again
_FEW_ROWS = 50_000
_LEAST_ROWS = 200  # that the number of candidates allows for
LOOSEST = 0.1
"""Largest tolerance in nats, at draws of another posterior than the coreset's own: with fewer rows
some directions are not matched at all, where those draws do not show it."""


AIM = 0.8
"""Of the tolerance: what constructions aim at, so that checks at other draws seldom disagree."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduction[D]:
    """What of a `Job` a method needs that draws from posteriors of its own.

    Parameters
    ----------
    posterior : CoresetPosterior
        Potentials of all rows, and draws of coreset posteriors.
    loglikelihood : object, optional
        The model's `LogLikelihood`, for methods that read more out of it.
    size : int
        Largest number of weights.
    rng : numpy.random.Generator
        The only source of randomness.
    sample_key : int, optional
        Key of distinct samples of the rows that cost no reading of their own, up to some size, the
        smaller a part of the larger.  By default they are drawn anew each time, with replacement.
    deadline : float
        Value of `time.perf_counter` after which no round begins.
    report : Reporter
        Shows and times the parts; by default it shows nothing.
    propose : callable, optional
        Draws from around the mode of the full posterior, as many as are asked for; None where there
        is no mode.  Looks for it from `start_size` rows; takes `rng`, too.
    """

    posterior: CoresetPosterior[D]
    loglikelihood: Any = None
    size: int
    rng: np.random.Generator
    sample_key: int | None = None
    deadline: float = math.inf
    report: Reporter = field(default_factory=lambda: Reporter(show=False))
    propose: Callable[..., Proposal[D] | None] | None = None

    @property
    def key(self) -> int:
        """That of samples of the rows: always the same, or a new one each time."""
        return random_key(self.rng) if self.sample_key is None else self.sample_key


@dataclass(frozen=True, kw_only=True, eq=False)
class Job[D](Reduction[D]):
    """One construction: everything that a method may need to choose rows.

    Parameters
    ----------
    ways_to_draw : callable
        Returns two ways to draw hundreds of times while the weights hardly change: a posterior
        whose draws are fast; and, where it fails, another one, with a function that takes the
        arguments of its `draw` and makes use of earlier draws.
    weighting : callable
        Draws for the methods that compare rows at a fixed weighting distribution: about as many as
        are asked for.  Takes `rng`, too.
    posterior, loglikelihood, size, rng, sample_key, deadline, report, propose
        See `Reduction`.
    """

    ways_to_draw: Callable[[], tuple[CoresetPosterior[D], CoresetPosterior[D], Callable[..., D]]]
    weighting: Callable[..., D]


class Method(Protocol):
    """A way to choose weighted rows: a frozen dataclass of its options, which runs itself.

    Attributes
    ----------
    name : str
        What it is called as ``method=...``.
    accepts : collection of str
        Arguments of `build_coreset` that it uses: size, tolerance, time_budget, weighting, rows.
    draws_from : str
        Where it compares rows; empty where that is the weighting distribution.
    """

    name: ClassVar[str]
    accepts: ClassVar[Collection[str]]
    draws_from: ClassVar[str]

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """Size for D free dimensions and N rows, where the user gives none."""

    def run(self, job: Job[Any]) -> Solution:
        """Choose rows and weights."""


def rows_of_a_quadratic(n_dims: int) -> int:
    """How many weighted rows match any quadratic log-likelihood of D variables.

    By Caratheodory's theorem it is one more than the D(D + 3)/2 coefficients.

    Examples
    --------
    >>> rows_of_a_quadratic(2)
    6
    """
    return n_dims * (n_dims + 3) // 2 + 1


def draws_around_mode(n_dims: int, n_terms: int) -> int:
    """How many draws from around a mode choose rows: 2 K, as in `rows_of_a_quadratic`.

    But 1 000 at least (500 of more than 50 000 terms, 150 of more than two million), and 4 000 at
    most.

    Examples
    --------
    >>> draws_around_mode(10, 1_000), draws_around_mode(10, 10**6), draws_around_mode(38, 10**6)
    (1000, 500, 1560)
    >>> draws_around_mode(3, 10**7), draws_around_mode(11, 10**7)
    (150, 156)
    """
    # With more rows, a pass over the data costs more than what follows it, and the posterior is
    # closer to normal.
    least = 1_000 if n_terms <= _FEW_ROWS else 500 if n_terms <= MANY_ROWS else 150
    return max(least, min(2 * rows_of_a_quadratic(n_dims), MOST_DRAWS))


def draws_to_certify(n_terms: int) -> int:
    """How many fresh draws of a coreset's posterior certify it: 400, or 200 for large data.

    Of more than two million rows, 400 draws would cost more than the whole construction.

    Examples
    --------
    >>> draws_to_certify(10**6), draws_to_certify(10**7)
    (400, 200)
    """
    # They tell J to 7 to 15 % where it is near the tolerance, or to 10 to 20 %.
    return 400 if n_terms <= MANY_ROWS else 200


def candidates_to_keep(n_dims: int, size: int, n_draws: int, n_units: int | None = None) -> int:
    """How many rows to choose among: 20 for each that may be needed, where 256 MB allow it.

    Of units, each of many terms, a fifth is enough, or 20 for each that matches a quadratic.

    Examples
    --------
    >>> candidates_to_keep(2, 100, 500), candidates_to_keep(40, 100, 500)
    (4000, 17220)
    >>> candidates_to_keep(7, 100, 500, n_units=5_000)
    1000
    """
    fewest = rows_of_a_quadratic(n_dims)
    kept = min(_CANDIDATES_PER_ROW * max(fewest, _LEAST_ROWS, size), n_candidates(n_draws))
    if n_units is None:
        return kept
    return min(kept, max(_CANDIDATES_PER_ROW * fewest, n_units // _UNITS_PER_CANDIDATE))


def moderate_size(n_dims: int, n_rows: int) -> int:
    """As many rows as match a quadratic, but 50 at least and 500 at most (and not above N).

    Examples
    --------
    >>> moderate_size(2, 10**6), moderate_size(20, 10**6), moderate_size(2, 10)
    (50, 231, 10)
    """
    return min(n_rows, max(50, min(rows_of_a_quadratic(n_dims), 500)))
