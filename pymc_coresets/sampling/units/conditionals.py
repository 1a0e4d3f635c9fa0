"""Draws of the variables of units, given draws of the shared variables and all rows of each unit.

One number per unit is drawn by the inverse of its distribution function.  At some draws of the
shared variables theta, the density is tabulated along the axis of the unit; its quantiles are
regressed on theta, and other draws of theta take theirs from the regression.  How far that is off
is measured at draws that the regression has not seen; units where it is off take a table at each
draw.  Units with equal data have tables and regressions in common.  Several numbers per unit are
drawn by independence Metropolis-Hastings.  Their proposals come from around the mode, which is
regressed on theta, too.  Where chains need many of them, some come from around all chains, so that
lobes that a few have found are within reach of all.  One number of several modes is drawn like
that, too, with proposals from a histogram through all of them: the average of its densities at some
draws of theta.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_coresets.numerics import as_slice, rows_at_once
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.units.factors import GroupingFactor
from pymc_coresets.reading.units.integral import not_derived
from pymc_coresets.reading.units.nodes import Nodes
from pymc_coresets.reading.units.observations_of_units import UnitModel, as_units
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rows.memory import in_threads, numbered_units
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.units.chains import LocalChains
from pymc_coresets.sampling.units.frames import Frames
from pymc_coresets.sampling.units.histograms import NO_HISTOGRAMS, Histograms, places_around
from pymc_coresets.sampling.units.log_linear import (
    are_resolved,
    places_for,
    probabilities,
    quantiles,
)
from pymc_coresets.sampling.units.regressions import (
    Regression,
    linear_and_quadratic,
    polynomials,
    spread,
)

#: Where a density is first looked at, along an axis on which tails that fall with a power of the
#: distance fall exponentially.
_HALF = np.array([0.4, 0.8, 1.2, 1.7, 2.3, 3, 4, 5, 6.5, 8, 10, 13, 17, 21, 27])
_COARSE = np.concatenate([-_HALF[::-1], [0.0], _HALF])[:, None]
#: Number of places of a table, with those that a step of Newton's costs; and of draws of theta at
#: which places are chosen.
_PLACES, _AT_FIRST = 44, 8
#: Distance from the mode, in widths, up to which places and distances are much the same.
_LINEAR = 3.0
#: Normal scores at which quantiles are regressed; and the number of coefficients of the polynomial
#: in the normal score that stands for all quantiles.
_SCORES, _N_POWERS, _FARTHEST = np.linspace(-4.75, 4.75, 25), 9, 5.2
#: Acceptable error of a normal score between -3.2 and 3.2: of draws of theta on average, and at
#: most.  The quantiles of 4,000 independent draws have one of 0.02 in the middle.
_ERROR, _WORST = 0.02, 0.2
#: Number of proposals in the first round and of those after it at most; and of all until proposals
#: are widened, until they are widened again, and from then on.
_FIRST, _ROUND, _PROPOSALS = 3, 32, (35, 67, 378)
#: Numbers of a block of units' rows at all places and draws, which fits into a cache.
_BLOCK = 2**19


class LocalDraws(NamedTuple):
    """Draws (n_draws, n_units, q), unconstrained; whether proposals were enough, (n_units,)."""

    values: np.ndarray
    enough: np.ndarray


@dataclass(frozen=True, eq=False)
class Conditionals:
    """The distributions of units' variables at draws of the shared variables.

    Parameters
    ----------
    loglik : LogLikelihood
        Of units.
    draws : Draws
        Of the shared variables.
    """

    loglik: LogLikelihood
    draws: Draws

    def drawn(
        self,
        rows: Rows,
        rng: np.random.Generator,
        show: Callable[[int], None] = lambda _: None,
    ) -> LocalDraws:
        """Draw the variables of units that have rows.

        Parameters
        ----------
        rows : Rows
            Units.
        rng : numpy.random.Generator
        show : callable, optional
            Is told the number of units that have been drawn, again and again.
        """
        kinds = self._kinds(rows)
        order = np.argsort(kinds, kind="stable")  # equal units follow one another
        # Arrays of such a size, of which there are a few, fit into memory for each thread.
        most = rows_at_once(4 * _AT_ONCE * _PLACES)
        pieces = list(_pieces(rows.take(order), most, self.n_dims**2))
        found = LocalDraws(
            np.empty((self.draws.n_draws, len(rows), self.n_dims)), np.ones(len(rows), dtype=bool)
        )
        streams, ends = rng.spawn(len(pieces)), np.cumsum([len(piece) for piece in pieces])
        which = np.split(order, ends[:-1])
        parts = zip(pieces, (kinds[some] for some in which), streams, strict=True)
        for some, drawn in zip(which, in_threads(self._of_piece, parts), strict=True):
            found.values[:, as_slice(some)], found.enough[some] = drawn
            show(len(some))
        return found

    def _kinds(self, rows: Rows) -> np.ndarray:
        """Number the units whose data differ, (n_units,), where equal ones are drawn together."""
        if not self._by_tables:
            return np.arange(len(rows))
        own = not_derived(self.loglik.observations.rows, rows.arrays)
        return numbered_units(rows.unit_rows, own, len(rows))[0]

    def _of_piece(self, piece: tuple[Rows, np.ndarray, np.random.Generator]) -> LocalDraws:
        rows, kinds, rng = piece
        if self._factor.values:
            return LocalDraws(self._enumerated(rows, rng), np.ones(len(rows), dtype=bool))
        if not self._by_tables:
            return self._by_proposals(rows, rng)
        _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
        return self._by_quantiles(rows.take(first), kind, rng)

    @property
    def _by_tables(self) -> bool:
        """Whether each unit has one continuous variable, with nodes around one mode."""
        return not self._factor.values and self.n_dims == 1 and self._n_modes == 1

    @property
    def n_dims(self) -> int:
        """Number of variables of a unit, q."""
        return int(self._factor.n_dims)

    @cached_property
    def _functions(self) -> Functions:
        """What evaluates the densities at all draws, which have a few places each."""
        n_unit_rows = len(self.loglik.observations.unit_rows.positions)
        n_numbers = _PLACES * n_unit_rows * self.draws.n_draws
        return self.loglik.functions.for_numbers(n_numbers)

    @property
    def _n_modes(self) -> int:
        """Number of modes of a unit, around each of which there are nodes."""
        return self._source.n_modes

    @property
    def _factor(self) -> GroupingFactor:
        return self._source.factor

    @property
    def _source(self) -> UnitModel:
        return as_units(self.loglik.observations).source

    # -- densities -----------------------------------------------------------------------------

    def _blocks(self, rows: Rows, which: np.ndarray, n_places: int) -> Iterator[np.ndarray]:
        """Cut numbers of draws, so that the rows of the units fit into a cache at all places."""
        yield from _cut(which, n_places * max(rows.n_unit_rows, 1))

    def _densities(
        self, rows: Rows, which: np.ndarray
    ) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return a function of standardised places, (n_draws, n_places, n_units, q).

        Of values of discrete variables, without draws.  It returns the variables there, of the same
        shape, and the log-densities of the units.
        """
        kernel = self._functions.unit_places
        evaluate = kernel.program.given(*self.loglik.given(self.draws.take(which)))
        arrays = kernel.arrays(rows)

        def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            z, logs = evaluate(np.ascontiguousarray(x), *arrays)
            return np.moveaxis(z, 1, -1), np.where(np.isfinite(logs), logs, -np.inf)

        return at

    def _enumerated(self, rows: Rows, rng: np.random.Generator) -> np.ndarray:
        """Draw discrete variables in proportion to the densities of all their values."""
        every = Nodes.of_values(self._factor.values).points
        values = every[:, None]
        found = np.empty((self.draws.n_draws, len(rows), self.n_dims))
        if not self._source.density.has_common_values:
            values = np.broadcast_to(values, (len(every), len(rows), self.n_dims))
        for which in self._blocks(rows, np.arange(self.draws.n_draws), len(every)):
            _, logs = self._densities(rows, which)(values)
            below = np.exp(logs - logs.max(axis=1, keepdims=True))
            for before, after in pairwise(range(len(every))):
                below[:, after] += below[:, before]
            level = rng.random((len(which), 1, len(rows))) * below[:, -1:]
            found[which] = every[(below[:, :-1] <= level).sum(axis=1)]
        return found

    # -- one number: distribution functions ----------------------------------------------------

    def _by_quantiles(self, rows: Rows, kind: np.ndarray, rng: np.random.Generator) -> LocalDraws:
        """Draw the variables of units of different kinds, `rows`; `kind` is that of each unit."""
        n_draws, n_units = self.draws.n_draws, len(kind)
        scores = rng.standard_normal((n_draws, n_units))
        np.clip(scores, -_FARTHEST, _FARTHEST, out=scores)
        found = LocalDraws(np.empty((n_draws, n_units, 1)), np.ones(n_units, dtype=bool))
        every, left = np.arange(n_draws), np.arange(len(rows))
        places = self._places(rows, spread(n_draws, _AT_FIRST))
        for design in self._designs:  # of which all leave out the same draws
            if not left.size:
                break
            tables = self._tables(rows.take(left), places[:, left], design.which)
            fitted, is_near = _regressed(design, tables)
            is_near &= tables.resolved.all(axis=0)
            units, own = _of_kinds(kind, left[is_near])
            if units.size:
                drawn = _at_all(design, fitted[:, :, is_near], own, scores[:, units])
                found.values[:, units, 0] = drawn
            left = left[~is_near]
        resolved = np.ones((n_draws, n_units), dtype=bool)
        outer = self._designs[0].outer if self._designs else every[:0]
        for kinds, draws in ((left, every), (np.setdiff1d(np.arange(len(rows)), left), outer)):
            some, (units, own) = rows.take(kinds), _of_kinds(kind, kinds)
            n_numbers = max(some.n_unit_rows, len(units)) * _PLACES
            for which in _cut(draws, n_numbers) if units.size else ():
                tables, at = self._tables(some, places[:, kinds], which), np.ix_(which, units)
                found.values[(*at, 0)] = tables.of_units(own).drawn(scores[at])
                resolved[at] = tables.resolved[:, own]
        for draw in every[~resolved.all(axis=1)]:  # far from the others: places of its own
            bad, which = np.flatnonzero(~resolved[draw]), every[draw : draw + 1]
            own_rows = rows.take(kind[bad])
            tables = self._tables(own_rows, self._places(own_rows, which), which)
            found.values[draw, bad, 0] = tables.drawn(scores[which[:, None], bad])[0]
            found.enough[bad] &= tables.resolved[0]
        return found

    def _places(self, rows: Rows, which: np.ndarray) -> np.ndarray:
        """Return places of each unit's tables, (n_places, n_units), for some draws of theta."""
        coarse = np.repeat(_COARSE, len(rows), axis=1)
        return places_for(coarse, self._tables(rows, coarse, which).logs)

    def _tables(self, rows: Rows, places: np.ndarray, which: np.ndarray) -> "_Tables":
        """Tabulate densities at places (n_places, n_units) and some draws of theta."""
        x, parts = _standardised(places), []
        for some in self._blocks(rows, which, len(places)):
            shape = (len(some), *places.shape, 1)
            z, logs = self._densities(rows, some)(np.broadcast_to(x[..., None], shape))
            parts.append((z[:, 0, :, 0], z[:, -1, :, 0], logs))
        first, last, logs = (np.concatenate(part) for part in zip(*parts, strict=True))
        width = (last - first) / (x[-1] - x[0])
        logs = logs + np.log(np.cosh(places / _LINEAR))
        return _Tables(first - width * x[0], width, places, logs)

    @cached_property
    def _designs(self) -> list[Regression]:
        """Regressions on the shared variables, linear and quadratic, as far as they pay."""
        return linear_and_quadratic(self.loglik.observations.space.free(self.draws))

    # -- several numbers: proposals --------------------------------------------------------------

    def _by_proposals(self, rows: Rows, rng: np.random.Generator) -> LocalDraws:
        """Draw by independence Metropolis-Hastings.

        Proposals are from Student t distributions around the mode and with the curvature of each
        unit; around one of several modes at random.  Those for one number of several modes are
        mostly from histograms.  Chains that these leave too short begin again, with wider ones.
        """
        every, left = np.arange(self.draws.n_draws), np.arange(len(rows))
        frames, regressed = self._frames(rows)
        histograms = self._histograms(rows, frames) if self.n_dims == 1 else NO_HISTOGRAMS
        found = LocalDraws(np.empty((len(every), len(rows), self.n_dims)), np.ones(len(rows), bool))
        for n_proposals in _PROPOSALS:
            own = rows.take(left)
            chains = self._chains(own, frames, regressed, histograms, n_proposals, rng)
            found.values[:, left] = np.moveaxis(chains.values, 0, -1)
            found.enough[left] = chains.are_reliable
            if not (some := np.flatnonzero(chains.left)).size:
                break
            # What chains of some draws have found beside the mode, all draws are to reach.
            left, regressed = left[some], np.zeros(len(some), dtype=bool)
            frames = frames.take(every, some).widened(chains.values[:, :, some])
            histograms = histograms.take(some)
        return found

    def _chains(
        self,
        rows: Rows,
        frames: Frames,
        regressed: np.ndarray,
        histograms: Histograms,
        most: int,
        rng: np.random.Generator,
    ) -> LocalChains:
        """Move chains in rounds, until weights say it is enough, or `most` have been proposed."""
        n_draws, n_units = self.draws.n_draws, len(rows)
        chains = LocalChains(self.n_dims, n_draws, n_units)
        left, n_proposals, done = np.arange(n_units), _FIRST, 0
        while left.size and done < most:
            some, weights = rows.take(left), []
            own = histograms.take(left)
            for which in self._blocks(some, np.arange(n_draws), n_proposals):
                z, log_density = frames.take(which, left).proposed(n_proposals, rng, own)
                weights.append(self._log_densities(some, which)(z) - log_density)
                chains.move(which, left, z, weights[-1], rng)
            chains.judge(left, np.concatenate(weights))
            done += n_proposals
            left = left[chains.left[left] > 0]
            if (lost := left[chains.lost[left] & regressed[left]]).size:
                every = np.arange(n_draws)
                frames.replace(every, lost, self._frames_at(rows.take(lost), every))
                chains.restart(lost)
                regressed[lost] = False
            n_proposals = int(chains.left[left].min(initial=_ROUND))
        return chains

    def _histograms(self, rows: Rows, frames: Frames) -> Histograms:
        """Tabulate the densities of units through all modes, at draws all over the posterior."""
        which = spread(self.draws.n_draws, _AT_FIRST)
        known = frames.take(which, np.arange(len(rows)))
        places, parts = places_around(known.middle[0], known.root[0, 0]), []
        for some in self._blocks(rows, which, len(places)):
            z = np.ascontiguousarray(np.broadcast_to(places, (1, len(some), *places.shape)))
            parts.append(self._log_densities(rows, some)(z))
        return Histograms.of_tables(places, np.concatenate(parts))

    def _frames(self, rows: Rows) -> tuple[Frames, np.ndarray]:
        """Return where the units lie at all draws, and whether that is by regression, (n_units,).

        It is found at each draw where a regression is off, and at draws for which none is meant.
        How many proposals are needed depends on how well it is known.
        """
        every, units = np.arange(self.draws.n_draws), np.arange(len(rows))
        if not self._designs:
            return self._frames_at(rows, every), np.zeros(len(rows), dtype=bool)
        design, q = self._designs[0], self.n_dims
        known = self._frames_at(rows, design.which).numbers
        numbers = design.at(design.coefficients(known[: design.n_fitted]), every)
        found = Frames.of_numbers(numbers, q)
        judged = Frames.of_numbers(numbers[design.judging], q)
        near = judged.are_near(Frames.of_numbers(known[design.n_fitted :], q))
        for some, which in ((units[~near], every), (units[near], design.outer)):
            if some.size:
                found.replace(which, some, self._frames_at(rows.take(some), which))
        return found, near

    def _frames_at(self, rows: Rows, which: np.ndarray) -> Frames:
        """Find where the units lie at some draws, by Newton's steps."""
        q, parts = self.n_dims, []
        x = np.concatenate([np.zeros((1, q)), np.eye(q)])[:, None]
        kernel = self._functions.unit_places
        arrays = kernel.arrays(rows)
        for some in self._blocks(rows, which, self._n_modes * len(x)):
            shape = (len(some), len(x), len(rows), q)
            evaluate = kernel.program.given(*self.loglik.given(self.draws.take(some)))
            z, logs = evaluate(np.ascontiguousarray(np.broadcast_to(x, shape)), *arrays)
            places = (self._n_modes, len(x), len(rows))
            parts.append((z.reshape(len(some), q, *places), logs.reshape(len(some), *places)))
        return Frames.of_places(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _log_densities(self, rows: Rows, which: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of the units' variables, (q, n_draws, n_places, n_units)."""
        kernel = self._functions.unit_densities
        evaluate = kernel.program.given(*self.loglik.given(self.draws.take(which)))
        arrays = kernel.arrays(rows)

        def at(z: np.ndarray) -> np.ndarray:
            [logs] = evaluate(*z, *arrays)
            return np.where(np.isfinite(logs), logs, -np.inf)

        return at


#: Draws of theta at which tables are made together.
_AT_ONCE = 48


class _Tables(NamedTuple):
    """Densities of one number of each unit.

    Modes and widths, (n_draws, n_units), places (n_places, n_units), see `_standardised`, and
    log-densities of these, (n_draws, n_places, n_units).
    """

    middle: np.ndarray
    width: np.ndarray
    places: np.ndarray
    logs: np.ndarray

    @property
    def resolved(self) -> np.ndarray:
        """Whether places reach as far as a density, and are dense enough, (n_draws, n_units)."""
        found: np.ndarray = are_resolved(self.logs)
        return found

    def drawn(self, scores: np.ndarray) -> np.ndarray:
        """Return the quantiles of normal scores (n_draws, n_units)."""
        return self.quantiles(ndtr(scores)[:, None])[:, 0]

    def quantiles(self, uniform: np.ndarray) -> np.ndarray:
        """Return the quantiles of probabilities (n_draws, n_quantiles, n_units)."""
        places = quantiles(self.places, self.logs, np.ascontiguousarray(uniform))
        found: np.ndarray = self.middle[:, None] + self.width[:, None] * _standardised(places)
        return found

    def take(self, draws: slice) -> "_Tables":
        return _Tables(self.middle[draws], self.width[draws], self.places, self.logs[draws])

    def of_units(self, which: np.ndarray) -> "_Tables":
        """Return those of units, each by the number of its own among these."""
        each = (self.middle, self.width, self.places, self.logs)
        return _Tables(*(a[..., which] for a in each))

    def scores(self, z: np.ndarray) -> np.ndarray:
        """Return the normal scores of values (n_draws, n_values, n_units)."""
        x = (z - self.middle[:, None]) / self.width[:, None]
        places = _LINEAR * np.arcsinh(x / _LINEAR)
        below = probabilities(self.places, self.logs, places)
        found: np.ndarray = ndtri(below.clip(1e-15, 1 - 1e-15))
        return found


def _regressed(design: Regression, tables: _Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (n_features, n_powers, n_units), and whether they serve, (n_units,).

    A quantile is a polynomial in its normal score, whose coefficients are regressed.
    """
    n_fitted, n_units = design.n_fitted, tables.middle.shape[1]
    shape = (n_fitted, len(_SCORES), n_units)
    exact = tables.take(slice(n_fitted)).quantiles(np.broadcast_to(ndtr(_SCORES)[:, None], shape))
    to_powers = _least_squares(_powers(_SCORES), np.exp(-np.square(_SCORES) / 16))
    powers = to_powers @ exact.reshape(n_fitted, len(_SCORES), n_units)
    fitted = design.coefficients(np.nan_to_num(powers))
    inner = _SCORES[np.abs(_SCORES) < 3.3]
    at = design.at(fitted, design.judging)
    errors = tables.take(slice(n_fitted, None)).scores(_powers(inner) @ at) - inner[:, None]
    with np.errstate(invalid="ignore"):
        is_near = np.sqrt(np.square(errors).mean(axis=(0, 1))) < _ERROR
        is_near &= np.abs(errors).max(axis=(0, 1)) < _WORST
    return fitted, is_near


def _at_all(
    design: Regression, fitted: np.ndarray, which: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Return the quantiles of normal scores (n_draws, n_units) at all draws.

    By the coefficients (n_features, n_powers, n_kinds) of each unit's kind, `which`.
    """
    found = np.empty_like(scores)
    for some in _cut(np.arange(len(scores)), fitted[0].size):
        draws = slice(some[0], some[-1] + 1)
        found[draws] = polynomials(design.at(fitted, draws), which, scores[draws] / _FARTHEST)
    return found


def _of_kinds(kind: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the units of some kinds, in ascending order, and the number of each one's kind."""
    units = np.flatnonzero(np.isin(kind, kinds))
    return units, np.searchsorted(kinds, kind[units])


def _cut(which: np.ndarray, n_numbers: float) -> Iterator[np.ndarray]:
    """Cut numbers of draws, each of which takes so many numbers in temporary arrays."""
    most = max(int(_BLOCK // n_numbers), 8)
    yield from (which[i : i + most] for i in range(0, len(which), most))


def _standardised(places: np.ndarray) -> np.ndarray:
    """Return the distance from the mode, in widths, at places of a table."""
    return _LINEAR * np.sinh(places / _LINEAR)


def _powers(scores: np.ndarray) -> np.ndarray:
    """Return the powers of normal scores (n_scores,), as (n_scores, n_powers)."""
    found: np.ndarray = (scores / _FARTHEST)[:, None] ** np.arange(_N_POWERS)
    return found


def _least_squares(design: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the matrix from values to coefficients of a weighted regression."""
    found: np.ndarray = np.linalg.pinv(design * weights[:, None]) * weights
    return found


def _pieces(rows: Rows, most: int, least: int) -> Iterator[Rows]:
    """Cut units into blocks of about as many rows; one of many rows is a block by itself.

    Units of fewer rows than `least` count as if they had as many.
    """
    ends = np.cumsum(np.maximum(rows.unit_rows.sizes, least))
    start, done = 0, 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        yield rows.take(slice(start, stop))
        start, done = stop, int(ends[stop - 1])
