"""Parts of a posterior beyond dips of its density along lines: whether draws hold their mass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.lines import Lines, OfPoints, Profile

#: Depth in nats from which a dip separates two parts.
_DEPTH = 1.5
#: Nats by which the top of a part may be below that of the line.
_FALL = 15.0
#: Share of the mass on a line above which a part is looked at.
_LEAST = 1e-4
#: Standard errors beyond which draws lack a part.
_SURE = 3.0
#: Number of parts that are looked at, the largest first.
_MOST = 40
#: Batches of each chain, whose shares of draws tell how slowly a chain moves between parts.
_BATCHES = 5


@dataclass(frozen=True)
class Part:
    """The part of the space on one side of a value of one coordinate.

    Parameters
    ----------
    column : int
        The coordinate.
    bound : float
    sign : {-1, 1}
        Whether the part is below the bound or above it.
    """

    column: int
    bound: float
    sign: int

    def holds(self, x: Floats) -> np.ndarray:
        """Whether points (..., n_dims) are in it."""
        inside: np.ndarray = self.sign * (x[..., self.column] - self.bound) > 0
        return inside


def parts_beyond_dips(lines: Lines, profile: Profile) -> list[Part]:
    """Return what is beyond the deepest dip on either side of the top of each line.

    Parameters
    ----------
    lines : Lines
    profile : Profile
        Of a density along them.

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(size=(1_000, 1))
    >>> lines = Lines.through(x, np.array([0]), np.array([0]))
    >>> def of_two(x):
    ...     return np.logaddexp(-0.5 * x[:, 0] ** 2, -0.5 * (x[:, 0] - 8) ** 2 - 4)
    >>> [part] = parts_beyond_dips(lines, Profile.of(lines, of_two))
    >>> bool(3 < part.bound < 5), part.sign
    (True, 1)
    """
    found, origins = [], lines.origins[np.arange(len(lines)), lines.columns]
    for sign in (-1, 1):
        t, logs = profile.t[:, ::sign], profile.logs[:, ::sign]
        outside = np.arange(t.shape[1]) > logs.argmax(axis=1)[:, None]
        rises = np.maximum.accumulate(logs[:, ::-1], axis=1)[:, ::-1]
        high = rises > logs.max(axis=1)[:, None] - _FALL
        with np.errstate(invalid="ignore"):
            depths = np.where(outside & high, rises - logs, -np.inf)
        dips = depths.argmax(axis=1)
        masses = profile.masses[:, ::sign]
        beyond = np.arange(masses.shape[1]) >= dips[:, None]
        shares = (masses * beyond).sum(axis=1) / masses.sum(axis=1)
        for i in np.flatnonzero((depths.max(axis=1) > _DEPTH) & (shares > _LEAST)):
            bound = float(origins[i] + t[i, dips[i]])
            found.append((float(shares[i]), Part(int(lines.columns[i]), bound, sign)))
    found.sort(key=lambda each: -each[0])
    return [part for _, part in found[:_MOST]]


def shares_of_lines(lines: Lines, log_density: OfPoints, parts: Sequence[Part]) -> Floats:
    """Return the share of the mass on each line that its part holds, (n_lines,).

    Averaged over lines through draws of a density, it is the mass of the part: that of the
    coordinate given all else.

    Parameters
    ----------
    lines : Lines
    log_density : callable
    parts : sequence of Part
        One for each line.
    """
    signs = np.array([part.sign for part in parts])
    origins = lines.origins[np.arange(len(lines)), lines.columns]
    bounds = (np.array([part.bound for part in parts]) - origins)[:, None]
    profile = Profile.of(lines, log_density)
    profile = profile.with_more(bounds, lines.values(log_density, bounds))
    for depth in (20.0, 3.0):
        # Between the bound and where the density has fallen beyond the top of the part.
        ahead = signs[:, None] * (profile.t - bounds) >= 0
        own = np.where(ahead, profile.logs, -np.inf)
        t = Profile(profile.t, own).within(depth)
        t = np.where(signs[:, None] * (t - bounds) > 0, t, bounds)
        profile = profile.with_more(t, lines.values(log_density, t))
    middles = (profile.t[:, 1:] + profile.t[:, :-1]) / 2
    shares: Floats = (profile.masses * (signs[:, None] * (middles - bounds) > 0)).sum(axis=1)
    return shares / profile.masses.sum(axis=1)


@dataclass(frozen=True)
class Lack:
    """What draws lack of the mass of a density beyond dips.

    Parameters
    ----------
    share : float
        Of the mass of the density, over all parts.
    error : float
        Its Monte Carlo standard error.
    column : int
        The coordinate along which they lack most; -1 if there are no parts.
    """

    share: float = 0.0
    error: float = 0.0
    column: int = -1

    def is_noticeable(self, least: float) -> bool:
        """Whether it exceeds a share of the mass, and what chance explains."""
        return self.share > max(least, _SURE * self.error)


def lack(draws: Floats, parts: Sequence[Part], shares: Floats) -> Lack:
    """Compare the shares of draws in some parts with those of lines through draws.

    Parameters
    ----------
    draws : ndarray of shape (n_chains, n_draws, n_dims)
    parts : sequence of Part
    shares : ndarray of shape (n_parts, n_lines)
        See `shares_of_lines`.

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(size=(4, 1_000, 1))
    >>> found = lack(x, [Part(0, 5.0, 1)], np.full((1, 30), 0.03))
    >>> found.share, found.is_noticeable(0.01)
    (0.03, True)
    """
    if not parts:
        return Lack()
    found = [_lack_of(draws, part, own) for part, own in zip(parts, shares, strict=True)]
    missing, variances = np.array(found).T
    worst = int(missing.argmax())
    one, every = (
        Lack(float(share), math.sqrt(variance), parts[worst].column)
        for share, variance in [
            (missing[worst], variances[worst]),
            (missing.sum(), variances.sum()),
        ]
    )
    return max(one, every, key=lambda each: each.share if each.is_noticeable(0.0) else 0.0)


def _lack_of(draws: Floats, part: Part, shares: Floats) -> tuple[float, float]:
    """Return by how much the share of draws in a part is too small, and its variance.

    Draws that never move between parts say nothing about how far their share is off by chance: at
    least, it is off as much as that of as many independent draws as they are worth.
    """
    n_chains, n_draws = draws.shape[:2]
    inside, expected = part.holds(draws).astype(float), float(shares.mean())
    worth = min(float(array_stats.ess(draws[..., part.column])), float(n_chains * n_draws))
    batches = inside[:, n_draws % _BATCHES :].reshape(n_chains * _BATCHES, -1).mean(axis=1)
    by_chance = max(expected * (1 - expected) / max(worth, 1.0), batches.var(ddof=1) / len(batches))
    of_lines = shares.var(ddof=1) / min(len(shares), max(worth, 1.0))
    return expected - float(inside.mean()), float(by_chance + of_lines)
