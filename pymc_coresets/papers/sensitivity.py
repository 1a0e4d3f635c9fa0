"""Logistic regression: rows drawn by bounds on their sensitivities, with an error guarantee."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import SeenRows, seen_rows_of
from pymc_coresets.methods.job import Job, moderate_size
from pymc_coresets.options import flag, if_given, positive_number, whole_number
from pymc_coresets.papers.signed_rows import (
    ClusterSums,
    SensitivityBound,
    SignedRows,
    centers_of,
    guaranteed_size,
    signed_by_labels,
)
from pymc_coresets.rows.keyed import RowSample, random_key
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.proportional import hit_by, points_of_parts, random_points
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Solution


@dataclass(frozen=True, eq=False)
class SignedBlocks:
    """All rows of a logistic regression, in blocks that can be read repeatedly.

    Parameters
    ----------
    source : RowBlocks
    signed : callable
        Maps rows to the same rows, signed by their labels.
    size : int
        Number of rows of a block.
    """

    source: RowBlocks
    signed: Callable[[Rows], SignedRows]
    size: int

    def __iter__(self) -> Iterator[tuple[Rows, SignedRows]]:
        return ((rows, self.signed(rows)) for rows in self.source.blocks(self.size))

    def subsample(self, size: int, *, key: int) -> tuple[SignedRows, Vector]:
        """Return a sample of the rows, and weights that scale it to all of them."""
        subsample = self.source.subsample(size, key=key, distinct=True)
        return self.signed(subsample.rows), subsample.weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivities:
    """Bounds on the sensitivities of all rows, and rows drawn in proportion to them.

    Parameters
    ----------
    blocks : SignedBlocks
    bound : SensitivityBound
    heights : ndarray of shape (n_blocks + 1,)
        Sums of case weight times bound before each block of rows, and of all.
    largest : float
        The largest bound of a row.
    """

    blocks: SignedBlocks
    bound: SensitivityBound
    heights: Vector
    largest: float

    @classmethod
    def of(
        cls,
        blocks: SignedBlocks,
        bounded: Callable[[ClusterSums], SensitivityBound],
        n_clusters: int,
        *,
        rng: np.random.Generator,
    ) -> "Sensitivities":
        """Find clusters in a sample of the rows, and sum clusters and bounds over all rows.

        Reads the data twice, and the sample once.  Memory: a block, and the sample.

        Notes
        -----
        The sample has ``min(1000 k, 0.025 N)`` rows (Huggins, Campbell and Broderick 2016, appendix
        E), and at least 50 k if there are that many.
        """
        size = sample_size(n_clusters, blocks.source.n_rows)
        subsample, weights = blocks.subsample(size, key=random_key(rng))
        centers = centers_of(replace(subsample, weights=weights), n_clusters, rng=rng)
        sums = ClusterSums(centers)
        for _, signed in blocks:
            sums.add(signed)
        bound = bounded(sums)
        heights, largest = [0.0], 0.0
        for rows, signed in blocks:
            values = bound.values(signed)
            # Added one by one, so that the sum does not depend on the blocks.
            masses = np.append(heights[-1], rows.case_weights * values)
            heights.append(float(np.cumsum(masses)[-1]))
            largest = max(largest, float(values.max()))
        return cls(blocks=blocks, bound=bound, heights=np.array(heights), largest=largest)

    @property
    def mean(self) -> float:
        """Mean of the bounds, weighted by the case weights; at least 1 if they are certain."""
        return float(self.heights[-1] / self.blocks.source.total_weight)

    def draw(self, size: int, *, key: int) -> RowSample:
        """Draw rows in proportion to their case weights and sensitivities, with replacement.

        Reads the data once.

        Parameters
        ----------
        size : int
            Number of draws M; there are fewer rows if some are drawn repeatedly.
        key : int
            Key of the random numbers.

        Returns
        -------
        RowSample
            Each weight has the mean u_n, but their sum varies.

        Notes
        -----
        ``p_n = u_n m_n / sum(u m)``, ``K ~ Multinomial(M, p)``, ``w_n = u_n K_n / (p_n M)``, so
        that ``E[w_n] = u_n`` and
        ``Var[sum_n w_n f_n] = (sum_n (u_n f_n)^2 / p_n - (sum_n u_n f_n)^2) / M``.
        """
        total = self.heights[-1]
        chosen, weights = list[Rows](), list[Vector]()
        parts = points_of_parts(random_points(size, total, key), self.heights)
        for (height, some), (rows, signed) in zip(parts, self.blocks, strict=True):
            if len(some):
                values = self.bound.values(signed)
                drawn, counts = hit_by(rows.case_weights * values, some, before=height)
                chosen.append(rows.take(drawn))
                weights.append(counts * (total / size) / values[drawn])
        return RowSample(rows=Rows.joined(chosen), weights=np.concatenate(weights))


def sample_size(n_clusters: int, n_rows: int) -> int:
    """Return the number of rows from which clusters are found.

    Examples
    --------
    >>> sample_size(6, 10**6), sample_size(6, 10_000), sample_size(6, 50)
    (6000, 300, 50)
    """
    return min(n_rows, max(50 * n_clusters, min(1_000 * n_clusters, int(0.025 * n_rows))))


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Coreset for logistic regression, drawn at random by the rows' sensitivities.

    Use it if a guarantee on the log-likelihood is needed, or if the data allow only a few passes.
    Posteriors from `RiemannianPursuit` are far closer at the same size.  Costs three passes over
    the data, a sample of them, O(n_obs n_clusters) distances, and memory for a block of rows.

    Parameters
    ----------
    n_clusters : int, default 6
        Number of clusters of the rows; the result hardly changes between 4 and 8.
    radius : float, optional
        Radius of the ball of coefficients for which the guarantee holds, in their unit.  By
        default ``3 / sqrt(I)``, for the mean squared distance I of rows from the centres of their
        clusters, which keeps sensitivities moderate.  The mean sensitivity, and the size for a
        guarantee, grow exponentially with the radius.
    center : sequence of float, optional
        Centre of the ball, one number for each column of the design matrix: an estimate of the
        coefficients.  By default 0.  The error for a wrong length names the coefficients.
    exact_centers : bool, default False
        Compare each row with the means of the clusters without that row, so that the sensitivities
        are bounds.  By default they are compared with centres found on a sample of the rows, as the
        authors do: within 1 % for many rows, but sometimes below the bound.
    epsilon : float, optional
        Guaranteed relative error of the log-likelihood, between 0 and 1; determines the size.
        Implies exact centres.
    delta : float, default 0.05
        Probability with which the guarantee of `epsilon` may fail.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.

    Notes
    -----
    With ``z_n = y_n x_n``, ``y_n`` in {-1, 1}, and ``phi(s) = log(1 + exp(-s))``, the sensitivity
    of row n is ``sup U phi(z_n.theta) / sum_m u_m phi(z_m.theta)`` over the ball
    ``|theta - center| <= radius``; U is the sum of the case weights u.  Its bound
    ``m_n`` is that of Lemma B.5 [1]_, see `SensitivityBound`.  Rows are drawn with
    probabilities ``p_n`` proportional to ``u_n m_n``, ``K ~ Multinomial(M, p)``, and weigh
    ``w_n = u_n K_n / (p_n M)``: the weighted log-likelihood has the right mean at every theta.

    Theorem 3.2 [1]_: with M of `guaranteed_size` the log-likelihoods L of all rows and L~ of the
    weighted ones satisfy ``|L - L~| <= epsilon |L|`` everywhere in the ball with probability
    ``1 - delta``.  It says nothing outside of the ball, where part of the posterior may lie, and
    ``|L|`` is of the order of the number of rows: epsilon = 0.1 allows errors of many nats.

    References
    ----------
    .. [1] Huggins, J. H., Campbell, T. and Broderick, T. (2016). Coresets for Scalable Bayesian
       Logistic Regression, Algorithm 1. https://doi.org/10.48550/arXiv.1605.06423
    .. [2] Braverman, V., Feldman, D. and Lang, H. (2016). New Frameworks for Offline and Streaming
       Coreset Constructions. https://doi.org/10.48550/arXiv.1612.00889

    Examples
    --------
    >>> Sensitivity(epsilon=0.2, delta=0.1).uses_exact_centers
    True
    """

    name: ClassVar[str] = "sensitivity"
    draws_from: ClassVar[str] = "none"
    with_replacement: ClassVar[bool] = True

    n_clusters: int = 6
    radius: float | None = None
    center: Sequence[float] | None = None
    exact_centers: bool = False
    epsilon: float | None = None
    delta: float = 0.05

    def __post_init__(self) -> None:
        whole_number("n_clusters", self.n_clusters, least=1)
        flag("exact_centers", self.exact_centers)
        if_given(positive_number, "radius", self.radius)
        if_given(positive_number, "epsilon", self.epsilon, below=1)
        positive_number("delta", self.delta, below=1)
        object.__setattr__(self, "center", if_given(_vector, "center", self.center))

    @property
    def is_guaranteed(self) -> bool:
        """Whether there are as many draws as an error needs that is guaranteed."""
        return self.epsilon is not None

    @property
    def uses_exact_centers(self) -> bool:
        """Whether the sensitivities are true bounds, not only close to them."""
        return self.exact_centers or self.is_guaranteed

    @property
    def accepts(self) -> Collection[str]:
        """Rows from a source, and a size, unless it follows from `epsilon`."""
        return frozenset({"rows"} if self.is_guaranteed else {"rows", "size"})

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """As many rows as match a quadratic log-likelihood; with `epsilon`, all are allowed."""
        return n_rows if self.is_guaranteed else moderate_size(n_dims, n_rows)

    def run(self, job: Job) -> Solution:
        """Bound the sensitivities of all rows, and draw in proportion to them."""
        with job.report.part("linear predictor"):
            seen = seen_rows_of(job.loglikelihood, find_linear_predictor)
        with job.report.part("sensitivities"):
            found = self.choose(job.loglikelihood.source, seen, job.size, rng=job.rng)
        job.report.figures.update(found[1])
        return Solution.sampled(found[0].rows, found[0].weights)

    def choose(
        self, source: RowBlocks, seen: SeenRows, size: int, *, rng: np.random.Generator
    ) -> tuple[RowSample, dict[str, object]]:
        """Draw rows in proportion to their sensitivities.

        Parameters
        ----------
        source : RowBlocks
        seen : SeenRows
            Of one predictor.
        size : int
            Number of draws if there is no `epsilon`; otherwise the largest number of rows.
        rng : numpy.random.Generator

        Returns
        -------
        subsample : RowSample
        figures : dict
            Quantities behind the guarantee.

        Raises
        ------
        InvalidOptionError
            If `epsilon` needs as many draws as there are rows, or the center and the coefficients
            differ in length.
        UnsupportedModelError
            If the model is not a logistic regression.
        """
        names = seen.found.names
        if self.center is not None and len(self.center) != len(names):
            raise InvalidOptionError(
                f"center has {len(self.center)} numbers, but there are {len(names)} coefficients: "
                f"{list(names)!r}"
            )

        size_of_block = seen.block_rows(4 * self.n_clusters)
        blocks = SignedBlocks(source, lambda r: signed_by_labels(seen.of(r)), size_of_block)
        found = Sensitivities.of(blocks, self.bound, self.n_clusters, rng=rng)
        n_draws, promised = self._n_draws(found, len(names), size)
        figures = self._figures(found) | promised
        return found.draw(n_draws, key=random_key(rng)), {"n_draws": n_draws, **figures}

    def bound(self, sums: ClusterSums) -> SensitivityBound:
        """Return the bound in the ball, for rows of such clusters."""
        exact = self.uses_exact_centers
        return SensitivityBound.of(sums, radius=self.radius, center=self.center, exact=exact)

    def _n_draws(
        self, found: Sensitivities, n_dims: int, size: int
    ) -> tuple[int, dict[str, object]]:
        """Return the number of draws, and what it guarantees, if it does."""
        if self.epsilon is None:
            return size, {}
        n_draws = guaranteed_size(found.mean, n_dims, epsilon=self.epsilon, delta=self.delta)
        if n_draws >= size:
            raise InvalidOptionError(
                f"epsilon={self.epsilon} with delta={self.delta} needs {n_draws:,} draws at "
                f"a mean sensitivity of {found.mean:.3g} in a ball of radius "
                f"{found.bound.radius:.3g}, but at most {size:,} rows are possible: allow a "
                "larger epsilon, give a smaller radius (and center=... for the ball's centre), or "
                "leave epsilon out and give a size."
            )
        return n_draws, {"epsilon": self.epsilon, "delta": self.delta}

    def _figures(self, found: Sensitivities) -> dict[str, object]:
        """Quantities behind the guarantee."""
        return {
            "mean sensitivity": found.mean,
            "largest sensitivity": found.largest,
            "radius": found.bound.radius,
            "center": 0.0 if self.center is None else found.bound.center,
        }


def _vector(name: str, value: Sequence[float]) -> tuple[float, ...]:
    """Return finite numbers as a tuple, which is hashable and can be compared."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        vector = np.array(np.nan)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise InvalidOptionError(f"{name}={value!r} must be a sequence of finite numbers.")
    return tuple(vector.tolist())
