"""Sensitivities of rows that are read chunk by chunk: no array is as long as the data."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_coresets.glm.logistic.bounds import (
    Ball,
    Sensitivities,
    SensitivityBound,
    quantiles_of,
    require_center,
)
from pymc_coresets.glm.logistic.recognition import logistic_rows
from pymc_coresets.glm.logistic.signed_rows import ClusterSums, centers_of, sample_size
from pymc_coresets.glm.predictor.streamed_predictor import StreamedPredictor
from pymc_coresets.rows.passes import Scan
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

__all__ = ["StreamedSensitivities"]


class _Signed(NamedTuple):
    """A block of rows, signed by their labels."""

    rows: Rows
    vectors: Any
    offset: Vector

    @property
    def weights(self) -> Vector:
        return self.rows.base_weights


@dataclass(frozen=True, eq=False)
class StreamedSensitivities:
    """Bounds on the sensitivities of all rows, and rows drawn in proportion to them.

    Reads the rows five times: to count those of positive weight, to take a sample of them, in which
    the clusters are found, to add up the clusters, to add up the bounds, and to draw.  Memory: a
    block, and the sample.

    Parameters
    ----------
    part : StreamedPredictor
        Of a logistic regression.
    ball : Ball
        The coefficients that the bounds hold for.
    n_clusters : int
    rng : numpy.random.Generator

    Notes
    -----
    The clusters, the bounds and the rows are those of the same rows in memory, but for rounding.
    Of the quantiles only the smallest and the largest are those of all rows; the others are those
    of the sample.
    """

    part: StreamedPredictor
    ball: Ball
    n_clusters: int
    rng: np.random.Generator

    @cached_property
    def found(self) -> Sensitivities:
        """The bounds, `values` apart: these are those of the sample."""
        return self._bounded[0]

    def draw(self, size: int, *, key: int) -> Scan:
        """Draw rows by base weights and sensitivities, see `sample_by_sensitivity`."""
        _, heights = self._bounded
        points = np.sort(np.random.default_rng(key).random(size) * heights[-1])
        # Rounding may lift a point onto the total, where no mass lies.
        points = np.minimum(points, np.nextafter(heights[-1], 0.0))
        borders = np.searchsorted(points, heights)
        rows: list[Rows] = []
        weights: list[Vector] = []
        for i, block in enumerate(self._blocks()):
            some = points[borders[i] : borders[i + 1]]
            if not len(some):
                continue
            values = self._values(block)
            within = _running_sums(heights[i], block.weights * values)
            drawn, counts = np.unique(
                np.searchsorted(within, some, side="right"), return_counts=True
            )
            rows.append(block.rows.take(drawn))
            weights.append(counts * (heights[-1] / size) / values[drawn])
        return Scan(rows=Rows.joined(rows), weights=np.concatenate(weights))

    def _blocks(self) -> Iterator[_Signed]:
        for rows in self.part.loglikelihood.source.blocks(self.part.block_rows):
            signed = logistic_rows(self.part.block_of(rows).found)
            yield _Signed(rows, *signed.take(slice(None)))

    @cached_property
    def _sample(self) -> tuple[Any, Vector, Vector]:
        """Vectors, offsets and base weights of rows drawn from those of positive weight."""
        blocks = self.part.loglikelihood.source.blocks(self.part.block_rows)
        n_present = sum(int(np.count_nonzero(rows.base_weights)) for rows in blocks)
        wanted = min(n_present, sample_size(self.n_clusters, n_present))
        chosen = np.arange(n_present)
        if wanted < n_present:
            chosen = np.sort(self.rng.choice(n_present, wanted, replace=False))
        parts, n_before = [], 0
        for block in self._blocks():
            present = np.flatnonzero(block.weights)
            low, high = np.searchsorted(chosen, [n_before, n_before + len(present)])
            here = present[chosen[low:high] - n_before]
            parts.append((block.vectors[here], block.offset[here], block.weights[here]))
            n_before += len(present)
        vectors, offsets, weights = zip(*parts, strict=True)
        stacked = (
            sparse.vstack(vectors, format="csr")
            if sparse.issparse(vectors[0])
            else np.concatenate(vectors)
        )
        return stacked, np.concatenate(offsets), np.concatenate(weights)

    @cached_property
    def _clusters(self) -> tuple[ClusterSums, SensitivityBound]:
        require_center(self.ball, len(self.part.names), self.part.names)
        sums = ClusterSums(centers_of(*self._sample, self.n_clusters, rng=self.rng))
        for block in self._blocks():
            sums.add(block.vectors, block.offset, block.weights)
        clustering = sums.finished(self._total, np.empty(0, dtype=np.uint8))
        return sums, SensitivityBound.of(clustering, sums.centers, self.ball)

    @property
    def _total(self) -> float:
        return self.part.loglikelihood.total_weight

    def _values(self, block: _Signed) -> Vector:
        """Bounds m_n of the rows of a block."""
        sums, bound = self._clusters
        own, _ = sums.nearest(block.vectors, block.offset)
        return self._total * bound.shares(block.vectors, block.offset, own, block.weights)

    @cached_property
    def _bounded(self) -> tuple[Sensitivities, Vector]:
        """The bounds, and the sums of masses before each block, and of all."""
        heights, least, most = [0.0], np.inf, 0.0
        _, bound = self._clusters
        for block in self._blocks():
            values, present = self._values(block), block.weights > 0
            heights.append(float(_running_sums(heights[-1], block.weights * values)[-1]))
            least = min(least, float(values[present].min(initial=np.inf)))
            most = max(most, float(values.max()))
        vectors, offset, weights = self._sample
        own, _ = self._clusters[0].nearest(vectors, offset)
        sampled = self._total * bound.shares(vectors, offset, own, weights)
        found = Sensitivities(
            values=sampled,
            mean=heights[-1] / self._total,
            quantiles=quantiles_of(sampled, weights) | {"0%": least, "100%": most},
            radius=bound.radius,
            center=bound.center,
        )
        return found, np.array(heights)


def _running_sums(before: float, masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums up to each row, one by one, as those of all rows in memory."""
    sums: NDArray[np.float64] = np.cumsum(np.append(before, masses))[1:]
    return sums
