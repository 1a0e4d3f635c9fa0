"""Whether draws are those of an approximate posterior, and its missing mass beyond them."""

import logging
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.lines import Lines, Probes, Profile, missed
from pymc_coresets.diagnostics.posterior_draws import entry_name
from pymc_coresets.diagnostics.separate_parts import (
    Lack,
    lack,
    parts_beyond_dips,
    shares_of_lines,
)
from pymc_coresets.diagnostics.stein import (
    Deviation,
    deviation,
    deviation_by_values,
    in_halves,
    size_by_values,
)
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.approximate_posterior import ApproximatePosterior
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.symmetry.local_modes import NOTICEABLE

_THROUGH = 100  #: Draws that lines beyond them go through.
_PRODUCTS = 5e8  #: Products for which gradients take about a second.
#: Most and fewest lines along which the mass beyond a dip is measured, and points on each of them.
_MOST_LINES, _FEWEST_LINES, _POINTS = 30, 8, 110
#: Standard errors by which values of the density must confirm what its gradients tell.
_CONFIRMED = 4.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Probing:
    """Lines through some draws of an approximate posterior, on which all rows are evaluated.

    The middle and both edges of each line are evaluated in the same pass over the data as the first
    draws, or alone.

    Parameters
    ----------
    found : ApproximatePosterior
    lines : Lines
        One along each coordinate; none if no variable is continuous, or one is constant.
    names : list of str
        Names of the coordinates.
    through : callable
        Returns lines through some number of draws, evenly spread, along each of some coordinates.
    constant : str
        A coordinate that is the same in all draws; empty if there is none.
    """

    found: ApproximatePosterior
    lines: Lines
    names: list[str]
    through: Callable[[np.ndarray, int], Lines]
    constant: str
    _ratios: Floats = field(default_factory=lambda: np.zeros(0), init=False)

    @classmethod
    def of(cls, found: ApproximatePosterior, draws: Draws, *, most: int = sys.maxsize) -> "Probing":
        """Take lines through draws, `most` at most.

        Raises
        ------
        InvalidDataError
            If most draws are on the boundary of the support, or any is outside it.
        """
        space = found.space
        with np.errstate(all="ignore"):
            points = space.free(draws)
        finite = np.isfinite(points)
        inside = finite.all(axis=1)
        if 2 * inside.sum() < len(points):
            finite_points(space, draws)  # its error names the variable
        columns = _columns(space, sum(part.n_terms for part in found.parts))[:most]
        columns, points = columns[finite[:, columns].all(axis=0)], points[inside]
        impossible = np.isneginf(found.replacement.log_density(points))
        if impossible.any():
            raise InvalidDataError(
                f"{impossible.mean():.1%} of the draws have zero density under the approximate "
                "posterior: they are draws of another model, or were rounded. Sample again."
            )
        names = coordinate_names(space)
        constant = np.flatnonzero(space.continuous & (np.ptp(points, axis=0) == 0))
        columns = columns[:0] if constant.size else columns
        modes = 0 if found.modes is None else found.modes.nearest(draws.values)[inside]

        def spread(n_draws: int) -> np.ndarray:
            which = np.linspace(0, len(points) - 1, min(n_draws, len(points)))
            return which.round().astype(np.int64)

        def through(columns: np.ndarray, n_lines: int) -> Lines:
            which = np.tile(spread(n_lines), len(columns))
            columns = np.repeat(columns, len(which) // len(columns))
            return Lines.through(points, which, columns, ~space.continuous, modes)

        which = spread(_THROUGH)
        of_each = which[np.arange(len(columns)) % len(which)]
        lines = Lines.through(points, of_each, columns, ~space.continuous, modes)
        return cls(found, lines, names, through, "".join(names[c] for c in constant[:1]))

    @cached_property
    def profile(self) -> Profile:
        """The approximate posterior's density along the lines."""
        return Profile.of(self.lines, self.found.replacement.log_density)

    @property
    def needs_rows(self) -> bool:
        """Whether all rows are still to be evaluated on lines."""
        return bool(len(self.lines)) and not (len(self._ratios) or self.found.has_all_rows())

    def log_densities(self, idata: xr.DataTree) -> tuple[Floats, Floats]:
        """Return log-ratios of draws (n_draws,); the first call also evaluates the lines."""
        if not self.needs_rows:
            return self.found.log_densities(idata)
        ratios = self.looked_along_lines(Draws.of(idata, self.found.free))
        return ratios, np.zeros(len(ratios))

    def looked_along_lines(self, *draws: Draws) -> Floats:
        """Evaluate the lines, and some draws in the same pass: return their log-ratios."""
        positions = self.profile.ends
        points = self.lines.points(positions).reshape(-1, self.lines.origins.shape[1])
        both = self.evaluated(points, *draws)
        ratios, on_lines = np.split(both, [len(both) - len(points)])
        self._ratios = np.where(np.isfinite(on_lines), on_lines, -np.inf)
        return ratios

    def evaluated(self, points: Floats, *draws: Draws) -> Floats:
        """Return log-ratios at draws, and then at points; minus infinity outside the support."""
        at = self.found.space.constrain(points)
        inside = at.are_finite
        every = [*draws, at.take(inside)]
        n_first = sum(some.n_draws for some in draws)
        full, own = self.found.log_densities_at(
            Draws({n: np.concatenate([some.values[n] for some in every]) for n in at.values})
        )
        with np.errstate(invalid="ignore"):
            ratios = full - own
        outside = np.full(len(points), -np.inf)
        outside[inside] = ratios[n_first:]
        return np.concatenate([ratios[:n_first], outside])

    def result(self) -> Probes:
        """Return the results; evaluate more if all rows may have mass beyond the draws."""
        if not len(self._ratios):  # no lines, or the approximate posterior is that of all rows
            return Probes(constant=self.constant)
        found, n_points, largest = missed(
            self.lines,
            self.profile,
            self.found.replacement.log_density,
            self.evaluated,
            self._ratios.reshape(len(self.lines), -1),
            tolerance=self.found.tolerance,
        )
        worst = int(found.argmax())
        return Probes(
            outside=float(found.sum()),
            most=float(found[worst]),
            where=self.names[self.lines.columns[worst]] if found[worst] else "",
            n_points=n_points,
            largest=largest,
        )

    def with_unseen(self, probes: Probes, draws: Draws, n_chains: int = 1) -> Probes:
        """Add what draws, chain by chain, lack of the approximate posterior's mass beyond dips.

        Its own density tells, and that only for coordinates on whose line there is a dip.
        """
        found = self._lack(draws, n_chains)
        if not found.is_noticeable(NOTICEABLE):
            return probes
        return replace(probes, unseen=found.share, unseen_where=self.names[found.column])

    def _lack(self, draws: Draws, n_chains: int) -> Lack:
        parts = parts_beyond_dips(self.lines, self.profile) if len(self.lines) else []
        if not parts:
            return Lack()
        with np.errstate(all="ignore"):
            points = self.found.space.free(draws)
        inside = np.isfinite(points).all(axis=1)
        if not inside.all():  # some are on the border of the support
            points, n_chains = points[inside], 1
        chains = in_halves(points.reshape(n_chains, -1, points.shape[1]))
        # About a second: with many rows, fewer lines for each part, and only the largest parts.
        most = int(_PRODUCTS / (_POINTS * max(self.found.replacement.n_products, 1.0)))
        parts = parts[: max(most // _FEWEST_LINES, 1)]
        n_lines = int(np.clip(most // len(parts), _FEWEST_LINES, _MOST_LINES))
        lines = self.through(np.array([part.column for part in parts]), n_lines)
        n_each = len(lines) // len(parts)
        of_each = [part for part in parts for _ in range(n_each)]
        shares = shares_of_lines(lines, self.found.replacement.log_density, of_each)
        return lack(chains, parts, shares.reshape(len(parts), n_each))


def probed(found: ApproximatePosterior, draws: Draws) -> Probes:
    """Compare independent draws of an approximate posterior with it, and look beyond them.

    All rows are evaluated on the lines alone: of the draws, what they say is known.
    """
    probing = Probing.of(found, draws)
    if probing.needs_rows:
        probing.looked_along_lines()
    return compared(probing.with_unseen(probing.result(), draws), found, draws)


def compared(
    probes: Probes, found: ApproximatePosterior, draws: Draws, n_chains: int = 1
) -> Probes:
    """Add whether draws are those of the approximate posterior, by its gradients there.

    A deviation by gradients must be confirmed by values: a density may have jumps, and some
    operations have no gradient, or a wrong one.

    Parameters
    ----------
    probes : Probes
    found : ApproximatePosterior
    draws : Draws
        Chain by chain.
    n_chains : int, default 1

    References
    ----------
    See `pymc_coresets.diagnostics.stein.deviation`.
    """
    if probes.constant:
        return probes
    own = _deviation(found, draws, n_chains)
    return replace(probes, misfit=own.size, misfit_limit=own.limit, misfit_where=own.where)


def _deviation(found: ApproximatePosterior, draws: Draws, n_chains: int) -> Deviation:
    space, n_each = found.space, draws.n_draws // n_chains
    # Gradients at a few thousand draws take less than a second.
    most = int(np.clip(_PRODUCTS / max(found.replacement.n_products, 1.0), 400, 8_000))
    thin = max(math.ceil(draws.n_draws / most), 1)
    numbers = np.arange(n_chains * n_each).reshape(n_chains, n_each)[:, n_each % thin :: thin]
    some = draws.take(numbers.ravel())
    with np.errstate(all="ignore"):
        points = space.free(some)
    inside = np.isfinite(points).all(axis=1)
    if not inside.all():  # some are on the border of the support
        points, n_chains = points[inside], 1
    columns = np.flatnonzero(space.continuous & (np.ptp(points, axis=0) > 0))
    if not columns.size:
        return Deviation()
    names = coordinate_names(space)
    names = [names[c] for c in columns]
    # The same for all draws: one for those of each mode would jump where modes meet.
    middle = np.median(points[:, columns], axis=0)
    own = in_halves(points[:, columns].reshape(n_chains, -1, len(columns)))
    points = points[: own.shape[0] * own.shape[1]]

    def log_density(x: Floats) -> Floats:
        whole = points.copy()
        whole[:, columns] = x
        return found.replacement.log_density(whole)

    for scores in _scores(found, points):
        by_slopes = deviation(own - middle, scores[:, columns].reshape(own.shape), names)
        if by_slopes.move is None or not by_slopes.is_noticeable:
            return by_slopes
        if size_by_values(own, middle, log_density, by_slopes.move) > _CONFIRMED:
            return by_slopes
    return deviation_by_values(own, middle, log_density, names)


def _scores(found: ApproximatePosterior, points: Floats) -> Iterator[Floats]:
    """Yield the gradients at points (n_points, n_dims), if there are any."""
    try:
        with np.errstate(all="ignore"):
            scores = np.asarray(found.replacement.slopes(points)[1])
    except (NotImplementedError, UnsupportedModelError) as error:
        _log.info("The draws are compared by values of the density alone: %s", error)
        return
    if np.isfinite(scores).all():
        yield scores


def finite_points(space: Unconstrained, draws: Draws) -> Floats:
    """Return draws on the unconstrained scale, (n_draws, n_dims).

    Raises
    ------
    InvalidDataError
        If they are not finite on that scale.
    """
    with np.errstate(all="ignore"):
        points = space.free(draws)
    outside = np.argwhere(~np.isfinite(points))
    if outside.size:
        draw, column = outside[0]
        name = next(n for n, own in space.columns.items() if column in own)
        raise InvalidDataError(
            f"Draw {draw} lies outside the support, or on its boundary, where {name!r} is not "
            "finite: the draws are of another model, or were rounded."
        )
    return points


def coordinate_names(space: Unconstrained) -> list[str]:
    """Name the coordinates of an unconstrained space by their variables and entries.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a"), pm.HalfNormal("b", shape=2)
    >>> coordinate_names(Unconstrained(model))
    ['a', 'b[0]', 'b[1]']
    """
    names = [""] * space.n_dims
    for name, columns in space.columns.items():
        for index, column in np.ndenumerate(columns):
            names[column] = entry_name(name, index)
    return names


def _columns(space: Unconstrained, n_terms: int) -> np.ndarray:
    """Return the coordinates along which all rows are evaluated: the smallest variables first.

    Scales, shapes and degrees of freedom are scalars, and tend to have non-normal tails.
    """
    # Three points of each line take 1.2e7 evaluations: a fifth of 400 draws of a million rows.
    most = max(int(1.2e7 // (3 * max(n_terms, 1))), 26)
    by_size = sorted((np.ravel(own) for own in space.columns.values()), key=len)
    spread = [own[np.argsort(np.arange(len(own)) * 0.618 % 1, kind="stable")] for own in by_size]
    columns: np.ndarray = np.concatenate(spread)
    continuous: np.ndarray = columns[space.continuous[columns]]
    return continuous[:most]
