"""Draws from posteriors of weighted rows in groups: nothing is of size D x D."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.diagnostics.known_posterior import LevelDraws, LevelRatios, Proposal
from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.reading.blocks.structure import Blocks
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import GroupedRows, Rows
from pymc_coresets.sampling.levels.grouped_density import (
    GroupedDensity,
    GroupedPrior,
    NormalInLevels,
)
from pymc_coresets.sampling.levels.nested_laplace import NestedLaplace, find_nested_laplace
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.metric import Spread

type Array = NDArray[np.float64]

_ROWS_OF_START = 20  # of each level
_MOST_KEPT = 2**23  # entries of an approximation


class GroupedSampler:
    """Samples posteriors of weighted rows whose groups are independent given what they share.

    Parameters
    ----------
    sampler : CoresetSampler
        Of the same model: its density and its rows, which are in memory.
    blocks : Blocks
        Which variables belong to the levels of which factor.

    Raises
    ------
    UnsupportedModelError
        If a free variable is discrete.
    """

    def __init__(self, sampler: CoresetSampler, blocks: Blocks) -> None:
        discrete = [v.name for v in sampler.space.model.discrete_value_vars]
        if discrete:
            raise UnsupportedModelError(
                f"The rows cannot be chosen by groups: {discrete!r} are discrete, and have no "
                "curvature. Marginalise them, or use method='pursuit'."
            )
        self._sampler, self._blocks = sampler, blocks
        self._loglik, self._prior = sampler.loglikelihood, GroupedPrior(blocks)

    @property
    def n_shared(self) -> int:
        """Number of shared variables p."""
        return self._prior.shared_columns.size

    @property
    def shared(self) -> tuple[str, ...]:
        """The variables that all levels share."""
        return self._blocks.shared

    @property
    def local(self) -> tuple[str, ...]:
        """The variables that belong to levels."""
        return tuple(self._blocks.local)

    @property
    def n_local(self) -> int:
        """Number of variables q of each level."""
        return self._prior.local_columns.shape[1]

    @property
    def n_levels(self) -> int:
        """Number of levels G."""
        return self._blocks.n_blocks

    @cached_property
    def data(self) -> GroupedRows:
        """All rows, those of a level next to each other."""
        rows = self._loglik.all_rows
        return self._grouped(rows, rows.base_weights)

    @cached_property
    def approximation(self) -> NestedLaplace:
        """Of the posterior of all rows; the search begins with a few of each level.

        Raises
        ------
        SamplingError
            If the marginal posterior of the shared variables has no mode.
        """
        some = self._found(self._density(self._start()), None)
        return self._found(self._density(self.data), some)

    def approximation_of(self, rows: Rows, weights: Array) -> NestedLaplace:
        """Of the posterior of weighted rows; the search begins at that of all rows.

        Raises
        ------
        SamplingError
            As `approximation`.
        """
        return self._found(self._density(self._grouped(rows, weights)), self.approximation)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> LevelDraws[Draws]:
        """Draw from around the full posterior, in antithetic pairs.

        Raises
        ------
        SamplingError
            If the marginal posterior of the shared variables has no mode.
        """
        found = self.approximation.draw(n_draws, rng=rng)
        x = self._density(self.data).positions(found.shared, found.local)
        return LevelDraws(self._prior.at(x)[0], found.whitened, found.noise)

    def loglik(self, draws: Draws, rows: Rows) -> Array:
        """Return the potentials of some rows, (n_rows, n_draws), in nats; not all may be finite."""
        return self._loglik.matrix(draws, rows, finite=False)

    def ratios(
        self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> LevelRatios[Draws]:
        """Draw from the posterior of weighted rows, and evaluate all rows there: one pass.

        Raises
        ------
        SamplingError
            If that posterior has no mode, is too far from normal in the shared variables, or the
            log-likelihood of all rows is not finite at its draws.
        """
        density = self._density(self._grouped(rows, weights))
        own = self._found(density, self.approximation)
        with self._shared_named():
            found = own.corrected(density, n_draws, rng=rng)
        draws = self._prior.at(density.positions(found.shared, found.local))[0]
        by_level = self._density(self.data).sums(draws) - density.sums(draws)
        if not np.isfinite(by_level).all():
            raise SamplingError(
                "The log-likelihood of all rows is NaN or infinite at a draw of the coreset's "
                "posterior: check that the likelihood is positive wherever the prior is."
            )
        by_level -= by_level.mean(axis=0)  # centred sums keep their digits
        around = self._around(density, own)
        proposal = Proposal(draws=draws, log_ratios=by_level.sum(axis=1), around=around)
        return LevelRatios(proposal, found.whitened)

    def _start(self) -> GroupedRows:
        """A few rows of each level at random, with weights to match."""
        data, sizes = self.data, np.diff(self.data.bounds)
        order = np.lexsort((np.random.default_rng(0).random(len(data.groups)), data.groups))
        rank = np.arange(len(order)) - data.bounds[data.groups]
        kept = np.sort(order[rank < _ROWS_OF_START])
        groups = data.groups[kept]
        weights = data.weights[kept] * np.maximum(sizes[groups] / _ROWS_OF_START, 1.0)
        return GroupedRows(data.rows.take(kept), weights, groups, data.n_groups)

    def _grouped(self, rows: Rows, weights: Array) -> GroupedRows:
        return GroupedRows.sorted(rows, weights, self._blocks.block_of(rows), self.n_levels)

    def _density(self, data: GroupedRows) -> GroupedDensity:
        return GroupedDensity(self._prior, self._loglik, data)

    def _found(self, density: GroupedDensity, like: NestedLaplace | None) -> NestedLaplace:
        start = self._space.start[self._prior.shared_columns]
        with self._shared_named():
            return find_nested_laplace(density, start, self.n_levels, self.n_local, like)

    @contextmanager
    def _shared_named(self) -> Iterator[None]:
        try:
            yield
        except SamplingError as error:
            names = ", ".join(map(repr, self.shared)) or "none"
            raise SamplingError(f"{error.message} The shared variables: {names}.") from error

    @cached_property
    def _space(self) -> Unconstrained:
        return self._loglik.observations.space

    @staticmethod
    def _around(density: GroupedDensity, found: NestedLaplace) -> NormalInLevels | Spread:
        """Return what `Coreset.sample` is to know of it: all, where that is not too large."""
        shared, local = found.deviations()
        spread = Spread(np.square(density.positions(shared[None], local[None])[0]))
        return spread if found.terms.size > _MOST_KEPT else NormalInLevels(found, spread)
