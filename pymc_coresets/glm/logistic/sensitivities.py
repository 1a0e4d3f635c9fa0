"""Sensitivities of all rows, wherever they lie, and rows drawn by them: no array is that long."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pymc_coresets.glm.logistic.bounds import SensitivityBound
from pymc_coresets.glm.logistic.signed_rows import ClusterSums, SignedRows, centers_of
from pymc_coresets.rows.keyed import Scan, random_key
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class SignedBlocks:
    """All rows of a logistic regression, in blocks, as often as they are asked for.

    Parameters
    ----------
    source : RowBlocks
    signed : callable
        From rows to these rows, signed by their labels.
    size : int
        Number of rows of a block.
    """

    source: RowBlocks
    signed: Callable[[Rows], SignedRows]
    size: int

    def __iter__(self) -> Iterator[tuple[Rows, SignedRows]]:
        return ((rows, self.signed(rows)) for rows in self.source.blocks(self.size))

    def sample(self, size: int, *, key: int) -> tuple[SignedRows, Vector]:
        """Return a sample of the rows, and weights that make it stand for all of them."""
        scan = self.source.scan(size, key=key, distinct=True)
        return self.signed(scan.rows), scan.weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivities:
    """Bounds on the sensitivities of all rows, and rows drawn in proportion to them.

    Parameters
    ----------
    blocks : SignedBlocks
    bound : SensitivityBound
    heights : ndarray of shape (n_blocks + 1,)
        Sums of base weight times bound before each block of rows, and of all.
    quantiles : dict of str to float
        The distribution of the bounds over all rows, from ``"0%"`` to ``"100%"``: these two are
        those of all rows; the others are those of a sample.
    """

    blocks: SignedBlocks
    bound: SensitivityBound
    heights: Vector
    quantiles: dict[str, float]

    @classmethod
    def of(
        cls,
        blocks: SignedBlocks,
        bounded: Callable[[ClusterSums], SensitivityBound],
        n_clusters: int,
        *,
        rng: np.random.Generator,
    ) -> "Sensitivities":
        """Find clusters in a sample of the rows, add them up, and then the bounds.

        Two readings and that of the sample.  Memory: a block, and the sample.

        Notes
        -----
        The sample has ``min(1000 k, 0.025 N)`` rows (Huggins, Campbell and Broderick 2016, appendix
        E), and at least 50 k where there are that many.
        """
        size = sample_size(n_clusters, blocks.source.n_rows)
        sample, weights = blocks.sample(size, key=random_key(rng))
        centers = centers_of(replace(sample, weights=weights), n_clusters, rng=rng)
        sums = ClusterSums(centers)
        for _, signed in blocks:
            sums.add(signed)
        bound = bounded(sums)
        heights, least, most = [0.0], np.inf, 0.0
        for rows, signed in blocks:
            values, present = bound.values(signed), rows.base_weights > 0
            heights.append(float(_running_sums(heights[-1], rows.base_weights * values)[-1]))
            least = min(least, float(values[present].min(initial=np.inf)))
            most = max(most, float(values.max()))
        of_sample = bound.values(sample)
        found = np.quantile(of_sample, _QUANTILES, weights=weights, method="inverted_cdf")
        quantiles = {f"{100 * q:g}%": float(v) for q, v in zip(_QUANTILES, found, strict=True)}
        return cls(
            blocks=blocks,
            bound=bound,
            heights=np.array(heights),
            quantiles=quantiles | {"0%": least, "100%": most},
        )

    @property
    def mean(self) -> float:
        """Mean of the bounds, weighted by the base weights; at least 1 if they are certain."""
        return float(self.heights[-1] / self.blocks.source.total_weight)

    def draw(self, size: int, *, key: int) -> Scan:
        """Draw rows in proportion to their base weights and sensitivities, with replacement.

        One reading.

        Parameters
        ----------
        size : int
            Number of draws M; fewer rows result where some are drawn repeatedly.
        key : int
            Of the random numbers.

        Returns
        -------
        Scan
            Each weight has the mean u_n, but their sum varies.

        Notes
        -----
        ``p_n = u_n m_n / sum(u m)``, ``K ~ Multinomial(M, p)``, ``w_n = u_n K_n / (p_n M)``, so
        that ``E[w_n] = u_n`` and
        ``Var[sum_n w_n f_n] = (sum_n (u_n f_n)^2 / p_n - (sum_n u_n f_n)^2) / M``.
        """
        total = self.heights[-1]
        points = np.sort(np.random.default_rng(key).random(size) * total)
        # Rounding may lift a point onto the total, where no mass lies.
        points = np.minimum(points, np.nextafter(total, 0.0))
        inside = np.split(points, np.searchsorted(points, self.heights[1:-1]))
        chosen, weights = list[Rows](), list[Vector]()
        pairs = zip(self.heights[:-1], inside, strict=True)
        for (height, some), (rows, signed) in zip(pairs, self.blocks, strict=True):
            if len(some):
                values = self.bound.values(signed)
                within = _running_sums(height, rows.base_weights * values)
                numbers = np.searchsorted(within, some, side="right")
                drawn, counts = np.unique(numbers, return_counts=True)
                chosen.append(rows.take(drawn))
                weights.append(counts * (total / size) / values[drawn])
        return Scan(rows=Rows.joined(chosen), weights=np.concatenate(weights))


def sample_size(n_clusters: int, n_rows: int) -> int:
    """How many rows show the clusters.

    Examples
    --------
    >>> sample_size(6, 10**6), sample_size(6, 10_000), sample_size(6, 50)
    (6000, 300, 50)
    """
    return min(n_rows, max(50 * n_clusters, min(1_000 * n_clusters, int(0.025 * n_rows))))


def _running_sums(before: float, masses: Vector) -> Vector:
    """Return the sums up to each row, one by one, however the rows are divided into blocks."""
    return np.asarray(np.cumsum(np.append(before, masses))[1:])
