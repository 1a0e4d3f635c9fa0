"""Starting points for the search for other modes that come from the data: modes of few rows."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from pymc_coresets.reading.unconstrained import Density
from pymc_coresets.rows.keyed import Scan
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.many_climbs import climb_together, negative_at
from pymc_coresets.sampling.normal import Normal

#: Sizes of the subsets, and how many there are of each.
_SUBSETS = {1: 6, 10: 6, 100: 4}
#: Steps of a climb: a start need not be a mode, which few rows may not have.
_STEPS = 40
#: Share of the rows that each side of a gap has at least: those beyond are outliers.
_SIDE = 0.02

#: Numbers of rows and points that are evaluated together: more of them take longer than one by one.
_TOGETHER = 2**18

type DensityOf = Callable[[Rows, np.ndarray], Density]


def starts_from_data(
    scan: Scan,
    density_of: DensityOf,
    first: Normal,
    *,
    n_terms: float = 1.0,
    rng: np.random.Generator,
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
        Returns the density of some rows, of which each point has its own weights, (n_points,
        n_rows).
    first : Normal
        Around a known mode, where the climbs begin.
    n_terms : float
        Terms of a row, such as those of its nodes.
    rng : numpy.random.Generator
    """
    rows, ends = scan.rows, [np.empty((0, len(first.location)))]
    for group in _groups(list(_subsets(rows, rng)), n_terms):
        union = np.unique(np.concatenate(group))
        weights = np.stack([np.isin(union, which) for which in group]).astype(np.float64)
        ends.append(_climbed(partial(density_of, rows.take(union)), weights, first))
    return np.concatenate(ends)


def _groups(subsets: Sequence[np.ndarray], n_terms: float) -> list[list[np.ndarray]]:
    """Divide subsets into groups whose rows are evaluated at the points of all of them."""
    groups: list[list[np.ndarray]] = []
    known: set[int] = set()
    for subset in subsets:
        union = known | set(subset.tolist())
        if groups and (len(groups[-1]) + 1) * len(union) * n_terms <= _TOGETHER:
            groups[-1].append(subset)
            known = union
        else:
            groups.append([subset])
            known = set(subset.tolist())
    return groups


def _climbed(
    density_of: Callable[[np.ndarray], Density], weights: np.ndarray, first: Normal
) -> np.ndarray:
    """Return the ends of climbs by weights of their own, but for those without a density."""

    def negative(z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return negative_at(density_of(weights[which]), first, z)

    starts = np.zeros((len(weights), len(first.location)))
    ends = climb_together(negative, starts, most_steps=_STEPS, joins=False)
    found: np.ndarray = first.at(ends.points[np.isfinite(ends.values)])
    return found


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
