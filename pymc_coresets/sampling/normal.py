"""Normal distributions, with and without heavy tails, and mixtures of them around several modes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.sparse.linalg import splu
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm
from scipy.stats import t as student_t

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.numerics import log_standard_normal
from pymc_coresets.reading.quadratic import Curvature

#: Degrees of freedom, and share of the draws, of the t component of a normal with `Tails`.  A
#: larger share loses more draws if the posterior is normal; a smaller one bounds the importance
#: weights less.
_DEGREES, _SHARE = 5, 0.1
#: Standard deviations at which a distribution is split, and larger ones that detect heavy tails.
_DISTANCES, _FAR = (1.5, 3.0, 5.0), (10.0, 20.0)


@runtime_checkable
class KnownDensity(Protocol):
    """A distribution on the unconstrained scale with draws and a known density."""

    @property
    def n_products(self) -> float:
        """Approximate cost of a draw, in products."""

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""


class _InOrder(NamedTuple):
    """A symmetric sparsity pattern whose rows and columns are reordered.

    Parameters
    ----------
    order, places : ndarray of int, of shape (p,)
        Of the rows, and where each is then.
    entries : ndarray of int
        Of the matrix, in the order in which the reordered one stores them.
    pattern : tuple of ndarray of int
        Indices and their starts, of the reordered one.
    """

    order: np.ndarray
    places: np.ndarray
    entries: np.ndarray
    pattern: tuple[np.ndarray, np.ndarray]


class CholeskyFactor:
    """A root R of a symmetric positive definite matrix, ``R R' = matrix``.

    O(p^3) for a dense matrix; a sparse one is decomposed by SuperLU without pivoting, in an order
    that keeps the factor sparse.

    Parameters
    ----------
    matrix : ndarray or csr_array, of shape (p, p)
    like : CholeskyFactor, optional
        Of a sparse matrix with the same pattern, stored in the same way: finding an order takes
        ten times as long as the decomposition.

    Attributes
    ----------
    order : ndarray of int, of shape (p,), or None
        Of the rows of a sparse matrix in the factor.
    root : ndarray or csr_array, of shape (p, p)
        The lower Cholesky factor; for a sparse matrix, of the reordered matrix.

    Raises
    ------
    LinAlgError
        If it is not positive definite.

    Examples
    --------
    >>> matrix = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> for factor in (CholeskyFactor(matrix), CholeskyFactor(sparse.csr_array(matrix))):
    ...     root = np.column_stack([factor.root_times(z) for z in np.eye(2)])
    ...     (factor.solve(matrix[0]).round(12), (root @ root.T).round(12).tolist())
    (array([1., 0.]), [[4.0, 1.0], [1.0, 3.0]])
    (array([1., 0.]), [[4.0, 1.0], [1.0, 3.0]])
    >>> CholeskyFactor(2 * factor.matrix, factor).solve(matrix[0]).round(12)
    array([0.5, 0. ])
    """

    def __init__(self, matrix: Curvature, like: "CholeskyFactor | None" = None) -> None:
        self.matrix, self.order = matrix, None
        if isinstance(matrix, np.ndarray):
            self.root = cholesky(matrix, lower=True)
            return
        self._first = None if like is None else like._in_order  # noqa: SLF001 (its own)
        # A symmetric matrix is its own transpose: by columns, it has the same arrays.
        arrays = (matrix.data, matrix.indices, matrix.indptr)
        if self._first is not None:
            arrays = (matrix.data[self._first.entries], *self._first.pattern)
        try:
            self._lu: Any = splu(
                sparse.csc_array(arrays, shape=matrix.shape),
                permc_spec="MMD_AT_PLUS_A" if self._first is None else "NATURAL",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError as error:
            raise LinAlgError("The matrix is singular.") from error
        self._pivots, places = self._lu.U.diagonal(), self._lu.perm_r
        if not (np.array_equal(places, self._lu.perm_c) and (self._pivots > 0).all()):
            raise LinAlgError("The matrix is not positive definite.")
        self._places = places if self._first is None else places[self._first.places]
        self.order = np.argsort(self._places)

    @classmethod
    def of_root(cls, root: np.ndarray) -> Self:
        """Make the factor from a known lower Cholesky factor (p, p).

        Examples
        --------
        >>> CholeskyFactor.of_root(np.array([[2.0]])).solve(np.ones(1))
        array([0.25])
        """
        found = cls.__new__(cls)
        found.root, found.order = root, None
        return found

    @classmethod
    def near(cls, matrix: Curvature) -> Self:
        """Decompose a matrix, adding to its diagonal until it is positive definite.

        Raises
        ------
        SamplingError
            If no addition makes it positive definite.
        """
        diagonal, more = np.abs(matrix.diagonal()), 0.0
        while more < 1e3:
            try:
                added = sparse.diags_array(more * diagonal)
                return cls(
                    matrix + added if isinstance(matrix, np.ndarray) else (matrix + added).tocsr()
                )
            except (LinAlgError, ValueError):
                more = max(10 * more, 1e-3)
        raise SamplingError(
            "The posterior is improper: its precision at the draws is not positive definite, as "
            "with a flat prior of a variable that the data do not determine. Give all variables a "
            "proper prior."
        )

    @cached_property
    def _in_order(self) -> "_InOrder":
        """How matrices of this pattern are put into this order."""
        if self._first is not None:
            return self._first
        order, own = self.order, self.matrix
        assert order is not None
        assert not isinstance(own, np.ndarray)
        numbers = sparse.csr_array((np.arange(own.nnz), own.indices, own.indptr), shape=own.shape)
        moved = numbers[order][:, order]
        moved.sort_indices()
        return _InOrder(order, self._places, moved.data, (moved.indices, moved.indptr))

    @cached_property
    def root(self) -> Any:  # noqa: ANN401
        """See the class: of a sparse matrix, it takes as long as the decomposition."""
        return sparse.csr_array(self._lu.L * np.sqrt(self._pivots))

    @cached_property
    def matrix(self) -> Curvature:
        """The matrix itself."""
        matrix: np.ndarray = self.root @ self.root.T
        return matrix

    @property
    def is_dense(self) -> bool:
        """Whether the matrix is dense."""
        return not hasattr(self, "_lu")

    @property
    def n_dims(self) -> int:
        """Its number of rows p."""
        return len(self.root if self.is_dense else self._places)

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""
        if self.is_dense:
            return np.asarray(cho_solve((self.root, True), x))
        if self._first is None:
            return np.asarray(self._lu.solve(x))
        solution: np.ndarray = self._lu.solve(x[self._first.order])[self._first.places]
        return solution

    @property
    def log_determinant(self) -> float:
        """Log-determinant of the matrix."""
        if self.is_dense:
            return 2 * float(np.log(self.root.diagonal()).sum())
        return float(np.log(self._pivots).sum())

    @property
    def n_operations(self) -> float:
        """Approximate cost of the decomposition, in multiplications."""
        if self.is_dense:
            return float(self.n_dims**3 / 3)
        # SuperLU takes 20 times as long as LAPACK for each multiplication.
        return float(20 * self.root.nnz**2 / max(self.n_dims, 1))

    def root_times(self, z: np.ndarray) -> np.ndarray:
        """Return ``R z``, (p,) or (p, n): of covariance `matrix` if z is standard normal."""
        if self.is_dense:
            return np.asarray(self.root @ z)
        widths = np.sqrt(self._pivots)
        product = self._lu.L @ (z * (widths if z.ndim == 1 else widths[:, None]))
        placed: np.ndarray = product[self._places]
        return placed

    def offset(self, z: np.ndarray) -> np.ndarray:
        """Return ``R'^-1 z``, (p,) or (p, n): of precision `matrix` if z is standard normal."""
        if self.is_dense:
            return np.asarray(solve_triangular(self.root, z, lower=True, trans="T"))
        return self.solve(self.root_times(z))

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return ``R' x`` for points (n_points, p) in rows: the inverse of `offset`."""
        whitened: np.ndarray = x @ self.root if self.is_dense else x[..., self.order] @ self.root
        return whitened

    def whiten_gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return ``R^-1 g`` for gradients (p,) or (n_points, p): those by whitened coordinates."""
        if not self.is_dense:
            return self.whiten(self.solve(gradients.T).T)
        return np.asarray(solve_triangular(self.root, gradients.T, lower=True)).T

    def draw_inverse(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw (n_draws, p) from a normal distribution of this precision, around zero."""
        return self.offset(rng.standard_normal((n_draws, self.n_dims)).T).T

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).of_root, (self.root,)) if self.is_dense else (type(self), (self.matrix,))


@dataclass(frozen=True, eq=False, kw_only=True)
class Tails:
    """Heavy tails and skewness that a distribution has in addition to a normal one.

    Parameters
    ----------
    stretch : ndarray of shape (2, n_dims), optional
        Relative widths along the axes of the factor, to the left and to the right.
    heavy : ndarray of int, of shape (n_heavy,), optional
        Axes of the factor along which tails are heavy.
    degrees : ndarray of shape (n_heavy,), optional
        Degrees of freedom along these axes.
    """

    stretch: np.ndarray | None = None
    heavy: np.ndarray | None = None
    degrees: np.ndarray | None = None

    def scales(self, z: np.ndarray) -> np.ndarray:
        """Return the relative width on the side of each entry of z (n_draws, n_dims)."""
        if self.stretch is None:
            return np.ones_like(z)
        scales: np.ndarray = np.where(z > 0, self.stretch[1], self.stretch[0])
        return scales

    def groups(self, which: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Divide draws among the heavy axes: each alone, and all together."""
        if self.heavy is None or self.degrees is None:
            return []
        groups = [np.array([i]) for i in range(len(self.heavy))]
        if len(groups) > 1:
            groups.append(np.arange(len(self.heavy)))
        some = np.array_split(which, len(groups))
        return [(self.heavy[g], self.degrees[g], own) for g, own in zip(groups, some, strict=True)]

    def draw(self, n_draws: int, n_dims: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw in coordinates in which the normal distribution is standard, (n_draws, n_dims)."""
        z = rng.standard_normal((n_draws, n_dims))
        if self.stretch is not None:
            left, right = self.stretch
            is_right = rng.uniform(size=z.shape) < right / (left + right)
            z = np.abs(z) * np.where(is_right, right, -left)
        order, n_wide = rng.permutation(n_draws), round(_SHARE * n_draws)
        wide = order[:n_wide]
        z[wide] *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (len(wide), 1)))
        for axes, degrees, some in self.groups(order[n_wide : 2 * n_wide]):
            at = np.ix_(some, axes)
            sizes = np.abs(rng.standard_t(degrees, (len(some), len(axes))))
            z[at] = np.where(z[at] > 0, sizes, -sizes) * self.scales(z)[at]
        return z

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Return its log-density in these coordinates, (n_draws,)."""
        n_dims, stretched = z.shape[1], 0.0
        z = z / self.scales(z)
        if self.stretch is not None:
            stretched = float(np.log(self.stretch.mean(axis=0)).sum())
        squares, normal = np.square(z).sum(axis=1), log_standard_normal(z)
        wide = gammaln((_DEGREES + n_dims) / 2) - gammaln(_DEGREES / 2)
        wide = wide - n_dims / 2 * np.log(_DEGREES * np.pi)
        wide = wide - (_DEGREES + n_dims) / 2 * np.log1p(squares / _DEGREES)
        groups = self.groups(np.arange(0))
        left_over = 1 - _SHARE * (2 if groups else 1)
        parts = [np.log(left_over) + normal, np.log(_SHARE) + wide]
        for axes, degrees, _ in groups:
            gain = student_t.logpdf(z[:, axes], degrees) - norm.logpdf(z[:, axes])
            parts.append(np.log(_SHARE / len(groups)) + normal + gain.sum(axis=1))
        logq: np.ndarray = np.logaddexp.reduce(parts) - stretched
        return logq


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution by the root of its precision, which may be sparse, and its tails.

    With `Tails`, a tenth of it is a t distribution.  Its tails are then heavier than those of a
    posterior of the same mode and curvature, so that importance weights have a finite variance:
    they are at most ten times those of a t distribution alone.  If the posterior is close to
    normal, nearly all draws count, even in many dimensions, in which hardly any draw of a t
    distribution is as near to the mode as those of a normal one.  Along axes on which the posterior
    is known to have heavier tails, another tenth of the draws is from a t distribution of few
    degrees of freedom: along each alone, and along all of them.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    factor : CholeskyFactor
        Of its precision.
    tails : Tails, optional
        None for a plain normal distribution.

    Notes
    -----
    With R R' the precision and mu the location, a draw is mu + R'^-1 z, z ~ N(0, I).

    References
    ----------
    Geweke (1989). Bayesian inference in econometric models using Monte Carlo integration.
    Econometrica 57(6), section 5: split-normal importance densities.

    Examples
    --------
    >>> found = Normal(np.ones(2), CholeskyFactor(sparse.csr_array(np.diag([4.0, 1.0]))))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> draws.mean(axis=0).round(1), draws.std(axis=0).round(1)
    (array([1., 1.]), array([0.5, 1. ]))
    """

    location: np.ndarray
    factor: CholeskyFactor
    tails: Tails | None = None

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    @property
    def n_evaluations(self) -> int:
        """Number of evaluations of a density by `split`."""
        return 2 * len(_DISTANCES + _FAR) * len(self.location)

    @property
    def covariance(self) -> np.ndarray:
        """The inverse of the precision, (n_dims, n_dims)."""
        return self.factor.solve(np.eye(len(self.location)))

    def at(self, z: np.ndarray) -> np.ndarray:
        """Return points from whitened coordinates (n_dims,) or (n, n_dims)."""
        points: np.ndarray = self.location + self.factor.offset(z.T).T
        return points

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return whitened coordinates of points (n_dims,) or (n, n_dims)."""
        return self.factor.whiten(x - self.location)

    def has_near(self, x: np.ndarray) -> bool:
        """Whether a point belongs to the same mode: within two standard deviations."""
        return bool(self.are_near(x[None])[0])

    def are_near(self, points: np.ndarray) -> np.ndarray:
        """Whether each of the points (n_points, n_dims) is so near."""
        found: np.ndarray = np.linalg.norm(self.whiten(points), axis=1) < 2.0
        return found

    def is_near(self, other: "Normal") -> bool:
        """Whether either mode is within two standard deviations of the other."""
        return self.has_near(other.location) or other.has_near(self.location)

    def log_mass(self, height: float) -> float:
        """Return the log of the mass of a density with a given height, up to a constant.

        Laplace's approximation, for a density with this mode and curvature.

        Examples
        --------
        >>> round(Normal(np.zeros(2), CholeskyFactor(np.diag([1.0, 4.0]))).log_mass(0.0), 3)
        -0.693
        """
        return float(height - self.factor.log_determinant / 2)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        n_dims = len(self.location)
        if self.tails is not None:
            return self.placed(self.tails.draw(n_draws, n_dims, rng=rng))
        return self.placed(rng.standard_normal((n_dims, n_draws)).T)

    def placed(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of coordinates (n_draws, n_dims), and the log-density there."""
        return self.at(z), self._log_density(z)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return its log-density at points (n_points, n_dims), in nats."""
        return self._log_density(self.whiten(x))

    def _log_density(self, z: np.ndarray) -> np.ndarray:
        round_ = log_standard_normal(z) if self.tails is None else self.tails.log_density(z)
        logq: np.ndarray = round_ + self.factor.log_determinant / 2
        return logq

    def with_tails(self) -> Self:
        """Return the distribution with a tenth of a t distribution."""
        return replace(self, tails=Tails())

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Match the widths of a density on either side of the mode: 10 D evaluations at once.

        Along each axis, by the largest of the scales of the density at 1.5, 3 and 5 standard
        deviations.  If it falls even more slowly from there to 10 and 20, the axis is heavy.

        Parameters
        ----------
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.

        Examples
        --------
        >>> found = heavy_tailed(np.zeros(1), np.eye(1))
        >>> split = found.split(lambda x: np.where(x > 0, -x * x / 8, -x * x / 2)[:, 0])
        >>> split.tails.stretch.round(3)
        array([[1.],
               [2.]])
        >>> found.split(lambda x: -np.log1p(x[:, 0] ** 2)).tails.heavy
        array([0])
        """
        axes = np.eye(len(self.location))
        height = float(log_density(self.location[None])[0])
        distances = np.array(_DISTANCES + _FAR)[:, None]
        with np.errstate(invalid="ignore", over="ignore"):
            below = height - np.array(
                [[log_density(self.at(way * axes)) for way in side * distances] for side in (-1, 1)]
            )
            falls = np.nan_to_num(below[:, -1] - below[:, -2], nan=np.inf)
        scales = np.nan_to_num(distances / np.sqrt(2 * np.maximum(below, 1e-3)), nan=1.0)
        near, far = np.split(scales, [len(_DISTANCES)], axis=1)
        stretch = np.clip(near.max(axis=1), 0.5, 3.0)
        excess = (far.max(axis=1) / stretch).max(axis=0)
        heaviest = np.argsort(-excess, kind="stable")[:8]
        heavy = np.sort(heaviest[excess[heaviest] > 1.3])
        if not heavy.size:
            return replace(self, tails=Tails(stretch=stretch))
        # A power falls by less than three nats from 10 to 20 standard deviations, an exponential by
        # more.
        degrees = np.where(np.min(falls, axis=0)[heavy] < 3.0, 1.0, 8.0)
        return replace(self, tails=Tails(stretch=stretch, heavy=heavy, degrees=degrees))


def heavy_tailed(location: np.ndarray, root: np.ndarray) -> Normal:
    """Return a normal distribution by a Cholesky factor of its precision, with a tenth of a t.

    Examples
    --------
    >>> found = heavy_tailed(np.zeros(1), np.eye(1))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> weights = np.exp(-draws[:, 0] ** 2 / 2 - logq)  # of a normal posterior
    >>> bool(weights.sum() ** 2 / (weights**2).sum() > 990)
    True
    """
    return Normal(location, CholeskyFactor.of_root(root), Tails())


@dataclass(frozen=True, eq=False)
class Mixture:
    """Distributions around several modes.

    Parameters
    ----------
    parts : sequence of Normal
    masses : ndarray of shape (n_parts,)
        Shares of the posterior's mass, which sum to one.

    Examples
    --------
    >>> parts = [heavy_tailed(np.full(1, centre), np.eye(1)) for centre in (-10.0, 10.0)]
    >>> mixture = Mixture(parts, np.array([0.9, 0.1]))
    >>> draws, logq = mixture.draw(1_000, rng=np.random.default_rng(1))
    >>> int((draws < 0).sum()), mixture.location
    (700, array([-10.]))
    """

    parts: Sequence[Normal]
    masses: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[Normal], heights: Sequence[float]) -> Self:
        """Weigh distributions around modes of a density by Laplace's approximation of their mass.

        Parameters
        ----------
        parts : sequence of Normal
        heights : sequence of float
            Of the log-density at the modes, in nats up to a constant.
        """
        masses = [part.log_mass(height) for part, height in zip(parts, heights, strict=True)]
        return cls(parts, softmax(masses))

    @property
    def largest(self) -> Normal:
        """The part of most mass."""
        return self.parts[int(np.argmax(self.masses))]

    @property
    def location(self) -> np.ndarray:
        """The mode of the largest part."""
        return self.largest.location

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return len(self.parts) * self.parts[0].n_products

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Match the widths of a density around each part, see `Normal.split`."""
        return replace(self, parts=[part.split(log_density) for part in self.parts])

    def draw(
        self, n_draws: int, *, rng: np.random.Generator, equally: float = 0.5
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant.

        Part of the draws is divided equally among the modes, so that each has some, whatever its
        mass.
        """
        shares = (1 - equally) * self.masses + equally / len(self.masses)
        borders = np.round(np.cumsum(shares / shares.sum()) * n_draws).astype(np.int64)
        counts = np.diff(borders, prepend=0)
        found = [part.draw(n, rng=rng) for part, n in zip(self.parts, counts, strict=True)]
        if len(found) == 1:
            return found[0]
        draws = np.concatenate([draws for draws, _ in found])[rng.permutation(n_draws)]
        used = [i for i, n in enumerate(counts) if n]
        logs = np.stack([self.parts[i].log_density(draws) for i in used])
        logq: np.ndarray = logsumexp(logs, axis=0, b=counts[used, None] / n_draws)
        return draws, logq
