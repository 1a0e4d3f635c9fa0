"""Laplace approximations of hierarchies, nested: the groups given the rest, then the rest."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth, systematic_resample
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.expansion import Expansion, are_smooth, design, monomials
from pymc_coresets.sampling.levels.conditionals import (
    Conditionals,
    PartedDensity,
    find_conditionals,
    points_at_once,
    solve_lower,
    solve_upper,
)

type Array = NDArray[np.float64]

#: Degrees of freedom of the draws of shared variables.
SHARED_TAILS = 30

_FIRST_STEP = 1e-2 / 0.3
_MOST_STEPS = 60
_PROPOSALS = 2  # for each draw by importance sampling
_LOCAL_TAILS = 8
_EXCHANGES = 6  # of each group's variables, by independent Metropolis steps
_REMEDY = (
    "reparametrise the shared variables, give them proper priors, or use "
    "method=RiemannianPursuit(), which needs no mode."
)


@dataclass(frozen=True, eq=False)
class GroupDraws:
    """Draws of shared and local variables, on the unconstrained scale.

    Parameters
    ----------
    shared : ndarray of shape (n_draws, p)
    whitened : ndarray of shape (n_draws, p)
        The same in coordinates in which they are roughly standard normal.
    local : ndarray of shape (n_draws, G, q)
    noise : ndarray of shape (n_draws, G, q)
        What is random in the local variables given the shared ones, standardised.
    """

    shared: Array
    whitened: Array
    local: Array
    noise: Array


@dataclass(frozen=True, eq=False)
class NestedLaplace:
    """A posterior of groups: a normal distribution of what they share, and of each given that.

    Parameters
    ----------
    mode : ndarray of shape (p,)
        Of the shared variables' marginal density.
    spread : ndarray of shape (p, p)
        ``spread @ z`` has their covariance if z is standard normal.
    terms : ndarray of shape (n_terms, G, q + q(q + 1)/2)
        Quadratic expansions, in z, of the groups' conditional modes and of the logarithms and
        entries of the Cholesky factors of their conditional precisions.
    """

    mode: Array
    spread: Array
    terms: Array

    @property
    def n_shared(self) -> int:
        """Number of shared variables p."""
        return len(self.mode)

    @property
    def n_local(self) -> int:
        """Number of variables q of each group."""
        return _n_local(self.terms.shape[2])

    def given(self, whitened: Array) -> tuple[Array, Array]:
        """Return modes (B, G, q) and Cholesky factors (B, G, q, q) of the groups given z (B, p)."""
        quadratic = monomials(whitened)
        return _unpacked(np.tensordot(quadratic, self.terms, axes=1), self.n_local)

    def deviations(self) -> tuple[Array, Array]:
        """Return the marginal standard deviations: shared (p,), and local (G, q)."""
        _, root = self.given(np.zeros((1, self.n_shared)))
        slopes = self.terms[1 : 1 + self.n_shared, :, : self.n_local]
        units = np.eye(self.n_local)
        own = np.stack([np.square(solve_lower(root[0], e)).sum(axis=-1) for e in units], axis=-1)
        return (
            np.sqrt(np.square(self.spread).sum(axis=1)),
            np.sqrt(own + np.square(slopes).sum(axis=0)),
        )

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> GroupDraws:
        """Draw in pairs, with the same shared variables and opposite noise; no density is needed.

        In such a sample, odd functions of the noise are uncorrelated with whatever is a function
        of the shared variables, as they are in the distribution.
        """
        n_pairs = -(-n_draws // 2)
        whitened = rng.standard_normal((n_pairs, self.n_shared))
        centre, root = self.given(whitened)
        noise = rng.standard_normal(centre.shape)
        offset = solve_upper(root, noise)
        whitened = np.concatenate([whitened, whitened])
        return GroupDraws(
            shared=self.mode + whitened @ self.spread.T,
            whitened=whitened,
            local=np.concatenate([centre + offset, centre - offset]),
            noise=np.concatenate([noise, -noise]),
        )

    def corrected(
        self, density: PartedDensity, n_draws: int, *, rng: np.random.Generator
    ) -> GroupDraws:
        """Draw from a density, as far as the marginal of the shared variables is Laplace's.

        These are resampled by their importance weights; then each group's variables are exchanged
        by independent Metropolis steps, which the groups accept by themselves.

        Raises
        ------
        SamplingError
            If the Pareto k-hat of the shared variables' weights exceeds 0.7.
        """
        z, logq = heavy_tailed((_PROPOSALS * n_draws, 1, self.n_shared), SHARED_TAILS, rng)
        whitened = z[:, 0]
        shared = self.mode + whitened @ self.spread.T
        found = self._conditionals(density, whitened)
        ratios = found.log_marginal - logq[:, 0]
        reliable = np.isfinite(ratios).any()
        smoothed = pareto_smooth(np.maximum(ratios, -1e300)[None]) if reliable else None
        if smoothed is None or smoothed.pareto_khat > KHAT_RELIABLE:
            khat = "" if smoothed is None else f" (Pareto k-hat {smoothed.pareto_khat:.2f})"
            raise SamplingError(
                "The marginal posterior of the variables that the groups share is too far from "
                f"normal{khat}: {_REMEDY}"
            )
        kept = np.sort(systematic_resample(smoothed.weights[0], n_draws, rng=rng))
        centre, root = found.centre[kept], found.root[kept]
        del found  # twice as many points
        noise, local = _exchanged(density, shared[kept], centre, root, rng)
        return GroupDraws(shared[kept], whitened[kept], local, noise)

    def _conditionals(self, density: PartedDensity, whitened: Array) -> Conditionals:
        """Find the conditional modes at points z (B, p), a few of these at a time."""
        size, each = len(whitened), points_at_once(self.terms.shape[1:])
        shape = (size, self.terms.shape[1], self.n_local)
        all_points = Conditionals(np.empty(shape), np.empty((*shape, self.n_local)), np.empty(size))
        for first in range(0, size, each):
            i = slice(first, first + each)
            centre, root = self.given(whitened[i])
            shared = self.mode + whitened[i] @ self.spread.T
            found = find_conditionals(density, shared, centre, _scales(root))
            for whole, part in zip(all_points, found, strict=True):
                whole[i] = part
        return all_points


def find_nested_laplace(
    density: PartedDensity,
    start: Array,
    n_levels: int,
    n_local: int,
    like: NestedLaplace | None = None,
) -> NestedLaplace:
    """Find the mode of the shared variables' marginal density, and the curvature there.

    The joint mode of a hierarchy does not help: with an unknown scale of the groups it lies far
    from the posterior, or at infinity.  With the groups' variables integrated out, by Laplace's
    approximation, what is left has few dimensions and is nearly normal.

    Parameters
    ----------
    density : PartedDensity
    start : ndarray of shape (p,)
        Where to begin.
    n_levels, n_local : int
        Numbers G of groups, and q of variables of each.
    like : NestedLaplace, optional
        Of a similar density: the search begins there.

    Raises
    ------
    SamplingError
        If there is no mode.

    Notes
    -----
    Newton's method on differences, (p + 1)(p + 2)/2 points of the shared variables a step, at each
    of which the groups' conditional modes are found (`find_conditionals`).  Rue, Martino and Chopin
    (2009) call it the Laplace approximation of the marginal.

    References
    ----------
    Rue, H., Martino, S. and Chopin, N. (2009). Approximate Bayesian inference for latent Gaussian
    models by using integrated nested Laplace approximations. JRSS B 71, 319-392.
    https://doi.org/10.1111/j.1467-9868.2008.00700.x

    Examples
    --------
    >>> def normal(shared, local):
    ...     return -0.5 * shared[:, 0] ** 2, -2.0 * (local[..., 0] - shared - 1) ** 2
    >>> found = find_nested_laplace(normal, np.ones(1), 2, 1)
    >>> found.mode.round(3), found.spread.round(3), found.deviations()[1].round(3).ravel()
    (array([0.]), array([[1.]]), array([1.118, 1.118]))
    """
    n_shared = len(start)
    if like is None:
        mode, spread = start, _FIRST_STEP * np.eye(n_shared)
        local, scale = np.zeros((1, n_levels, n_local)), np.zeros((1, n_levels, n_local))
    else:
        mode, spread = like.mode, like.spread
        local, root = like.given(np.zeros((1, n_shared)))
        scale = _scales(root)
    for _ in range(_MOST_STEPS):
        step = _Step.at(density, mode, spread, local, scale)
        if step.marginal.is_last:
            return step.result()
        mode, spread, local, scale = step.taken(density)
    raise _no_mode("did not converge")


def _no_mode(why: str) -> SamplingError:
    return SamplingError(
        "The marginal posterior of the variables that the groups share has no mode: the search "
        f"from the model's initial point {why}; {_REMEDY}"
    )


@dataclass(frozen=True, eq=False)
class _Step:
    """The marginal density around a point, expanded, in whitened coordinates."""

    mode: Array
    spread: Array
    terms: Array
    marginal: Expansion

    @classmethod
    def at(
        cls, density: PartedDensity, mode: Array, spread: Array, local: Array, scale: Array
    ) -> "_Step":
        middle = find_conditionals(density, mode[None], local, scale)
        if not np.isfinite(middle.log_marginal[0]):
            raise _no_mode("came to where groups have no modes given the shared variables")
        points = design(len(mode))
        # The first point is the middle again, whose modes are known by now.
        start = np.broadcast_to(middle.centre, (len(points), *middle.centre.shape[1:]))
        scales = np.broadcast_to(_scales(middle.root), start.shape)
        found = find_conditionals(density, mode + points @ spread.T, start, scales)
        if not are_smooth(found.log_marginal):
            raise _no_mode("came to where the density is not smooth")
        packed = _packed(found.centre, found.root)
        terms = np.tensordot(np.linalg.inv(monomials(points)), packed, axes=1)
        return cls(mode, spread, terms, Expansion.of(found.log_marginal))

    def result(self) -> NestedLaplace:
        """Go the last step, and express the expansions in the coordinates there."""
        shift, turn = self.marginal.shift, self.marginal.turn
        points = design(len(self.mode))
        moved = np.tensordot(monomials(shift + points @ turn.T), self.terms, axes=1)
        terms = np.tensordot(np.linalg.inv(monomials(points)), moved, axes=1)
        return NestedLaplace(self.mode + self.spread @ shift, self.spread @ turn, terms)

    def taken(self, density: PartedDensity) -> tuple[Array, Array, Array, Array]:
        """Try steps of several lengths, and return where the best leads, with its scales."""
        steps = self.marginal.steps
        centre, root = _unpacked(self.terms[:1], _n_local(self.terms.shape[2]))
        local = np.broadcast_to(centre, (len(steps), *centre.shape[1:]))
        scales = np.broadcast_to(_scales(root), local.shape)
        shared = self.mode + steps @ self.spread.T
        found = find_conditionals(density, shared, local, scales)
        best, spread = int(np.argmax(found.log_marginal)), self.spread @ self.marginal.turn
        if not found.log_marginal[best] > self.marginal.height:
            if self.marginal.goes_on:
                raise _no_mode("came to a point from which nothing leads up")
            return self.mode, spread, centre, _scales(root)
        here = slice(best, best + 1)
        return shared[best], spread, found.centre[here], _scales(found.root[here])


# -- how factors are kept -------------------------------------------------------------------------


def _n_local(n_entries: int) -> int:
    return (math.isqrt(9 + 8 * n_entries) - 3) // 2


def _packed(centre: Array, root: Array) -> Array:
    """Modes, logarithms of the diagonals of the factors, and what is below: (B, G, n_entries)."""
    below = np.tril_indices(centre.shape[-1], -1)
    diagonal = np.log(np.diagonal(root, axis1=-2, axis2=-1))
    return np.concatenate([centre, diagonal, root[..., below[0], below[1]]], axis=-1)


def _unpacked(packed: Array, n_local: int) -> tuple[Array, Array]:
    centre, diagonal = packed[..., :n_local], np.exp(packed[..., n_local : 2 * n_local])
    root = np.zeros((*centre.shape, n_local))
    below = np.tril_indices(n_local, -1)
    root[..., below[0], below[1]] = packed[..., 2 * n_local :]
    root[..., np.arange(n_local), np.arange(n_local)] = diagonal
    return centre, root


def _scales(root: Array) -> Array:
    """Conditional standard deviations, (..., q)."""
    units = np.eye(root.shape[-1])
    squares = [np.square(solve_lower(root, e)).sum(axis=-1) for e in units]
    return np.sqrt(np.stack(squares, axis=-1))


# -- draws ----------------------------------------------------------------------------------------


def heavy_tailed(
    shape: tuple[int, int, int], degrees: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws of t distributions along the last axis, and their log-densities up to a constant."""
    z = rng.standard_normal(shape)
    z *= np.sqrt(degrees / rng.chisquare(degrees, (*shape[:2], 1)))
    squares = np.square(z).sum(axis=-1)
    return z, -(degrees + shape[2]) / 2 * np.log1p(squares / degrees)


def _exchanged(
    density: PartedDensity, shared: Array, centre: Array, root: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws of all groups given the shared variables: standardised, and on their own scale."""
    noise, local = np.empty_like(centre), np.empty_like(centre)
    each = points_at_once(centre.shape[1:])
    for first in range(0, len(shared), each):
        i = slice(first, first + each)
        noise[i], local[i] = _exchanged_at(density, shared[i], centre[i], root[i], rng)
    return noise, local


def _exchanged_at(
    density: PartedDensity, shared: Array, centre: Array, root: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    noise, logq = heavy_tailed(centre.shape, _LOCAL_TAILS, rng)
    local = centre + solve_upper(root, noise)
    ratios = density(shared, local)[1] - logq
    for _ in range(_EXCHANGES):
        other, logq = heavy_tailed(centre.shape, _LOCAL_TAILS, rng)
        there = centre + solve_upper(root, other)
        proposed = density(shared, there)[1] - logq
        # Exponential numbers are minus the logarithms of uniform ones.
        taken = proposed - ratios > -rng.standard_exponential(ratios.shape)
        noise, local = (
            np.where(taken[..., None], new, old) for new, old in ((other, noise), (there, local))
        )
        ratios = np.where(taken, proposed, ratios)
    return noise, local
