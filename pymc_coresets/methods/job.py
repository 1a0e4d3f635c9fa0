"""The input of a method (`Job`), and the interface of methods."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.methods.loop import CoresetPosterior
from pymc_coresets.progress import Reporter
from pymc_coresets.rows.keyed import RowSample, random_key
from pymc_coresets.solving.problem import MOST_DRAWS, n_candidates
from pymc_coresets.solving.solution import Solution

#: Largest tolerance in nats if draws are not from the coreset's own posterior: with fewer rows,
#: some directions are not matched at all, which such draws do not detect.
LOOSEST = 0.1
#: Share of the tolerance that constructions aim at, so that checks at other draws seldom exceed it.
AIM = 0.8
#: Terms above which passes have fewer draws, and above which those that choose rows have fewest.
_MANY_TERMS, _FEW_DRAWS_FROM = 500_000, 2_000_000


def _no_mode(*_: object, **__: object) -> None:
    """Find no mode of the full posterior, see `Job`."""


def _no_draws(*_: object, **__: object) -> NoReturn:
    """Raise: there is no weighting distribution, see `Job`."""
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class Job[D]:
    """The input of one construction: everything that a method may need to choose rows.

    Parameters
    ----------
    posterior : CoresetPosterior
        Log-likelihoods of all rows, and draws of coreset posteriors.
    loglikelihood : object, optional
        The model's `LogLikelihood`, for methods that inspect its structure.
    size : int
        Largest number of weights.
    rng : numpy.random.Generator
        The only source of randomness.
    sample_key : int, optional
        Key of nested samples of distinct rows, which need no extra reading up to some size.  By
        default samples are drawn anew each time, with replacement.
    deadline : float
        Value of `time.perf_counter` after which no round begins.
    report : Reporter
        Shows and times the parts; by default it shows nothing.
    propose : callable
        Returns a given number of draws from around the mode of the full posterior, or None if there
        is no mode, as by default.  The search starts from `start_size` rows; also takes `rng`.
    weighting : callable, optional
        Returns about a given number of draws, for the methods that compare rows at a fixed
        weighting distribution.  Also takes `rng`.  Methods that draw from coreset posteriors need
        none.

    Examples
    --------
    A method that draws rows at random, with weights that scale them to all rows:

    >>> def run(job: Job) -> Solution:
    ...     some = job.posterior.subsample(job.size, key=job.key)
    ...     return Solution.sampled(some.rows, some.weights)
    """

    posterior: CoresetPosterior[D]
    loglikelihood: Any = None
    size: int
    rng: np.random.Generator
    sample_key: int | None = None
    deadline: float = math.inf
    report: Reporter = field(default_factory=lambda: Reporter(show=False))
    propose: Callable[..., Proposal[D] | None] = _no_mode
    weighting: Callable[..., D] = _no_draws

    @property
    def key(self) -> int:
        """Key of samples of the rows: always the same, or a new one each time."""
        return random_key(self.rng) if self.sample_key is None else self.sample_key

    def subsample(self, size: int) -> RowSample:
        """Return a sample of the rows: of distinct ones, if it has a key."""
        distinct = self.sample_key is not None
        return self.posterior.subsample(size, key=self.key, distinct=distinct)


class Method(Protocol):
    """A method that chooses weighted rows: a frozen dataclass of its options, with `run`.

    Attributes
    ----------
    name : str
        Its name in ``method=...``.
    accepts : collection of str
        Arguments of `build_coreset` that it uses: size, tolerance, time_budget, weighting, rows.
    draws_from : str
        Distribution at whose draws it compares rows; empty for the weighting distribution.

    Notes
    -----
    A method that stops at a divergence is a dataclass with the field `tolerance`, in nats, or None.
    It may be given more draws than there are distinct rows if its `with_replacement` is true.

    Examples
    --------
    >>> from pymc_coresets import Uniform
    >>> method: Method = Uniform()
    >>> method.name, sorted(method.accepts), method.draws_from
    ('uniform', ['rows', 'size'], 'none')
    """

    name: ClassVar[str]
    accepts: ClassVar[Collection[str]]
    draws_from: ClassVar[str]

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """Default size for D free dimensions and N rows."""

    def run[D](self, job: Job[D]) -> Solution:
        """Choose rows and weights."""


def tolerance_of(method: Method) -> float | None:
    """Return the divergence at which a method stops, in nats; None if it has no tolerance.

    Examples
    --------
    >>> from pymc_coresets import RiemannianPursuit, Uniform
    >>> tolerance_of(RiemannianPursuit()), tolerance_of(Uniform())
    (0.01, None)
    """
    tolerance: float | None = getattr(method, "tolerance", None)
    return tolerance


def rows_of_a_quadratic(n_dims: int) -> int:
    """Return the number of weighted rows that match any quadratic log-likelihood of D variables.

    By Caratheodory's theorem it is one more than the D(D + 3)/2 coefficients.

    Examples
    --------
    >>> rows_of_a_quadratic(2)
    6
    """
    return n_dims * (n_dims + 3) // 2 + 1


def draws_around_mode(n_dims: int, n_terms: int) -> int:
    """Return the number of draws around a mode for choosing rows: 2 K, see `rows_of_a_quadratic`.

    At least 1,000 (500 for more than 50,000 terms, 250 for more than 500,000, 150 for more than two
    million), and at most 4,000.

    Examples
    --------
    >>> draws_around_mode(10, 1_000), draws_around_mode(10, 10**6), draws_around_mode(38, 10**6)
    (1000, 250, 1560)
    >>> draws_around_mode(3, 10**7), draws_around_mode(11, 10**7)
    (150, 156)
    """
    # With more rows, a pass over the data costs more than the later steps, and the posterior is
    # closer to normal.
    limits = {50_000: 1_000, _MANY_TERMS: 500, _FEW_DRAWS_FROM: 250}
    least = next((n_draws for limit, n_draws in limits.items() if n_terms <= limit), 150)
    return max(least, min(2 * rows_of_a_quadratic(n_dims), MOST_DRAWS))


def draws_to_certify(n_terms: int) -> int:
    """Return the number of fresh draws that certify a coreset: 400, or 200 for large data.

    With more than half a million terms, 400 draws would cost more than the whole construction.

    Examples
    --------
    >>> draws_to_certify(10**5), draws_to_certify(10**6)
    (400, 200)
    """
    # Near the tolerance, the standard error of J is 7 to 15 % with 400 draws, 10 to 20 % with 200.
    return 400 if n_terms <= _MANY_TERMS else 200


def candidates_to_keep(n_dims: int, size: int, n_draws: int, n_units: float = math.inf) -> int:
    """Return the number of candidates: 20 per row that may be needed, if 256 MB can hold them.

    For units of many terms, a fifth of them is enough, or 20 per unit that matches a quadratic.

    Examples
    --------
    >>> candidates_to_keep(2, 100, 500), candidates_to_keep(40, 100, 500)
    (4000, 17220)
    >>> candidates_to_keep(7, 100, 500, n_units=5_000)
    1000
    """
    fewest = rows_of_a_quadratic(n_dims)
    kept = min(20 * max(fewest, 200, size), n_candidates(n_draws))
    return int(min(kept, max(20 * fewest, n_units / 5)))  # units are evaluated again


def moderate_size(n_dims: int, n_rows: int) -> int:
    """Return the number of rows that match a quadratic, at least 50 and at most 500 (or N).

    Examples
    --------
    >>> moderate_size(2, 10**6), moderate_size(20, 10**6), moderate_size(2, 10)
    (50, 231, 10)
    """
    return min(n_rows, max(50, min(rows_of_a_quadratic(n_dims), 500)))
