"""Uniform sampling with replacement: the baseline that looks at no row."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_coresets.methods.job import Job, moderate_size
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.solving.solution import Solution


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draw rows at random, in proportion to their base weights.

    Use it as a baseline; its error falls only like ``1 / sqrt(size)``.  No log-likelihood is
    evaluated.  A row that is drawn several times is kept once, so that the coreset may have fewer
    rows than `size`.

    References
    ----------
    .. [1] Campbell, T. and Broderick, T. (2019). Automated Scalable Bayesian Inference via
       Hilbert Coresets, Section 4.1. https://jmlr.org/papers/v20/17-613.html

    Examples
    --------
    >>> Uniform().default_size(2, 1_000)
    50
    """

    name: ClassVar[str] = "uniform"
    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size"})
    draws_from: ClassVar[str] = "none"

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """As many rows as match a quadratic log-likelihood, 50 to 500."""
        return moderate_size(n_dims, n_rows)

    def run(self, job: Job[Any]) -> Solution:
        """Draw ``job.size`` rows; repeated ones add their weights."""
        scan = job.posterior.scan(job.size, key=random_key(job.rng))
        return Solution.sampled(scan.rows, scan.weights)
