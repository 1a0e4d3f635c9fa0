"""Starting points for the search for other modes that come from the data: modes of few rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation.many_starts import minimise_together, negative_at
from pymc_coresets.sampling.normal import Normal

#: Sizes of the subsets, and how many there are of each.
_SUBSETS = {1: 6, 10: 6, 100: 4}
#: Steps of an ascent: a start need not be a mode, which few rows may not have.
_STEPS = 40
#: Share of the rows that each side of a gap has at least: those beyond are outliers.
_SIDE = 0.02

type DensityOf = Callable[[Sequence[Rows]], Density]


def starts_from_data(
    subsample: RowSample,
    density_of: DensityOf,
    first: Normal,
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return points near modes of the posteriors of a few rows, (n_starts, n_dims).

    Of random subsets, of single rows, and of the rows on either side of the largest gap in each of
    their columns.  Rows that belong together by a mode, such as those of a cluster, lead to it, and
    no prior is needed.

    Parameters
    ----------
    subsample : RowSample
        A sample of the rows.
    density_of : callable
        Returns the density of which each point has rows of its own.
    first : Normal
        Around a known mode, where the ascents begin.
    rng : numpy.random.Generator
    """
    subsets = [
        replace(subsample.rows.take(which), case_weights=np.ones(len(which)))
        for which in _subsets(subsample.rows, rng)
    ]

    def negative(z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return negative_at(density_of([subsets[i] for i in which]), first, z)

    starts = np.zeros((len(subsets), len(first.location)))
    ends = minimise_together(negative, starts, most_steps=_STEPS, joins=False)
    found: np.ndarray = first.at(ends.points[np.isfinite(ends.values)])
    return found


def _subsets(rows: Rows, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Return numbers of rows: the sides of gaps first, then random ones."""
    if not rows.unit_rows:
        yield from _sides(rows.arrays)
    for size, number in _SUBSETS.items():
        if size < len(rows):
            for _ in range(number):
                yield np.sort(rng.choice(len(rows), size, replace=False))


def _sides(arrays: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Return the rows on either side of the largest gap in a column; of two columns at most."""
    columns = [a.reshape(len(a)) for a in arrays if a.size == len(a) and a.dtype.kind == "f"]
    for column in columns[-2:]:  # the outcomes come last
        order = np.argsort(column, kind="stable")
        least = max(int(_SIDE * len(order)), 1)
        gaps = np.nan_to_num(np.diff(column[order])[least - 1 : len(order) - least], nan=0.0)
        if len(gaps) and gaps.max() > 0:
            border = least + int(gaps.argmax())
            yield from (np.sort(order[:border]), np.sort(order[border:]))
