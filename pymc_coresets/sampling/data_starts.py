"""Starting points for the search for other modes that come from the data: modes of few rows."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pymc_coresets.reading.unconstrained import Density
from pymc_coresets.rows.keyed import Scan
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.climbing import climb, negative_of
from pymc_coresets.sampling.normal import Normal

#: Sizes of the subsets, and how many there are of each.
_SUBSETS = {1: 6, 10: 6, 100: 4}
#: Steps of a climb: a start need not be a mode, which few rows may not have.
_STEPS = 40
#: Share of the rows that each side of a gap has at least: those beyond are outliers.
_SIDE = 0.02

type DensityOf = Callable[[Rows, np.ndarray], Density]


def starts_from_data(
    scan: Scan,
    density_of: DensityOf,
    first: Normal,
    *,
    rng: np.random.Generator,
    is_over: Callable[[], bool] = lambda: False,
) -> np.ndarray:
    """Return points near modes of the posteriors of a few rows, (n_starts, n_dims).

    Of random subsets, of single rows, and of the rows on either side of the largest gap in each of
    their columns.  Rows that belong together by a mode, such as those of a cluster, lead to it, and
    no prior is needed.

    Parameters
    ----------
    scan : Scan
        A sample of the rows.
    density_of : callable
        Returns the density of some rows with weights.
    first : Normal
        Around a known mode, where the climbs begin.
    rng : numpy.random.Generator
    is_over : callable
        Returns whether no further climb should begin.
    """
    ends = []
    for which in _subsets(scan.rows, rng):
        if is_over():
            break
        weights = np.ones(len(which))
        ends.append(_climbed(density_of(scan.rows.take(which), weights), first))
    found = [x for x in ends if x is not None]
    return np.stack(found) if found else np.empty((0, len(first.location)))


def _climbed(density: Density, first: Normal) -> np.ndarray | None:
    """Return the end of a climb; None where the density is not finite."""
    negative = negative_of(density, first)
    climb(negative, np.zeros(len(first.location)), most_steps=_STEPS)
    return None if negative.x is None else first.at(negative.x)


def _subsets(rows: Rows, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Return numbers of rows: the sides of gaps first, then random ones."""
    if rows.members is None:
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
